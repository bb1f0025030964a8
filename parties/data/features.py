"""What a schema makes of a table, batch by batch: features, outcome, weights and offsets.

Each of them takes all batches, and then says what is wrong with the whole table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from parties.data.cells import Categories, Labels, Numbers, cells_of
from parties.data.columns import Column, FloatArray, NumericColumn, Scaling
from parties.data.outcome import Classes, Label, Targets, Weight
from parties.data.problems import Places, Problems
from parties.data.schema import Schema
from parties.data.shard import ClampCounts
from protocols.documents import shown

_REFUSED = "fill in or drop these rows, or let the schema say missing: typical or indicator"


class Features:
    """Columns of a table as features: numbers, one-hot categories; missing cells are filled in.

    scaling: numeric columns are scaled and clamped by public numbers; None: they stay as they are.
    cure: of missing cells that a column refuses.
    """

    def __init__(
        self, columns: Sequence[Column], scaling: Scaling | None = None, cure: str = _REFUSED
    ) -> None:
        self._scaling = scaling
        self._cells = cells_of(columns, cure)
        self.names = tuple(column.name for column in columns)
        self._rows, self._width = 0, sum(len(column.features) for column in columns)
        self._clamped, self._outside = (dict.fromkeys(self.names, 0) for _ in range(2))

    def take(self, table: pd.DataFrame) -> FloatArray:
        """Features of one batch, shape (rows, features); zeros of a column that is not there."""
        found, start = np.zeros((len(table), self._width)), 0
        self._rows += len(table)
        for cells in self._cells:
            column = cells.column
            out = found[:, start : start + len(column.features)]
            start += len(column.features)
            if column.name in table.columns:
                cells.take(table[column.name], out)
                if self._scaling and isinstance(column, NumericColumn):
                    out[:, 0] = self._scaled(column, self._scaling, out[:, 0].copy())
        return found

    def _scaled(self, column: NumericColumn, scaling: Scaling, values: FloatArray) -> FloatArray:
        outside = np.count_nonzero((values < column.low) | (values > column.high))
        bound, (shift, scale) = column.bound(scaling), column.affine(scaling)
        with np.errstate(over="ignore"):  # an infinite quotient is clamped like any other
            values = (values - shift) / scale
        # Rounding alone may reach past the bound of "range" scaling: count by the raw value.
        moved = outside if scaling == "range" else int((np.abs(values) > bound).sum())
        self._outside[column.name] += outside
        self._clamped[column.name] += moved
        return np.clip(values, -bound, bound)

    def refuse(self, problems: Problems, strict: bool = False) -> None:
        """What is wrong with all batches goes to `problems`; strict: see `encode_shard`."""
        before = len(problems)
        for cells in self._cells:
            if words := cells.wrong():
                problems.add(f"column {shown(cells.column.name)} {words}")
        if strict and len(problems) == before and all(cells.present for cells in self._cells):
            _refuse_outside(self.counts, problems)

    @property
    def counts(self) -> ClampCounts:
        """Of all batches."""
        unknown = {
            cells.column.name: cells
            for cells in self._cells
            if isinstance(cells, Categories) and cells.unknown.count
        }
        return ClampCounts(
            rows=self._rows,
            clamped=_positive(self._clamped),
            outside=_positive(self._outside),
            unknown={name: cells.unknown.count for name, cells in unknown.items()},
            filled=_positive({cells.column.name: cells.filled for cells in self._cells}),
            places={name: cells.unknown_places for name, cells in unknown.items()},
        )


class Outcome:
    """The label, or numeric targets on [0, 1]; moved: targets that were clamped, by column."""

    def __init__(self, label: Label | Classes | Targets) -> None:
        self._label = label
        self._labels = None if isinstance(label, Targets) else Labels(label)
        columns = label.columns if isinstance(label, Targets) else ()
        self._features = Features(columns, cure="drop these rows")
        self._outside = dict.fromkeys(label.names, 0)

    def take(self, table: pd.DataFrame) -> FloatArray:
        """Of one batch: shape (rows,), of several outputs (rows, outputs)."""
        label = self._label
        if not set(label.names) <= set(table.columns):
            return np.zeros(len(table))
        if not isinstance(label, Targets):
            assert self._labels is not None  # noqa: S101 (of any other outcome)
            return self._labels.take(table[label.name])
        scaled = (self._features.take(table) - label.low) / label.width
        outside = ((scaled < 0) | (scaled > 1)).sum(axis=0)
        for name, count in zip(label.names, outside, strict=True):
            self._outside[name] += int(count)
        return np.clip(scaled, 0.0, 1.0)

    @property
    def moved(self) -> dict[str, int]:
        """Of all batches."""
        return _positive(self._outside)

    def refuse(self, problems: Problems, strict: bool = False) -> None:
        """As of `Features`; strict refuses targets outside their range."""
        if self._labels:
            self._labels.refuse(problems)
            return
        own = Problems()
        self._features.refuse(own)
        if not len(own) and strict and self.moved:
            own.add(
                f"targets outside their range: {sum(self.moved.values())} in "
                f"{', '.join(self.moved)}; correct them, widen the range, or leave strict off to "
                "have them clamped"
            )
        problems.extend(own)


class Beside:
    """Weights over their bound, or offsets less their centre; name: "weight" or "offset".

    moved: how many were beyond the range, by column.
    """

    def __init__(self, schema: Schema, name: str) -> None:
        known = schema.weight if name == "weight" else schema.offset
        assert known is not None  # noqa: S101 (of `row_terms`)
        self._known, self._kind = known, name
        self._numbers = Numbers(known.column, "correct or drop these rows")
        self.names = (known.name,)
        self._negative, self._outside = Places(), Places()

    def take(self, table: pd.DataFrame) -> FloatArray:
        """Of one batch, shape (rows,)."""
        raw = np.zeros((len(table), 1))
        column, known = self._known.column, self._known
        if known.name in table.columns:
            self._numbers.take(table[known.name], raw)
        cells = raw[:, 0]
        self._negative.take(table.index, cells < 0)
        self._outside.take(table.index, (cells < column.low) | (cells > column.high))
        held = np.clip(cells, column.low, column.high)
        return (
            held / known.bound if isinstance(known, Weight) else known.scores(held) - known.centre
        )

    @property
    def moved(self) -> dict[str, int]:
        """Of all batches."""
        return _positive({self._known.name: self._outside.count})

    def refuse(self, problems: Problems, strict: bool = False) -> None:
        """As of `Features`; a weight below 0 is always refused."""
        known, words = self._known, self._numbers.wrong()
        if words:
            problems.add(f"column {shown(known.name)} {words}")
        if words or not self._numbers.present:
            return
        owner, column = f"{self._kind} {shown(known.name)}", known.column
        if isinstance(known, Weight) and self._negative.count:
            problems.add(f"{owner} is negative in {self._negative}: a weight is 0 or more")
        if strict and self._outside.count:
            problems.add(
                f"{owner} is outside [{column.low:g}, {column.high:g}] in {self._outside}: correct "
                "it, widen the schema, or leave strict off"
            )


def _refuse_outside(counts: ClampCounts, problems: Problems) -> None:
    kinds = ((counts.outside, "outside its range"), (counts.unknown, "of no declared category"))
    what = [
        f"{count} of {counts.rows} values of column {shown(name)} are {where_to}"
        f"{' (' + counts.places[name] + ')' if found is counts.unknown else ''}"
        for found, where_to in kinds
        for name, count in found.items()
    ]
    if what:
        problems.add(
            f"{'; '.join(what[:3])}{'; ...' if what[3:] else ''}: correct them, widen the schema, "
            "or leave strict off to have them clamped and counted"
        )


def _positive(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: int(count) for name, count in counts.items() if count}
