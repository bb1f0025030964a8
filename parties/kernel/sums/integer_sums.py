"""Parts of rows, each held to the bound that a certificate counts, added as integers.

A part is rounded toward zero to a grid by arithmetic on its row alone, and its integer norm is
held to the bound exactly (`integers.integer_rows`).

**What rounding costs.** Nothing where the certificate counts 2 |v|: magnitudes only shrink. Where
it counts a diameter below that, a part moves by less than one unit per coordinate, and float64
rounding of the part by much less than `MARGIN`, by which parts are shortened first. A contribution
is then rounded to the noise grid, of which these units are a fraction f <= 1: values on the finer
grid round apart by at most 1 - f units, so that both roundings together add at most f + 1 - f = 1
unit per coordinate, which `SumSetting.widened` counts.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import frexp

import numpy as np

from parties.kernel.integers import CHUNK, PART_BITS, blocks
from parties.kernel.integers.exact import Array, Exact, Integers
from parties.kernel.integers.integer_rows import (
    BLOCK,
    LIMB_BITS,
    LIMBS,
    MARGIN,
    ROW_BITS,
    TINY,
    IntegerRows,
    Rows,
    along,
    held,
    lengths,
    split,
)

SCORE_BITS = 34
"""Of a point, relative to its largest entry."""
overflows = np.errstate(over="ignore", invalid="ignore")
"""At points far out: what is not finite counts as zero."""


@overflows
def scores(own: IntegerRows, point: Array, rows: Rows = slice(None)) -> Array:
    """x w of some rows, shape (rows, outputs), each from its row and the point alone.

    point: w, shape (d, outputs), rounded to 2^-34 of its largest entry.
    """
    d, outputs = point.shape
    width = 53 - ROW_BITS - (d - 1).bit_length()
    exponent = frexp(float(np.abs(point).max(initial=0.0)))[1]
    whole = np.trunc(np.ldexp(point.T, SCORE_BITS - exponent))
    found: Array = np.zeros((1, outputs))
    x = own.x[rows]
    for k, limb in enumerate(split(whole, width, -(-SCORE_BITS // width))):
        found = found + (x @ limb.T) * 2.0 ** (width * k)
    return np.asarray(found * np.ldexp(1.0, exponent - SCORE_BITS - own.bits))


def row_scores(x: Array, weights: Array) -> Array:
    """x @ weights, each row by itself, shape (rows, outputs); weights: shape (d, outputs)."""
    return np.stack([along(x * column) for column in weights.T], axis=1)


def log_sum(terms: Array) -> Array:
    """ln sum exp of every row, by itself."""
    largest = terms.max(axis=1)
    found: Array = largest + np.log(along(np.exp(terms - largest[:, None])))
    return found


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

    @overflows
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

    @overflows
    def total(self, factors: Callable[[Rows], Array], weight: Array | None = None) -> Exact:
        """sum_i u_i x_i f_i^T, shape (d outputs,); factors: of some rows, shape (rows, outputs).

        weight: u on [0, 1], shape (n, 1), which comes after the clip.
        """

        def rounded(rows: slice) -> Array:
            return self.rounded(factors(rows), rows, None if weight is None else weight[rows])

        bits = self.bits + self._rows.bits
        return Exact(self._rows.products(rounded).ravel(), bits, self.limit)

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
    for block in blocks(rows, length):
        total.add(parts(block))
    return total.exact


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
