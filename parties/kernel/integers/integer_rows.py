"""Rows as integers, each held to a norm exactly, and products of them that are exact.

Elementwise + - * / and sqrt are rounded alike wherever an element stands (IEEE 754), and so are
sums in the fixed order of `along`. A product of integer matrices in float64 is exact, whatever the
order and width of a machine's additions, as long as no sum of magnitudes exceeds 2^53: entries of
`IntegerRows` are within 2^31, and are multiplied by limbs that leave room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from fractions import Fraction
from math import frexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parties.kernel.integers import blocks
from parties.kernel.integers.exact import Array

Rows = slice | NDArray[np.intp]
ROW_BITS = 31
"""Of the largest entry of a row: its squared norm fits int64."""
LIMB_BITS, BLOCK = 13, 1 << 9
"""Of a factor, and rows that are multiplied at once: 31 + 13 + 9 bits are 53."""
LIMBS = 3
FLUSH = 1 << 17
"""Rows that are added in int64, with a chunk more: 2^9.6 blocks, each below 2^53."""
MARGIN = 1 - 2.0**-40
TINY = 1e-290


def along(terms: Array) -> Array:
    """Sums over the last axis, in an order that its length alone decides; overwrites `terms`."""
    width = terms.shape[-1]
    if not width:
        return np.zeros(terms.shape[:-1])
    while width > 1:
        half = width // 2
        terms[..., :half] += terms[..., width - half : width]
        width -= half
    found: Array = terms[..., 0]
    return found


def lengths(parts: Array, norm: int) -> Array:
    """Norm of every row, by itself."""
    return along(np.abs(parts)) if norm == 1 else np.sqrt(along(parts * parts))


def held(whole: Array, limit: Array | float, norm: int) -> Array:
    """Integers, shape (rows, length), each row's norm <= limit exactly; longer rows shrink.

    limit: of all rows, or of each. A row whose length in float64 is below the limit by more than
    its rounding error is known to be within; any other is measured in Python's integers.
    """
    room = 1 - (whole.shape[1] + 8) * 2.0**-52
    limits = np.broadcast_to(np.asarray(limit, np.float64), len(whole))
    unsure = np.flatnonzero(~(lengths(whole, norm) <= limits * room))
    for row in unsure:
        own = [int(v) for v in whole[row]]
        while not fits(own, int(limits[row]), norm):
            # One unit and 2^-30 of it less, toward zero.
            own = [(abs(v) - 1 - (abs(v) >> 30)) * (1 if v > 0 else -1) if v else 0 for v in own]
        whole[row] = own
    return whole


def fits(part: list[int], limit: int, norm: int) -> bool:
    """Whether integers have at most that norm, exactly."""
    if norm == 1:
        return sum(map(abs, part)) <= limit
    return sum(v * v for v in part) <= limit * limit


class IntegerRows:
    """Rows on a grid, for products that are exact.

    x: shape (n, d); a row longer than `bound`, which is public, is shortened to it; norm: that of
    contributions.
    """

    def __init__(self, x: Array, bound: float, norm: int = 2) -> None:
        self.bits = ROW_BITS - frexp(bound)[1]
        limit = float(int(Fraction(bound) * Fraction(2) ** self.bits))
        self.x: Array = np.empty(x.shape)
        self.lengths: Array = np.empty(len(x))
        for rows in self.blocks():
            whole = x[rows] * np.ldexp(1.0, self.bits)
            long = lengths(whole, 2)[:, None]
            whole *= np.minimum(1.0, limit * MARGIN / np.maximum(long, TINY))
            self.x[rows] = held(np.trunc(whole, out=whole), limit, 2)
            self.lengths[rows] = _lengths(self.x[rows].astype(np.int64), norm)

    def only(self, rows: Rows) -> IntegerRows:
        """Some of them."""
        found = copy(self)
        found.x, found.lengths = self.x[rows], self.lengths[rows]
        return found

    def blocks(self) -> Iterator[slice]:
        """Parts that fit a cache; whatever they are, results are the same."""
        return blocks(*self.x.shape)

    def products(self, factors: Callable[[slice], Array]) -> NDArray[np.object_]:
        """X^T F, exactly, shape (d, m); factors: of some rows, integers within 2^39, (rows, m)."""
        total: Any = 0
        held_back: Any = 0
        since = 0
        for rows in self.blocks():
            held_back = held_back + self._limbs(factors(rows), rows)
            since += rows.stop - rows.start
            if since >= FLUSH or rows.stop >= len(self.x):
                total, held_back, since = total + held_back.astype(object), 0, 0
        shifts = [1 << (LIMB_BITS * k) for k in range(LIMBS)]
        found: NDArray[np.object_] = sum(t * s for t, s in zip(total, shifts, strict=True)).T
        return found

    def _limbs(self, factors: Array, rows: slice) -> NDArray[np.int64]:
        """The same, of every limb of the factors, shape (LIMBS, m, d)."""
        x, m = self.x[rows], factors.shape[1]
        whole = len(x) - len(x) % BLOCK
        blocks = x[:whole].reshape(-1, BLOCK, x.shape[1])
        found = np.empty((LIMBS, m, x.shape[1]), np.int64)
        for k, limb in enumerate(split(factors.T, LIMB_BITS, LIMBS)):
            sums = limb[:, :whole].reshape(m, -1, BLOCK).transpose(1, 0, 2) @ blocks
            found[k] = sums.astype(np.int64).sum(axis=0)
            found[k] += (limb[:, whole:] @ x[whole:]).astype(np.int64)
        return found


def split(whole: Array, width: int, count: int) -> list[Array]:
    """Limbs of integers, lowest first; each is below 2^width in size, signed as its number.

    The last one, too, of integers within 2^(count width).
    """
    up, down, limbs = 2.0**width, 2.0**-width, []
    for _ in range(count - 1):
        above = np.trunc(whole * down)
        limbs.append(whole - above * up)
        whole = above
    return [*limbs, whole]


def _lengths(x: NDArray[np.int64], norm: int) -> Array:
    """Of rows of integers, rounded up to integers, exactly."""
    if norm == 1:
        found = np.abs(x).sum(axis=1)
    else:
        square = np.einsum("ij,ij->i", x, x)
        found = np.ceil(np.sqrt(square.astype(np.float64))).astype(np.int64)
        found += found * found < square
    up: Array = found.astype(np.float64)
    return up
