"""Sums over rows in integers, so that what one row adds is the same whatever its company.

In floating point, replacing one row changes the rounding of all other additions: over two million
rows a sum moves by 2e-5 more than one row's part, and a product of a matrix and a vector rounds a
row otherwise alone than in company. Here a row's part is rounded **toward zero** to a power-of-two
grid by arithmetic on this row alone, its integer norm is held to the bound exactly, and integers
are added. Of tables D, D' that differ in one row, the sums then differ by exactly v - v', whatever
the order of the rows.

**How.** Elementwise + - * / and sqrt are rounded alike wherever an element stands (IEEE 754), and
so are sums in the fixed order of `along`. A product of integer matrices in float64 is exact,
whatever the order and width of a machine's additions, as long as no sum of magnitudes exceeds 2^53:
`IntegerRows` has entries within 2^31, and multiplies them by limbs that leave room.

**What rounding costs.** Nothing where the certificate counts 2 |v|: magnitudes only shrink. Where
it counts a diameter below that, a part moves by less than one unit per coordinate, and float64
rounding of the part by much less than `MARGIN`, by which parts are shortened first. A contribution
is then rounded to the noise grid, of which these units are a fraction f <= 1: values on the finer
grid round apart by at most 1 - f units, so that both roundings together add at most f + 1 - f = 1
unit per coordinate, which `SumSetting.widened` counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from math import frexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.errors import DataError

Array = NDArray[np.float64]
Integers = NDArray[np.int64] | NDArray[np.object_]
Rows = slice | NDArray[np.intp]
ROW_BITS = 31
"""Of the largest entry of a row: its squared norm fits int64."""
LIMB_BITS, BLOCK = 13, 1 << 9
"""Of a factor, and rows that are multiplied at once: 31 + 13 + 9 bits are 53."""
LIMBS = 3
FLUSH = 1 << 17
"""Rows that are added in int64, with a chunk more: 2^9.6 blocks, each below 2^53."""
SCORE_BITS = 34
"""Of a point, relative to its largest entry."""
CHUNK = 1 << 18
"""Values of parts that are held at once."""
PART_BITS = 42
"""Of the bound of a part: the sum of a block is exact in float64."""
REST_BITS = 38
"""Of a part, below PART_BITS: a block of CHUNK rows fits int64."""
FACTOR_BITS = 60
MARGIN = 1 - 2.0**-40
TINY = 1e-290
_overflows = np.errstate(over="ignore", invalid="ignore")
"""At points far out: what is not finite counts as zero."""


@dataclass(frozen=True, slots=True, eq=False)
class Exact:
    """Numbers units 2^-bits; units: int64 or, where these could overflow, Python's integers.

    most: norm that the part of every row was held to, in the same units; None: not known.
    """

    units: Integers
    bits: int
    most: int | None = None

    @property
    def values(self) -> Array:
        """In float64, each rounded once."""
        return np.ldexp(self.units.astype(np.float64), -self.bits)

    def on(self, bits: int) -> Integers:
        """The nearest multiples of 2^-bits, as integers; halves go up."""
        shift = self.bits - bits
        if shift <= 0:
            return self.units.astype(object) << -shift
        units = self.units if shift < FACTOR_BITS else self.units.astype(object)
        found: Integers = (units + (1 << (shift - 1))) >> shift
        return found

    def times(self, factor: float | Array) -> Exact:
        """Each times a factor >= 0 that is public, which is rounded down to 2^-60 of the largest.

        A factor scales differences of sums, and no rounding comes on top.
        """
        bits = FACTOR_BITS - frexp(float(np.max(factor)))[1]
        whole = np.floor(np.ldexp(np.asarray(factor, np.float64), bits)).astype(np.int64)
        most = None if self.most is None else self.most * int(whole.max())
        return Exact(self.units.astype(object) * whole.astype(object), self.bits + bits, most)

    def __neg__(self) -> Exact:
        return Exact(-self.units, self.bits, self.most)

    @classmethod
    def of(cls, values: Array) -> Exact:
        """As they are, to 2^-61 of the largest: of what has no rows, or no bound."""
        if not np.isfinite(values).all():
            raise DataError("a value of a contribution is not a finite number")
        bits = 61 - frexp(float(np.abs(values).max(initial=0.0)))[1]
        return cls(np.rint(np.ldexp(values, bits)).astype(np.int64), bits)


def joined(*parts: Exact) -> Exact:
    """One after the other, on the finest of their grids."""
    bits = max(part.bits for part in parts)
    return Exact(np.concatenate([part.on(bits) for part in parts]), bits)


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


def row_scores(x: Array, weights: Array) -> Array:
    """x @ weights, each row by itself, shape (rows, outputs); weights: shape (d, outputs)."""
    return np.stack([along(x * column) for column in weights.T], axis=1)


def log_sum(terms: Array) -> Array:
    """ln sum exp of every row, by itself."""
    largest = terms.max(axis=1)
    found: Array = largest + np.log(along(np.exp(terms - largest[:, None])))
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


class PartSum:
    """Adds parts of rows, each of `length` numbers and of norm at most `bound`.

    bound: what a row adds at most, weights included; rows: of all blocks together, public.
    """

    def __init__(self, bound: Fraction, norm: int, length: int, rows: int) -> None:
        self.bits = PART_BITS - frexp(float(bound))[1]
        self.limit = int(bound * Fraction(2) ** self.bits)
        self._norm = norm
        room = rows * self.limit < 1 << 62
        self._total: Integers = np.zeros(length, np.int64 if room else object)
        self._block = min(BLOCK, max(1, CHUNK // length))

    def add(self, parts: Array, weight: Array | None = None) -> None:
        """Of some rows, shape (rows, length); one that is not finite counts as zero.

        weight: of the parts in the bound, at most 1 of it, after the clip.
        """
        for start in range(0, len(parts), self._block):
            own = slice(start, start + self._block)
            whole = self.rounded(parts[own], None if weight is None else weight[own])
            self._total = self._total + whole.sum(axis=0).astype(np.int64)

    @_overflows
    def rounded(self, parts: Array, weight: Array | None = None) -> Array:
        """Integers, each row from its own part alone."""
        scaled = parts * np.ldexp(MARGIN, self.bits)
        finite = np.isfinite(scaled).all(axis=1, keepdims=True)
        if not finite.all():
            scaled = np.where(finite, scaled, 0.0)
        long = lengths(scaled, self._norm)[:, None]
        scaled *= np.minimum(1.0, self.limit * MARGIN / np.maximum(long, TINY))
        if weight is not None:
            scaled *= weight
        return held(np.trunc(scaled, out=scaled), float(self.limit), self._norm)

    @property
    def exact(self) -> Exact:
        """The sum so far."""
        return Exact(self._total, self.bits, self.limit)


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
        return _blocks(*self.x.shape)

    @_overflows
    def scores(self, point: Array, rows: Rows = slice(None)) -> Array:
        """x w of some rows, shape (rows, outputs), each from its row and the point alone.

        point: w, shape (d, outputs), rounded to 2^-34 of its largest entry.
        """
        d, outputs = point.shape
        width = 53 - ROW_BITS - (d - 1).bit_length()
        exponent = frexp(float(np.abs(point).max(initial=0.0)))[1]
        whole = np.trunc(np.ldexp(point.T, SCORE_BITS - exponent))
        found: Array = np.zeros((1, outputs))
        x = self.x[rows]
        for k, limb in enumerate(_split(whole, width, -(-SCORE_BITS // width))):
            found = found + (x @ limb.T) * 2.0 ** (width * k)
        scores: Array = found * np.ldexp(1.0, exponent - SCORE_BITS - self.bits)
        return scores

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
        for k, limb in enumerate(_split(factors.T, LIMB_BITS, LIMBS)):
            sums = limb[:, :whole].reshape(m, -1, BLOCK).transpose(1, 0, 2) @ blocks
            found[k] = sums.astype(np.int64).sum(axis=0)
            found[k] += (limb[:, whole:] @ x[whole:]).astype(np.int64)
        return found


class Factors:
    """How x_i f_i^T is bounded, of norm at most `bound` each: f_i is rounded and held to it.

    weight: what factors are multiplied by first, public.
    """

    def __init__(self, rows: IntegerRows, bound: Fraction, norm: int, weight: float = 1.0) -> None:
        self._rows, self._norm = rows, norm
        # At the bound, factors of the longest row have 34 bits; five more are for shorter rows, of
        # which those below a 32nd of its length may not reach the bound.
        self.bits = LIMB_BITS * LIMBS - 5 - frexp(float(bound))[1] - (ROW_BITS - rows.bits)
        self.limit = int(bound * Fraction(2) ** (self.bits + rows.bits))
        self._most = _quotients(self.limit, rows.lengths)[:, None]
        self._scale = float(np.ldexp(weight, self.bits))

    def total(self, factors: Callable[[Rows], Array], weight: Array | None = None) -> Exact:
        """sum_i u_i x_i f_i^T, shape (d outputs,); factors: of some rows, shape (rows, outputs).

        weight: u on [0, 1], shape (n, 1), which comes after the clip.
        """

        def rounded(rows: slice) -> Array:
            return self.rounded(factors(rows), rows, None if weight is None else weight[rows])

        bits = self.bits + self._rows.bits
        return Exact(self._rows.products(rounded).ravel(), bits, self.limit)

    @_overflows
    def rounded(self, factors: Array, rows: Rows, weight: Array | None = None) -> Array:
        """Integers f_i, each from its own row alone."""
        most = self._most[rows]
        scaled = factors * self._scale
        if scaled.shape[1] == 1:
            scaled = np.where(np.isfinite(scaled), np.clip(scaled, -most, most), 0.0)
        else:
            scaled = np.where(np.isfinite(scaled).all(axis=1, keepdims=True), scaled, 0.0)
            long = lengths(scaled, self._norm)[:, None]
            scaled *= np.minimum(1.0, most * MARGIN / np.maximum(long, TINY))
        if weight is not None:
            scaled *= weight
        np.trunc(scaled, out=scaled)
        return scaled if scaled.shape[1] == 1 else held(scaled, most[:, 0], self._norm)


def summed(
    parts: Callable[[slice], Array], rows: int, length: int, bound: Fraction, norm: int = 2
) -> Exact:
    """Of all rows, block by block; parts: of a block, shape (rows, length)."""
    total = PartSum(bound, norm, length, rows)
    for block in _blocks(rows, length):
        total.add(parts(block))
    return total.exact


def added(parts: Callable[[slice], Array], rows: int, length: int, largest: float) -> Exact:
    """Sums of numbers up to `largest`, 80 bits of it each, without a clip; those beyond are cut.

    As `summed` for what no certificate bounds row by row, to float64's own precision.
    """
    bits = PART_BITS - frexp(largest)[1]
    high: Integers = np.zeros(length, object)
    low: Integers = np.zeros(length, object)
    for block in _blocks(rows, length):
        scaled = np.clip(np.ldexp(parts(block), bits), -(2.0**PART_BITS), 2.0**PART_BITS)
        whole = np.trunc(scaled)
        rest = np.trunc(np.ldexp(scaled - whole, REST_BITS))
        high, low = (
            total + each.astype(np.int64).sum(axis=0).astype(object)
            for total, each in ((high, whole), (low, rest))
        )
    return Exact((high << REST_BITS) + low, bits + REST_BITS)


def _blocks(rows: int, width: int) -> Iterator[slice]:
    step = max(1, CHUNK // max(1, width))
    return (slice(start, start + step) for start in range(0, max(1, rows), step))


def _split(whole: Array, width: int, count: int) -> list[Array]:
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


def _quotients(limit: int, divisors: Array) -> Array:
    """floor(limit / n) of integers n below 2^33, at most 2^39 - 1, exactly; limit below 2^72."""
    n = np.maximum(divisors, 1.0).astype(np.int64)
    found = np.minimum(float(limit) / n, 2.0 ** (LIMB_BITS * LIMBS) - 2).astype(np.int64) + 1
    half, low = LIMB_BITS * LIMBS // 2, (1 << (LIMB_BITS * LIMBS // 2)) - 1
    for _ in range(3):  # one unit above, and a rounding of one unit at most
        # found n = above 2^19 + below, limbs that fit int64.
        carry = (found & low) * n
        above, below = (found >> half) * n + (carry >> half), carry & low
        longer = (above > limit >> half) | ((above == limit >> half) & (below > limit & low))
        found -= longer
    whole: Array = found.astype(np.float64)
    return whole
