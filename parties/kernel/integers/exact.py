"""Sums in integers, so that what one row adds is the same whatever its company.

In floating point, replacing one row changes the rounding of all other additions: over two million
rows a sum moves by 2e-5 more than one row's part, and a product of a matrix and a vector rounds a
row otherwise alone than in company. Here a row's part is rounded **toward zero** to a power-of-two
grid by arithmetic on this row alone, and integers are added. Of tables D, D' that differ in one
row, the sums then differ by exactly v - v', whatever the order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp

import numpy as np
from numpy.typing import NDArray

from protocols.privacy.laws import RandomSource
from protocols.privacy.laws.discrete import discrete_gaussian

Array = NDArray[np.float64]
Integers = NDArray[np.int64] | NDArray[np.object_]
FACTOR_BITS = 60
FINER = 20


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

    def blurred(self, bits: int, std: int, randomness: RandomSource) -> Integers:
        """Multiples of 2^-bits, each off by a Gaussian of std units; exact if the grid is as fine.

        Each plus a discrete Gaussian on the grid 2^-FINER of a unit, to the nearest: mean and
        variance of what it is off by depend on it by exp(-2 pi^2 std^2) < 2^-28, and by 2^-FINER.
        """
        if self.bits <= bits:
            return self.on(bits)
        noise = discrete_gaussian(std << FINER, self.units.size, randomness)
        return Exact(self.on(bits + FINER) + noise, bits + FINER).on(bits)

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
        """To 2^-61 of the largest, 2^-161 at most: of what has no rows, or no bound.

        What is no number counts as 0, and what is infinite as the largest: a refusal would tell.
        """
        values = np.nan_to_num(values)
        bits = 61 - max(frexp(float(np.abs(values).max(initial=0.0)))[1], -100)
        return cls(np.rint(np.ldexp(values, bits)).astype(np.int64), bits)


def joined(*parts: Exact) -> Exact:
    """One after the other, on the finest of their grids."""
    bits = max(part.bits for part in parts)
    return Exact(np.concatenate([part.on(bits) for part in parts]), bits)
