"""From the cells of a table to scaled, clamped, norm-clipped rows of float64.

Security: cells are private. Every message names columns, row numbers and counts only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.checks import shown, suggest
from parties.columns import CategoricalColumn, Column, Label, NumericColumn, Scaling
from parties.tables import FloatArray, numeric_cells, text_cells
from protocols.errors import DataError, SchemaError

NORM_LIMIT = 1 - 1e-12
"""Rows are clipped to this norm, so that no rounding lifts the norm of a row above 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClampCounts:
    """How often a table left the public schema. As private as the table: not to be sent.

    rows: rows of the table.
    clamped: values moved to the end of the scaled interval, by column.
    outside: values outside the declared [low, high], by column. The same as ``clamped`` for
        "range" scaling; "standard" scaling clamps at two spreads, wherever low and high are.
    unknown: cells of no declared category, by column.
    norm_clipped: rows that were longer than the row norm.

    Columns without any such cell are left out.
    """

    rows: int
    clamped: Mapping[str, int] = field(default_factory=dict)
    outside: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    norm_clipped: int = 0

    def summary(self) -> list[str]:
        """Return one line per kind of change, none for a table that fits its schema."""
        lines = [
            f"{what}: {sum(counts.values())} in {', '.join(counts)}"
            for what, counts in (
                ("values clamped", self.clamped),
                ("values outside the declared range", self.outside),
                ("cells of no declared category", self.unknown),
            )
            if counts
        ]
        if self.norm_clipped:
            lines.append(f"rows clipped to the row norm: {self.norm_clipped} of {self.rows}")
        return lines


def check_columns(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Check that the table has rows and all these columns.

    Raises:
        SchemaError: a column is missing; the message names it and the closest names.
        DataError: the table has no rows.
    """
    missing = [name for name in names if name not in frame.columns]
    if missing:
        more = f" ({len(missing)} columns are missing in all)" if len(missing) > 1 else ""
        raise SchemaError(
            f"column {shown(missing[0])} of the schema is not in the table"
            f"{suggest(missing[0], frame.columns)}{more}: rename or add it"
        )
    if len(frame) == 0:
        raise DataError("the table has 0 rows: at least 1 is needed")


def _where(bad: NDArray[np.bool_]) -> str:
    return f"{int(bad.sum())} of {bad.size} rows (first: row {int(np.argmax(bad)) + 1})"


def _fill_numeric(cells: pd.Series[Any], name: str, out: FloatArray) -> str:
    values, texts, instead = numeric_cells(cells)
    if instead:
        return f"column {shown(name)} holds {instead}: convert them to numbers or leave it out"
    if texts.any():
        return (
            f"column {shown(name)} has text where a number is due in {_where(texts)}: "
            "correct or drop these rows"
        )
    bad = ~np.isfinite(values)
    if bad.any():
        return (
            f"column {shown(name)} is missing or infinite in {_where(bad)}: "
            "fill in or drop these rows"
        )
    out[:, 0] = values
    return ""


def _fill_one_hot(
    cells: pd.Series[Any], column: CategoricalColumn, out: FloatArray, unknown: dict[str, int]
) -> str:
    try:
        codes, texts = text_cells(cells)
    except TypeError:
        return f"column {shown(column.name)} holds objects, not texts: convert or leave it out"
    if (codes < 0).any():
        return (
            f"column {shown(column.name)} is missing in {_where(codes < 0)}: drop these rows, "
            "or declare a category such as 'missing' and fill it in"
        )
    position = {category: k for k, category in enumerate(column.categories)}
    index = np.array([position.get(text, -1) for text in texts], dtype=np.intp)[codes]
    rows = np.flatnonzero(index >= 0)
    out[rows, index[rows]] = 1.0
    if rows.size < index.size:
        unknown[column.name] = int(index.size - rows.size)
    return ""


def expand_columns(
    frame: pd.DataFrame, columns: Sequence[Column]
) -> tuple[FloatArray, dict[str, int]]:
    """Expand a table to features in the data's own units.

    Returns: float64 array, shape (rows, number of features), numeric columns as they are,
    categories one-hot, an unknown category all zeros; and the cells of unknown category by column.

    Raises:
        SchemaError: a column is missing.
        DataError: no rows; missing or infinite values, text in a numeric column.
    """
    check_columns(frame, (column.name for column in columns))
    raw = np.zeros((len(frame), sum(len(column.features) for column in columns)))
    unknown: dict[str, int] = {}
    problems: list[str] = []
    start = 0
    for column in columns:
        out = raw[:, start : start + len(column.features)]
        start += len(column.features)
        if isinstance(column, NumericColumn):
            problem = _fill_numeric(frame[column.name], column.name, out)
        else:
            problem = _fill_one_hot(frame[column.name], column, out, unknown)
        if problem:
            problems.append(problem)
    if problems:
        more = f"; and {len(problems) - 3} more columns" if len(problems) > 3 else ""
        raise DataError("; ".join(problems[:3]) + more)
    return raw, unknown


def scale_columns(
    frame: pd.DataFrame, columns: Sequence[Column], scaling: Scaling, strict: bool = False
) -> tuple[FloatArray, ClampCounts]:
    """Expand a table, then scale and clamp its numeric columns by public numbers.

    strict: refuse values outside [low, high] and unknown categories instead of counting them.

    Returns: float64 array, shape (rows, number of features), without bias; and the counts.

    Raises:
        SchemaError, DataError: as ``expand_columns``; DataError also for what ``strict`` refuses.
    """
    x, unknown = expand_columns(frame, columns)
    clamped: dict[str, int] = {}
    outside: dict[str, int] = {}
    start = 0
    for column in columns:
        if isinstance(column, NumericColumn):
            values = x[:, start].copy()  # contiguous: the column of a wide array is slow
            out = int(np.count_nonzero((values < column.low) | (values > column.high)))
            bound, (shift, scale) = column.bound(scaling), column.affine(scaling)
            with np.errstate(over="ignore"):  # an infinite quotient is clamped like any other
                values = (values - shift) / scale
            # Rounding alone may reach past the bound of "range" scaling: count by the raw value.
            moved = out if scaling == "range" else int(np.count_nonzero(np.abs(values) > bound))
            x[:, start] = np.clip(values, -bound, bound)
            outside |= {column.name: out} if out else {}
            clamped |= {column.name: moved} if moved else {}
        start += len(column.features)
    if strict and (outside or unknown):
        what = [
            f"{count} of {len(x)} values of column {shown(name)} are {where}"
            for counts, where in (
                (outside, "outside its range"),
                (unknown, "of no declared category"),
            )
            for name, count in counts.items()
        ]
        raise DataError(
            f"{'; '.join(what[:3])}{'; ...' if what[3:] else ''}: correct them, widen the schema, "
            "or leave strict off to have them clamped and counted"
        )
    return x, ClampCounts(rows=len(x), clamped=clamped, outside=outside, unknown=unknown)


def add_bias_and_clip(x: FloatArray, row_norm: float | None) -> tuple[FloatArray, int]:
    """Append the bias column; with ``row_norm`` c, divide rows by c and clip them to norm 1.

    x: float64 array, shape (rows, features).

    Returns: float64 array, shape (rows, features + 1), every norm <= 1 if ``row_norm`` is set; and
    how many rows were clipped.
    """
    rows = np.ones((x.shape[0], x.shape[1] + 1))
    rows[:, :-1] = x
    if row_norm is None:
        return rows, 0
    # Clip before dividing: the norm of rows / row_norm may underflow, that of rows is at least 1.
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    rows *= (NORM_LIMIT / np.maximum(norms, NORM_LIMIT * row_norm))[:, None]
    return rows, int(np.count_nonzero(norms > row_norm))


def encode_label(cells: pd.Series[Any], label: Label) -> FloatArray:
    """Encode the label as 1.0 (positive) and 0.0 (negative).

    Returns: float64 array, shape (rows,).

    Raises:
        DataError: a label is missing or is neither of the two values.
    """
    try:
        codes, texts = text_cells(cells)
    except TypeError:
        raise DataError(f"label {shown(label.name)} holds objects, not texts or numbers") from None
    if (codes < 0).any():
        raise DataError(
            f"label {shown(label.name)} is missing in {_where(codes < 0)}: drop these rows"
        )
    known = {label.positive: 1.0, label.negative: 0.0}
    y = np.array([known.get(text, np.nan) for text in texts], dtype=np.float64)[codes]
    if np.isnan(y).any():
        raise DataError(
            f"label {shown(label.name)} is neither {shown(label.positive)} nor "
            f"{shown(label.negative)} in {_where(np.isnan(y))}: correct them or the schema"
        )
    return y
