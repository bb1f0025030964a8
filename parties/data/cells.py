"""From the cells of a table to features, batch by batch; what is wrong is said of the whole table.

    cell -> number or text       `numeric_cells`, `text_cells`
    -> value of its column       `Numbers`, `Categories`, `Labels`
    -> features of a row         `Features`, and `outcome_of` what is predicted

Each takes all batches, counts, and then says what is wrong.

Security: cells are private. Every message names columns, row numbers and counts only.
"""

from __future__ import annotations

import numbers
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.data.problems import Hint, Places, Problems
from parties.data.schema import (
    CategoricalColumn,
    Classes,
    Column,
    FloatArray,
    Label,
    NumericColumn,
    Scaling,
    Targets,
)
from protocols.documents import shown
from protocols.errors import SchemaError

Scale = Scaling | Literal["unit", "weight", "clamp"]
"""Of numbers, clamped to public bounds. "range": [low, high] -> [-1, 1]; "standard": (x - typical)
/ spread, within +-2; "unit": [low, high] -> [0, 1]; "weight": the same, and nothing below low is
taken; "clamp": x, within [low, high]."""
_MISSING, _UNKNOWN = -1, -2
_OBJECTS = "holds objects, not texts or numbers: convert or leave it out"
_REFUSED = "fill in or drop these rows, or let the schema say missing: typical or indicator"

# -- one cell -------------------------------------------------------------------------------------


def numeric_cells(cells: pd.Series[Any]) -> tuple[FloatArray, NDArray[np.bool_], str]:
    """Read the cells of a numeric column, each result of shape (rows,).

    Returns: float64, NaN where a cell is no number; true where a cell is there but is no number (a
    text); and "" or what the whole column holds instead of numbers ("dates").
    """
    nothing = np.full(len(cells), np.nan), np.zeros(len(cells), dtype=bool)
    kind = pd.api.types.infer_dtype(cells, skipna=True)
    if kind.startswith(("datetime", "date", "timedelta", "time", "period", "interval")):
        return *nothing, "dates"
    if kind == "complex":
        return *nothing, "complex numbers"
    if pd.api.types.is_numeric_dtype(cells) and not isinstance(cells.dtype, pd.CategoricalDtype):
        return cells.to_numpy(dtype=np.float64, na_value=np.nan), nothing[1], ""
    missing = cells.isna().to_numpy(dtype=bool)
    try:
        parsed = pd.to_numeric(cells.astype(object), errors="coerce")
        values = parsed.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError, OverflowError):  # objects, or integers beyond float64
        values = nothing[0]
    return values, np.isnan(values) & ~missing, ""


# What pandas takes for numbers and truth values in a column that has nothing else.
_NUMBER = re.compile(
    r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?\s*|[+-]?inf(?:inity)?", re.ASCII | re.IGNORECASE
)
_TRUTH = {text: word for word in ("True", "False") for text in (word, word.upper(), word.lower())}


def cell_text(value: object) -> str:
    """Return the text of one cell: "True" for True and TRUE, "1" for 1, 1.0 and "1.0".

    Privacy: it follows from this cell alone. A reader makes numbers of a column that has nothing
    else, so that one cell decides how all others are read; their texts may not depend on that.
    """
    if isinstance(value, (bool, np.bool_)):
        return str(value)
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            return _TRUTH.get(value, str(value))
        value = float(value)
    if isinstance(value, (numbers.Real, Decimal)):
        try:
            number = float(value)
        except OverflowError:
            return str(value)
        return str(int(number)) if number.is_integer() else repr(number)
    return str(value)


def text_cells(cells: pd.Series[Any]) -> tuple[NDArray[np.intp], list[str]]:
    """Read the cells of a categorical column.

    Returns: codes, int array, shape (rows,), -1 where a cell is missing; and the texts that the
    codes index, in order of appearance, not necessarily distinct (1 and "1" are both "1").

    Raises:
        TypeError: a cell holds a list or another unhashable object.
    """
    codes, values = pd.factorize(cells)
    if cells.dtype == object and pd.api.types.infer_dtype(cells, skipna=True) != "string":
        # True equals 1, Decimal("1.0") too: whichever came first would stand for all.
        codes, values = pd.factorize(cells.map(cell_text, na_action="ignore"))
    return codes, [cell_text(value) for value in values]


class _Texts:
    """Where the texts of cells stand in a public list; what is missing or not in it is counted."""

    def __init__(self, texts: Sequence[str], owner: str) -> None:
        self._places: dict[str, int] = {}
        for k, text in enumerate(texts):
            first = self._places.setdefault(cell_text(text), k)
            if first != k:
                raise SchemaError(
                    f"{owner} has {shown(texts[first])} and {shown(text)}, which are the same "
                    "number or truth value: name one of them otherwise, in the table too"
                )
        self._folded = {text.strip().casefold() for text in self._places}
        self.are_objects, self.is_spelling = False, True
        self.missing, self.unknown = Places(), Places()

    def of(self, text: str) -> int:
        """Its place, or _UNKNOWN."""
        return self._places.get(cell_text(text), _UNKNOWN)

    def take(self, cells: pd.Series[Any]) -> NDArray[np.intp]:
        """One batch: places in the list, _MISSING or _UNKNOWN, shape (rows,)."""
        try:
            codes, texts = text_cells(cells)
        except TypeError:
            self.are_objects = True
            return np.full(len(cells), _UNKNOWN)
        # The last entry is for code -1.
        known = [*(self._places.get(text, _UNKNOWN) for text in texts), _MISSING]
        found = np.array(known, dtype=np.intp)[codes]
        self.missing.take(cells.index, found == _MISSING)
        if self.unknown.take(cells.index, found == _UNKNOWN):
            others = (text for text in texts if text not in self._places)
            self.is_spelling &= all(text.strip().casefold() in self._folded for text in others)
        return found


# -- one column -----------------------------------------------------------------------------------


class _Cells:
    """One column, over all batches; counts of cells that were filled in, or moved into bounds.

    outside: not in the declared range; unknown: of no declared category.
    """

    def __init__(self, column: Column, cure: str) -> None:
        self.column, self._cure = column, cure
        self.filled = self.clamped = 0
        self.outside, self.unknown = Places(), Places()


class Numbers(_Cells):
    """A column of numbers; scale: None: as they are; cure: of missing cells that it refuses."""

    column: NumericColumn

    def __init__(self, column: NumericColumn, scale: Scale | None, cure: str) -> None:
        super().__init__(column, cure)
        self._scale = scale
        self._instead, self._hint = "", Hint()
        self._texts, self._infinite, self._missing = Places(), Places(), Places()
        self._below = Places()

    def take(self, cells: pd.Series[Any], out: FloatArray) -> None:
        """One batch, into `out`, zeros of shape (rows, features)."""
        column = self.column
        values, texts, instead = numeric_cells(cells)
        self._instead = self._instead or instead
        missing, infinite = np.isnan(values) & ~texts, np.isinf(values)
        if self._texts.take(cells.index, texts):
            self._hint.take(cells[texts])
        self._infinite.take(cells.index, infinite)
        self._missing.take(cells.index, missing)
        self.filled += int(missing.sum())
        values = np.where(missing | texts | infinite, column.typical or 0.0, values)
        out[:, 0] = values if self._scale is None else self._scaled(values, cells.index)
        if column.missing == "indicator":
            out[:, 1] = missing

    def _scaled(self, values: FloatArray, index: pd.Index[Any]) -> FloatArray:
        """(x - shift) / scale within public bounds; everything that leaves them is counted."""
        column, low, high = self.column, self.column.low, self.column.high
        if self._scale == "range" or self._scale == "standard":
            (shift, scale), most = column.affine(self._scale), column.bound(self._scale)
            least = -most
        elif self._scale == "clamp":
            shift, scale, least, most = 0.0, 1.0, low, high
        else:
            shift, scale, least, most = low, high - low, 0.0, 1.0
        if self._scale == "weight":
            self._below.take(index, values < low)
        outside = (values < low) | (values > high)
        self.outside.take(index, outside)
        with np.errstate(over="ignore"):  # an infinite quotient is clamped like any other
            values = (values - shift) / scale
        # Rounding alone may reach past the bound: count by the raw value.
        moved = np.abs(values) > most if self._scale == "standard" else outside
        self.clamped += int(moved.sum())
        return np.clip(values, least, most)

    def wrong(self) -> str:
        """Of all batches; empty where nothing is."""
        if self._instead:
            return f"holds {self._instead}: convert them to numbers or leave it out"
        words = []
        if self._texts.count:
            words.append(f"has text where a number is due in {self._texts}: {self._hint}")
        if self._infinite.count:
            words.append(
                f"is infinite or too large for a number in {self._infinite}: correct or drop these "
                "rows"
            )
        if self._missing.count and self.column.missing == "refuse":
            words.append(f"is missing (empty or NaN) in {self._missing}: {self._cure}")
        if self._below.count:
            words.append(f"is negative in {self._below}: a weight is 0 or more")
        return ", and ".join(words)


class Categories(_Cells):
    """A column of categories, one-hot; all zeros of no declared one."""

    def __init__(self, column: CategoricalColumn, cure: str) -> None:
        super().__init__(column, cure)
        self._texts = _Texts(column.categories, f"column {shown(column.name)}")
        self._instead = _MISSING if column.typical is None else self._texts.of(column.typical)
        self.unknown = self._texts.unknown

    def take(self, cells: pd.Series[Any], out: FloatArray) -> None:
        """As of `Numbers`."""
        places = self._texts.take(cells)
        missing = places == _MISSING
        self.filled += int(missing.sum())
        places[missing] = self._instead
        rows = np.flatnonzero(places >= 0)
        out[rows, places[rows]] = 1.0
        if self.column.missing == "indicator":
            out[:, -1] = missing

    def wrong(self) -> str:
        """As of `Numbers`."""
        if self._texts.are_objects:
            return _OBJECTS
        if self._texts.missing.count and self.column.missing == "refuse":
            return f"is missing in {self._texts.missing}: {self._cure}"
        return ""

    @property
    def unknown_places(self) -> str:
        """With a hint if only spaces or capitals differ."""
        hinted = "; they differ in spaces or capitals only" * self._texts.is_spelling
        return f"{self.unknown.listed}{hinted}"


# -- all columns ----------------------------------------------------------------------------------


class Features:
    """Columns of a table as features: numbers, one-hot categories; missing cells are filled in.

    scale: of numbers; None: they stay as they are. cure: of missing cells that a column refuses.
    """

    def __init__(
        self, columns: Sequence[Column], scale: Scale | None = None, cure: str = _REFUSED
    ) -> None:
        self.names = tuple(column.name for column in columns)
        self._rows, self._width = 0, sum(len(column.features) for column in columns)
        self._cells: list[Numbers | Categories] = [
            Numbers(column, scale, cure)
            if isinstance(column, NumericColumn)
            else Categories(column, cure)
            for column in columns
        ]

    def take(self, table: pd.DataFrame) -> FloatArray:
        """Features of one batch, shape (rows, features); zeros of a column that is not there."""
        found, start = np.zeros((len(table), self._width)), 0
        self._rows += len(table)
        for cells in self._cells:
            column, stop = cells.column, start + len(cells.column.features)
            if column.name in table.columns:
                cells.take(table[column.name], found[:, start:stop])
            start = stop
        return found

    def refuse(self, problems: Problems, strict: bool = False) -> None:
        """What is wrong with all batches goes to `problems`; strict: see `encode_shard`."""
        before = len(problems)
        for cells in self._cells:
            if words := cells.wrong():
                problems.add(f"column {shown(cells.column.name)} {words}")
        if strict and len(problems) == before and (what := list(self._outside())):
            problems.add(
                f"{'; '.join(what[:3])}{'; ...' if what[3:] else ''}: correct them, widen the "
                "schema, or leave strict off to have them clamped and counted"
            )

    def _outside(self) -> Iterator[str]:
        for cells in self._cells:
            of = f"of {self._rows} values of column {shown(cells.column.name)} are"
            if cells.outside.count:
                yield f"{cells.outside.count} {of} outside its range ({cells.outside.listed})"
            if isinstance(cells, Categories) and cells.unknown.count:
                yield f"{cells.unknown.count} {of} of no declared category ({cells.unknown_places})"

    def counts(self) -> dict[str, dict[str, Any]]:
        """Of all batches, by column; places: in words, see `shard.ClampCounts`."""
        found: dict[str, dict[str, Any]] = {
            "clamped": {c.column.name: c.clamped for c in self._cells},
            "outside": {c.column.name: c.outside.count for c in self._cells},
            "unknown": {c.column.name: c.unknown.count for c in self._cells},
            "filled": {c.column.name: c.filled for c in self._cells},
            "places": {
                c.column.name: c.unknown_places
                for c in self._cells
                if isinstance(c, Categories) and c.unknown.count
            },
        }
        return {kind: {n: v for n, v in own.items() if v} for kind, own in found.items()}


class Labels:
    """The column of a label: 1.0 positive, 0.0 negative; of several classes 1.0 for a row's own."""

    def __init__(self, label: Label | Classes) -> None:
        self._label, self.names = label, label.names
        self._texts = _Texts(label.values, f"label {shown(label.name)}")

    def take(self, table: pd.DataFrame) -> FloatArray:
        """Of one batch, shape (rows,) or (rows, classes); the first value where a cell is wrong."""
        label = self._label
        if label.name not in table.columns:
            return np.zeros(len(table))
        places = np.maximum(self._texts.take(table[label.name]), 0)
        return places.astype(float) if isinstance(label, Label) else np.eye(label.outputs)[places]

    def refuse(self, problems: Problems, strict: bool = False) -> None:
        """What is wrong with all batches goes to `problems`, strict or not."""
        label, texts = self._label, self._texts
        words = [_OBJECTS] if texts.are_objects else []
        if texts.missing.count and not words:
            words.append(f"is missing in {texts.missing}: drop these rows")
        if texts.unknown.count and not texts.are_objects:
            few = ", ".join(map(shown, label.values[:5]))
            none = f"none of the {len(label.values)} classes {few}{', …' * (len(label.values) > 5)}"
            if isinstance(label, Label):
                none = f"neither {shown(label.positive)} nor {shown(label.negative)}"
            hinted = "they differ in spaces or capitals only; " * texts.is_spelling
            words.append(f"is {none} in {texts.unknown}: {hinted}correct them or the schema")
        if words:
            problems.add(f"label {shown(label.name)} {', and '.join(words)}")

    def counts(self) -> dict[str, dict[str, Any]]:
        """None: a label is what the schema says, or refused."""
        return {}


def outcome_of(label: Label | Classes | Targets) -> Labels | Features:
    """What is predicted: a label, or numeric targets on [0, 1]."""
    if isinstance(label, Targets):
        return Features(label.columns, "unit", cure="drop these rows")
    return Labels(label)
