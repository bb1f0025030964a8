"""Columns that rows are made of: public ranges and categories, and what becomes of empty cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from protocols.documents import Checked, Text, shown
from protocols.errors import SchemaError

FloatArray = NDArray[np.float64]
MAX_MAGNITUDE = 1e150
"""Bound on every number of a schema, so that squares and quotients of them stay finite."""
MIN_WIDTH = 1 / MAX_MAGNITUDE
Number = Annotated[float, Meta(ge=-MAX_MAGNITUDE, le=MAX_MAGNITUDE)]
Width = Annotated[float, Meta(ge=MIN_WIDTH, le=MAX_MAGNITUDE)]
Scaling = Literal["range", "standard"]
CLAMP_SPREADS = 2.0
"""Where "standard" scaling clamps, in spreads on either side of the typical value."""
Missing = Literal["refuse", "typical", "indicator"]
"""What becomes of a cell that is empty: its row is refused; the public typical value takes its
place; or that as well, and a feature "name=missing" beside it says so."""


class Public(Checked, frozen=True):
    """A part of the schema. Raises SchemaError: a field is out of range; the message names it."""

    REFUSAL: ClassVar[type[SchemaError]] = SchemaError


class NumericColumn(Public, frozen=True, tag_field="kind", tag="numeric"):
    """A column of numbers with a public range.

    name: column name in the table.
    low, high: range that values are expected in, low < high [the column's own unit].
    typical, spread: public centre and scale of "standard" scaling, both or neither, spread > 0
        [the column's own unit]. One significant digit is enough.
    missing: of empty cells. All but "refuse" need a typical value within the range.
    """

    name: Text
    low: Number
    high: Number
    typical: Number | None = None
    spread: Width | None = None
    missing: Missing = "refuse"

    def __post_init__(self) -> None:
        """Check the fields one by one, then against each other."""
        Public.__post_init__(self)
        owner = f"column {shown(self.name)}"
        if self.high - self.low < MIN_WIDTH:
            raise SchemaError(
                f"low={self.low:g} of {owner} is not below high={self.high:g}: "
                "give a range with low < high"
            )
        fits = self.typical is not None and self.low <= self.typical <= self.high
        if self.missing != "refuse" and not fits:
            raise SchemaError(
                f"missing={self.missing!r} of {owner} needs a typical value within "
                f"[{self.low:g}, {self.high:g}], not {self.typical}: it fills empty cells"
            )
        if (self.typical is None) != (self.spread is None) and self.missing == "refuse":
            alone = "typical" if self.spread is None else "spread"
            raise SchemaError(f"{owner} has {alone} only: give typical and spread, or neither")

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that this column expands to: its own, and "name=missing"."""
        return (self.name, *_indicator(self))

    def affine(self, scaling: Scaling) -> tuple[float, float]:
        """Return (shift, scale) of the scaled value (x - shift) / scale, before clamping."""
        if scaling == "standard" and self.typical is not None and self.spread is not None:
            return self.typical, self.spread
        return (self.low + self.high) / 2, (self.high - self.low) / 2

    def bound(self, scaling: Scaling) -> float:
        """Return the bound on |scaled value| after clamping: 1, or 2 for "standard"."""
        return CLAMP_SPREADS if scaling == "standard" else 1.0

    def affines(self, scaling: Scaling) -> list[tuple[float, float]]:
        """`affine` of each feature; nothing of an indicator is scaled."""
        return [self.affine(scaling), *((0.0, 1.0) for _ in _indicator(self))]

    def bounds(self, scaling: Scaling) -> list[float]:
        """Bound on |feature| of each feature; an indicator is 0 or 1."""
        return [self.bound(scaling), *(1.0 for _ in _indicator(self))]


class CategoricalColumn(Public, frozen=True, tag_field="kind", tag="categorical"):
    """A column with a public list of categories, one feature "name=category" in {0, 1} for each.

    name: column name in the table.
    categories: distinct, non-empty texts, at least one. A boolean cell reads as "True" or
        "False", a whole number without a decimal point.
    missing: of empty cells; "indicator" is one category more, "name=missing".
    typical: the category that "typical" fills in.
    """

    name: Text
    categories: Annotated[tuple[Text, ...], Meta(min_length=1)]
    missing: Missing = "refuse"
    typical: Text | None = None

    def __post_init__(self) -> None:
        """Check the fields; every category is listed once."""
        Public.__post_init__(self)
        is_due = self.missing == "typical"
        if (self.typical is not None) != is_due or (is_due and self.typical not in self.categories):
            raise SchemaError(
                f"missing={self.missing!r} of column {shown(self.name)} with typical="
                f"{shown(self.typical)}: give one of the categories as typical value with "
                "missing='typical', and none otherwise"
            )
        once(self.categories, f"category {{}} of column {shown(self.name)} is listed {{}} times")

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the one-hot features, in the order of the categories."""
        named = tuple(f"{self.name}={category}" for category in self.categories)
        return (*named, *_indicator(self))

    def affines(self, scaling: Scaling) -> list[tuple[float, float]]:
        """Nothing is scaled."""
        return [(0.0, 1.0) for _ in self.features]

    def bounds(self, scaling: Scaling) -> list[float]:
        """Of every feature."""
        return [1.0 for _ in self.features]


def _indicator(column: NumericColumn | CategoricalColumn) -> tuple[str, ...]:
    return (f"{column.name}=missing",) if column.missing == "indicator" else ()


Column = NumericColumn | CategoricalColumn
Columns = Annotated[tuple[Column, ...], Meta(min_length=1)]


def once(names: Iterable[str], words: str) -> None:
    """Refuse a repeated name; words: with a place for the name and one for the count."""
    for name, count in Counter(names).items():
        if count > 1:
            raise SchemaError(f"{words.format(shown(name), count)}: keep one, or rename the other")
