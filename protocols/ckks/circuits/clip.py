r"""The encrypted mean of clipped gradients (arXiv:2605.27782, Algorithm 4), without norm or root.

    clip((p(z) - y) |x|) x / |x|,   z = x . w,   clip(u) = max(-C, min(C, u))

is a row's gradient (p(z) - y) x clipped to norm C: its norm is |p(z) - y| |x|. A row's owner
encrypts x, x / |x|, and, in every block of the row's column, |x| and |x| (1/2 - y). The link is
1/2 + t r(t^2) with t = z / R, the clip an odd polynomial s a(s^2) of s = u / U.

| level | degree 7 of the link, 15 of the clip |
|---|---|
| 1 | the refresh |
| 2 | t = sum x w / R |
| 3 | t^2; \|x\| t |
| 5 | (p(z) - 1/2) \|x\| |
| 6 | s^2; (x / \|x\|) s |
| 9 | (x / \|x\|) s a(s^2) |

The paper's circuit takes 24 levels: 10 for the square root of the norm, its maximum with C and its
inverse alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import mul

import numpy as np
from numpy.typing import NDArray

from protocols.ckks.circuits.evaluator import EncryptedVector
from protocols.ckks.circuits.factors import depth, last_operands
from protocols.ckks.circuits.packing import Layout
from protocols.ckks.circuits.rows import link_factors
from protocols.ckks.factored import FactoredPolynomial
from protocols.errors import ParameterError
from protocols.numerics.approximation import Polynomial, range_bound

Array = NDArray[np.float64]

CLIP_DEGREE = 15
_NODES = 4001


@lru_cache
def clip_polynomial(clip: float, radius: float, degree: int = CLIP_DEGREE) -> Polynomial:
    """Odd least squares of clip(u) on [-radius, radius], at Chebyshev's nodes.

    Raises:
        ParameterError: not 0 < clip < radius, or the degree is even.
    """
    if not 0 < clip < radius:
        raise ParameterError(f"clip={clip} is outside (0, radius={radius}): nothing to be clipped")
    if degree < 3 or degree % 2 == 0:
        raise ParameterError(f"degree={degree} is not an odd number from 3 on")
    t = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
    fit = np.polynomial.Chebyshev.fit(t, np.clip(radius * t, -clip, clip), degree, domain=[-1, 1])
    powers = fit.convert(kind=np.polynomial.Polynomial).coef
    odd = np.where(np.arange(degree + 1) % 2, powers, 0.0)
    return Polynomial(coefficients=tuple(odd), center=0.0, radius=radius)


def largest_value(clip: Polynomial) -> float:
    """A certain bound of |clip| on its interval: what one row adds to the sum at most."""
    return max(map(abs, range_bound(clip, -clip.radius, clip.radius)))


@dataclass(frozen=True, slots=True)
class ClippedRows:
    """A group of encrypted rows.

    rows: x; directions: x / |x|; lengths: A |x| / U in every block of a row's column, A the leading
    coefficient of r; offsets: (1/2 - y) |x| / U likewise.
    """

    rows: EncryptedVector
    directions: EncryptedVector
    lengths: EncryptedVector
    offsets: EncryptedVector


def packed(
    layout: Layout, rows: Array, labels: Array, link: Polynomial, clip: Polynomial
) -> tuple[Array, Array, Array, Array]:
    """Slots of one owner's group, in the order of `ClippedRows`.

    rows: shape (n, d), none of them zero; labels: 0 or 1, shape (n,).
    """
    norms = np.linalg.norm(rows, axis=1)
    every = np.ones((layout.num_blocks, layout.block_size))
    flat = [link_factors(link).leading * norms / clip.radius, (0.5 - labels) * norms / clip.radius]
    wide = [np.zeros(layout.block_size) for _ in flat]
    for columns, values in zip(wide, flat, strict=True):
        columns[: len(rows)] = values
    whole = [layout.pack_rows(part, 0)[0] for part in (rows, rows / norms[:, None])]
    spread = [np.roll((every * columns).ravel(), layout.offset) for columns in wide]
    return whole[0], whole[1], spread[0], spread[1]


def clipped_terms(
    group: ClippedRows, weights: EncryptedVector, link: Polynomial, clip: Polynomial
) -> EncryptedVector:
    """clip(u) x / |x| of every row over `clip_factor`; weights: w / R, replicated."""
    z = group.rows @ weights
    residual = reduce(mul, last_operands(link_factors(link), z * z, group.lengths * z))
    s = residual + group.offsets
    terms: EncryptedVector = reduce(mul, last_operands(_outer(clip), s * s, group.directions * s))
    return terms


def clip_factor(clip: Polynomial) -> float:
    """What `clipped_terms` leaves to the public number that its sum is multiplied by."""
    return _outer(clip).leading


def clip_levels(link: Polynomial, clip: Polynomial) -> int:
    """Levels of an iteration, the refresh's included: 9 for degrees 7 and 15."""
    # the refresh, inner product, square; factors of the link; square, factors of the clip
    return 3 + depth(link_factors(link)) + 1 + depth(_outer(clip))


def _outer(clip: Polynomial) -> FactoredPolynomial:
    return FactoredPolynomial.from_coefficients(clip.coefficients[1::2])
