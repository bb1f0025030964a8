"""From the cells of a column to numbers, batch by batch; what is wrong is said of the whole column.

Security: cells are private. Every message names columns, row numbers and counts only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.data.columns import CategoricalColumn, Column, FloatArray, NumericColumn
from parties.data.hints import Hint, only_spelling
from parties.data.outcome import Classes, Label
from parties.data.problems import Places, Problems
from parties.data.table import cell_text, codes_of, numeric_cells, text_cells
from protocols.documents import shown

Mask = NDArray[np.bool_]
_OBJECTS = "holds objects, not texts or numbers: convert or leave it out"


class Numbers:
    """A column of numbers.

    cure: of missing cells that the column refuses; filled: cells that it fills in, so far; present:
    whether the table has the column.
    """

    def __init__(self, column: NumericColumn, cure: str) -> None:
        self.column, self._cure = column, cure
        self.filled, self.present = 0, False
        self._instead, self._hint = "", Hint()
        self._texts, self._infinite, self._missing = Places(), Places(), Places()

    def take(self, cells: pd.Series[Any], out: FloatArray) -> None:
        """One batch, into `out`, shape (rows, features)."""
        column, self.present = self.column, True
        values, texts, instead = numeric_cells(cells)
        self._instead = self._instead or instead
        missing, infinite = np.isnan(values) & ~texts, np.isinf(values)
        if self._texts.take(cells.index, texts):
            self._hint.take(cells[texts])
        self._infinite.take(cells.index, infinite)
        self._missing.take(cells.index, missing)
        self.filled += int(missing.sum())
        out[:, 0] = np.where(missing | texts | infinite, column.typical or 0.0, values)
        if column.missing == "indicator":
            out[:, 1] = missing

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
        return ", and ".join(words)


class Categories:
    """A column of categories, one-hot; of no declared one all zeros. Otherwise as `Numbers`.

    unknown: cells of no declared category.
    """

    def __init__(self, column: CategoricalColumn, cure: str) -> None:
        self.column, self._cure = column, cure
        self.filled, self.present = 0, False
        self.unknown, self._missing = Places(), Places()
        self._are_objects, self._is_spelling = False, True
        self._position = codes_of(column.categories, f"column {shown(column.name)}")

    def take(self, cells: pd.Series[Any], out: FloatArray) -> None:
        """As of `Numbers`."""
        column, position, self.present = self.column, self._position, True
        try:
            codes, texts = text_cells(cells)
        except TypeError:
            self._are_objects = True
            return
        missing = codes < 0
        self._missing.take(cells.index, missing)
        self.filled += int(missing.sum())
        instead = -1 if column.typical is None else position.get(cell_text(column.typical), -1)
        # The last entry is for code -1.
        known = [*(position.get(text, -1) for text in texts), instead]
        index = np.array(known, dtype=np.intp)[codes]
        rows = np.flatnonzero(index >= 0)
        out[rows, index[rows]] = 1.0
        if self.unknown.take(cells.index, (index < 0) & ~missing):
            others = [text for text in texts if text not in position]
            self._is_spelling &= only_spelling(others, position)
        if column.missing == "indicator":
            out[:, -1] = missing

    def wrong(self) -> str:
        """As of `Numbers`."""
        if self._are_objects:
            return _OBJECTS
        if self._missing.count and self.column.missing == "refuse":
            return f"is missing in {self._missing}: {self._cure}"
        return ""

    @property
    def unknown_places(self) -> str:
        """With a hint if only spaces or capitals differ."""
        hinted = "; they differ in spaces or capitals only" * self._is_spelling
        return f"{self.unknown.listed}{hinted}"


class Labels:
    """The column of a label: 1.0 positive, 0.0 negative; of several classes 1.0 for a row's own."""

    def __init__(self, label: Label | Classes) -> None:
        self.label = label
        places = codes_of(label.values, f"label {shown(label.name)}")
        self._code = {text: float(code) for text, code in places.items()}
        self._are_objects, self._is_spelling = False, True
        self._missing, self._odd = Places(), Places()

    def take(self, cells: pd.Series[Any]) -> FloatArray:
        """Shape (rows,) or (rows, classes); zeros where a cell is wrong."""
        try:
            codes, texts = text_cells(cells)
        except TypeError:
            self._are_objects = True
            codes, texts = np.full(len(cells), -1), []
        found = np.array([*(self._code.get(text, np.nan) for text in texts), 0.0])[codes]
        odd = np.isnan(found)
        self._missing.take(cells.index, codes < 0)
        if self._odd.take(cells.index, odd):
            others = [text for text in texts if text not in self._code]
            self._is_spelling &= only_spelling(others, self._code)
        found[odd] = 0.0
        label = self.label
        return found if isinstance(label, Label) else np.eye(label.outputs)[found.astype(np.intp)]

    def refuse(self, problems: Problems) -> None:
        """What is wrong with all batches goes to `problems`."""
        name, words = f"label {shown(self.label.name)}", []
        if self._are_objects:
            problems.add(f"{name} {_OBJECTS}")
            return
        if self._missing.count:
            words.append(f"is missing in {self._missing}: drop these rows")
        if self._odd.count:
            cure = "correct them or the schema"
            if self._is_spelling:
                cure = f"they differ in spaces or capitals only; {cure}"
            words.append(f"is {_none_of(self.label)} in {self._odd}: {cure}")
        if words:
            problems.add(f"{name} {', and '.join(words)}")


def _none_of(label: Label | Classes) -> str:
    if isinstance(label, Label):
        return f"neither {shown(label.positive)} nor {shown(label.negative)}"
    few = ", ".join(map(shown, label.classes[:5]))
    return f"none of the {label.outputs} classes {few}{', …' if label.outputs > 5 else ''}"


def cells_of(columns: Sequence[Column], cure: str) -> list[Numbers | Categories]:
    """What reads each column."""
    return [
        Numbers(column, cure) if isinstance(column, NumericColumn) else Categories(column, cure)
        for column in columns
    ]
