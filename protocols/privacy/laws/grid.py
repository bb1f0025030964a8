"""The power-of-two grid that noise lives on, and what the grid costs in delta.

**Sum of discrete Gaussians.** The sum of two independent discrete Gaussians of parameters s, t
is not one of parameter sqrt(s^2 + t^2), but its log-probabilities differ from it by at most
5 exp(-2 pi^2 r^2) with 1/r^2 = 1/s^2 + 1/t^2, s, t >= 1/2 (Kairouz, Liu, Steinke, ICML 2021,
arXiv:2102.06387, the theorem on the convolution of two discrete Gaussians). It follows from
Poisson summation: sum_x exp(-(x - u)^2 / (2 r^2)) depends on u by a factor of at most
1 +- 2 sum_j exp(-2 pi^2 r^2 j^2). Adding n of them one by one, r^2 = s^2 k / (k + 1) >= s^2 / 2,
so n shares of s units are off by at most 5 (n - 1) exp(-pi^2 s^2), which is 0 in any
floating-point format from s = 2^4 on.

**Discrete against continuous.** Let d be the discrete Gaussian of s units and r the continuous
one of the same s rounded to the nearest integer. Both densities compare with
f(k) = exp(-k^2 / 2 s^2) / (s sqrt(2 pi)): d <= f, because its normaliser exceeds s sqrt(2 pi),
and r(k) / f(k) = int_{-1/2}^{1/2} cosh(k u / s^2) exp(-u^2 / 2 s^2) du >= 1 - 1 / (24 s^2).
Hence their total variation distance is at most 1 / (24 s^2). A query whose values lie on the grid
plus r is the rounding of the continuous Gaussian mechanism, so it has exactly that mechanism's
(epsilon, delta). Swapping r for d in m coordinates and T rounds moves delta by at most
(1 + exp(epsilon)) m T / (24 s^2).

**What has to be on the grid.** The noise alone does not hide what the query carries below half a
grid unit: round it to the grid (widening the sensitivity by sqrt(m) units), as an owner does with
a gradient computed in plaintext; or, for a query computed under encryption, count what lies below
the grid as part of the error e_ckks and let the decryption's flooding noise, which is coarser
than the grid, mask it. The grid is therefore chosen finer than the flooding noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError

FINENESS_BITS = 30
"""log2 of (standard deviation / grid unit): what the grid costs in delta is below 1e-11
(`discretisation_delta`), and kernels take no coarser one (`parties.kernel.sheet`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseGrid:
    """All noise is an integer multiple of 2^-granularity_bits.

    Attributes:
        granularity_bits: log2(1 / unit) [bits], -1000 .. 1000; public and the same for all
            parties.

    Raises:
        ParameterError: granularity_bits is out of range.
    """

    granularity_bits: int

    def __post_init__(self) -> None:
        """Check the field."""
        if not -1000 <= self.granularity_bits <= 1000:
            raise ParameterError(
                f"granularity_bits={self.granularity_bits} is outside -1000 .. 1000"
            )

    @classmethod
    def for_scale(cls, scale: float) -> NoiseGrid:
        """The grid on which `scale` is between 2^30 and 2^31 units.

        Args:
            scale: standard deviation (or Laplace scale) of ONE share, >= 0; 0 gives 2^-30.
        """
        if not (math.isfinite(scale) and scale >= 0):
            raise ParameterError(f"scale={scale} is not a finite number >= 0")
        exponent = math.frexp(scale)[1] - 1 if scale > 0 else 0
        return cls(granularity_bits=FINENESS_BITS - exponent)

    @property
    def unit(self) -> float:
        """The distance of two neighbouring grid points."""
        return math.ldexp(1.0, -self.granularity_bits)

    def units(self, scale: float) -> int:
        """A scale in grid units, rounded **up** to an integer."""
        return math.ceil(Fraction(scale) * Fraction(2) ** self.granularity_bits)

    def to_float(self, integers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Grid values as float64, exactly.

        Raises:
            ParameterError: a value has more than 53 bits.
        """
        if integers.size and int(np.abs(integers).max()) > 1 << 53:
            raise ParameterError("a noise value has more than 53 bits; use a coarser grid")
        return np.ldexp(integers.astype(np.float64), -self.granularity_bits)


def discretisation_delta(*, units: float, shares: int, values: int, epsilon: float) -> float:
    """Bound on what the grid adds to delta; see the module's docstring.

    Args:
        units: standard deviation of one share [grid units], >= 1.
        shares: honest shares that are summed, P - t.
        values: noise values drawn per share, rounds times dimension.
        epsilon: the claimed epsilon.

    Returns:
        (1 + exp(epsilon)) values (tv_rounding + tv_convolution), at most 1.
    """
    if units < 1 or shares < 1 or values < 0:
        raise ParameterError(f"units={units}, shares={shares}, values={values}: need >= 1, 1, 0")
    rounding = 1.0 / (24.0 * shares * units**2)
    log_ratio = 5.0 * (shares - 1) * math.exp(-min((math.pi * units) ** 2, 745.0))
    convolution = math.expm1(min(log_ratio, 700.0))
    return min(1.0, (1.0 + math.exp(min(epsilon, 700.0))) * values * (rounding + convolution))
