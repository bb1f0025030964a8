"""Public maps from a polynomial's coefficients in the subring to fresh elements of it.

What a refresh of an encrypted model applies on its way: sums over columns, times a public number,
copied into all columns.

Parties and coordinator apply the map to integers, and round. Their results add up to the map of the
sum to within half a unit each: less than one fresh error, and no level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class TraceMap:
    """value times the sums over columns; see `subring`.

    columns: B; period: k; value: any number.
    """

    columns: int
    period: int
    value: float

    def apply(self, coefficients: Sequence[int]) -> list[int]:
        """The 2k coefficients of the result, from those of the polynomial; rounded to nearest."""
        factor = Fraction(self.value) * self.columns
        top, bottom = factor.numerator, factor.denominator
        return [(2 * top * c + bottom) // (2 * bottom) for c in coefficients]
