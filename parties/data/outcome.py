"""What is predicted: a label, classes or numeric targets; and what rows have beside features."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from parties.data.columns import FloatArray, Number, NumericColumn, Public, Width, once
from protocols.documents import Text, shown
from protocols.errors import SchemaError

MOST_CLASSES = 100


class Label(Public, frozen=True):
    """The column to predict: its name, and the texts of its positive (1) and negative (0) value."""

    name: Text
    positive: Text
    negative: Text

    def __post_init__(self) -> None:
        """Check the three texts."""
        Public.__post_init__(self)
        if self.positive == self.negative:
            raise SchemaError(
                f"positive={shown(self.positive)} of label {shown(self.name)} equals negative: "
                "a label needs two different values"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Its own, alone."""
        return (self.name,)

    @property
    def values(self) -> tuple[str, ...]:
        """The two texts, in the order of their codes."""
        return self.negative, self.positive


class Classes(Public, frozen=True):
    """The column to predict, of three or more values: its name, and their texts in order."""

    name: Text
    classes: Annotated[tuple[Text, ...], Meta(min_length=3, max_length=MOST_CLASSES)]

    def __post_init__(self) -> None:
        """Check the texts; every class is listed once."""
        Public.__post_init__(self)
        once(self.classes, f"class {{}} of label {shown(self.name)} is listed {{}} times")

    @property
    def names(self) -> tuple[str, ...]:
        """Its own, alone."""
        return (self.name,)

    @property
    def values(self) -> tuple[str, ...]:
        """The texts, in the order of their codes."""
        return self.classes

    @property
    def outputs(self) -> int:
        """K."""
        return len(self.classes)


class Targets(Public, frozen=True, rename={"columns": "targets"}):
    """Numeric columns with public ranges: what a regression predicts, in the order of the outputs.

    Each is scaled to [0, 1] by its range and clamped there: the range bounds the sensitivity, and
    predictions are mapped back by it.
    """

    columns: Annotated[tuple[NumericColumn, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        """Check the columns; every target is named once."""
        Public.__post_init__(self)
        once(self.names, "target {} is named {} times")
        for column in self.columns:
            if column.missing != "refuse":
                raise SchemaError(
                    f"missing={column.missing!r} of target {shown(column.name)}: an outcome is "
                    "never filled in, so leave it out"
                )

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def name(self) -> str:
        """All names, for titles."""
        return ", ".join(self.names)

    @property
    def outputs(self) -> int:
        """c."""
        return len(self.columns)

    @property
    def low(self) -> FloatArray:
        """Shape (c,) [data units]."""
        return np.array([column.low for column in self.columns])

    @property
    def width(self) -> FloatArray:
        """high - low, shape (c,) [data units]."""
        return np.array([column.high - column.low for column in self.columns])

    def to_data_units(self, scaled: FloatArray) -> FloatArray:
        """Predictions on the scale of [0, 1], shape (rows, c), in the data's units."""
        return self.low + scaled * self.width


class Weight(Public, frozen=True):
    """The column that says how much a row counts, from 0 to a public bound.

    Rows carry it over its bound, on [0, 1]: so no row moves a sum by more than one without weights
    does. Only ratios of weights matter to what is fitted.
    """

    name: Text
    bound: Width

    @property
    def column(self) -> NumericColumn:
        """What its cells are read as."""
        return NumericColumn(name=self.name, low=0.0, high=self.bound)


class Offset(Public, frozen=True):
    """The column that is added to a row's score, with coefficient 1, on a public range.

    log: the column holds exposures above 0, such as years at risk, whose logarithm is added; low
    and high are of exposures, then. Rows carry it less the middle of its range, `centre`.
    """

    name: Text
    low: Number
    high: Number
    log: bool = False

    def __post_init__(self) -> None:
        """Check the range; of exposures it is above 0."""
        Public.__post_init__(self)
        _ = self.column  # low < high
        if self.log and not self.low > 0:
            raise SchemaError(
                f"low={self.low:g} of offset {shown(self.name)} is not above 0, which a logarithm "
                "needs: give the least exposure"
            )

    @property
    def column(self) -> NumericColumn:
        """What its cells are read as."""
        return NumericColumn(name=self.name, low=self.low, high=self.high)

    def scores(self, cells: FloatArray) -> FloatArray:
        """What cells within the range add to scores."""
        return np.log(cells) if self.log else cells

    @property
    def _ends(self) -> FloatArray:
        return self.scores(np.array([self.low, self.high]))

    @property
    def centre(self) -> float:
        """Of what is added; the intercept takes it up."""
        return float(self._ends.mean())

    @property
    def reach(self) -> float:
        """Largest |added - centre|."""
        low, high = self._ends
        return float(high - low) / 2
