"""From the cells of a table to scaled, clamped, norm-clipped rows of float64.

Security: cells are private. Every message names columns, row numbers and counts only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.data.schema import (
    CategoricalColumn,
    Column,
    FloatArray,
    Label,
    NumericColumn,
    Scaling,
    Schema,
    Targets,
)
from parties.data.shard import ClampCounts, Shard
from parties.data.table import Table, numeric_cells, read_table, text_cells
from protocols.clipping import clip_rows
from protocols.documents import shown, suggest
from protocols.errors import DataError, SchemaError


def encode_shard(frame: Table, schema: Schema, strict: bool = False) -> Shard:
    """Validate, scale, clamp and clip a private table.

    frame: anything that ``read_table`` takes. Columns that the schema does not name are ignored.
    strict: refuse values outside the schema (outside [low, high], or of no declared category)
        instead of clamping and counting them. Clamping at two spreads ("standard" scaling) and
        clipping to the row norm are no errors, and are only ever counted.

    Raises:
        SchemaError: a column is missing; the message names it and the closest names.
        DataError: no rows; missing or infinite values, or text in a numeric column; a label that is
            missing or neither of the two values; what ``strict`` refuses. Targets outside their
            range are clamped and counted like features.
    """
    table = read_table(frame, label=schema.label.name)
    check_columns(table, [*(column.name for column in schema.columns), *schema.label.names])
    problems: list[str] = []
    moved: dict[str, int] = {}
    try:
        x, counts = scale_columns(table, schema.columns, schema.scaling, strict)
    except DataError as problem:
        problems.append(str(problem))
    try:
        if isinstance(schema.label, Label):
            y = encode_label(table[schema.label.name], schema.label)
        else:
            y, moved = encode_targets(table, schema.label, strict)
    except DataError as problem:
        problems.append(str(problem))
    if problems:
        raise DataError("; ".join(problems))
    x, norm_clipped = add_bias_and_clip(x, schema.row_norm)
    counts = replace(
        counts,
        norm_clipped=norm_clipped,
        clamped={**counts.clamped, **moved},
        outside={**counts.outside, **moved},
    )
    return Shard(x=x, y=y, counts=counts, schema=schema)


def encode_features(frame: Table, schema: Schema) -> FloatArray:
    """Rows for prediction, shape (rows, num_features), as of ``encode_shard``; needs no label."""
    table = read_table(frame, label=schema.label.name)
    x, _ = scale_columns(table, schema.columns, schema.scaling)
    return add_bias_and_clip(x, schema.row_norm)[0]


def check_columns(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Refuse a table without rows (DataError) or without one of these columns (SchemaError)."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        more = f" ({len(missing)} columns are missing in all)" if len(missing) > 1 else ""
        raise SchemaError(
            f"column {shown(missing[0])} of the schema is not in the table"
            f"{suggest(missing[0], frame.columns)}{more}: rename or add it"
        )
    if len(frame) == 0:
        raise DataError("the table has 0 rows: at least 1 is needed")


def expand_columns(
    frame: pd.DataFrame, columns: Sequence[Column]
) -> tuple[FloatArray, dict[str, int]]:
    """Features in the data's own units, shape (rows, features), and unknown categories by column.

    Numeric columns stay as they are, categories are one-hot, an unknown category is all zeros.

    Raises:
        SchemaError, DataError: see `encode_shard`; every bad column is named, up to three.
    """
    check_columns(frame, (column.name for column in columns))
    raw = np.zeros((len(frame), sum(len(column.features) for column in columns)))
    unknown: dict[str, int] = {}
    problems: list[str] = []
    start = 0
    for column in columns:
        out = raw[:, start : start + len(column.features)]
        start += len(column.features)
        cells = frame[column.name]
        try:
            if isinstance(column, NumericColumn):
                out[:, 0] = _numbers(cells)
            elif count := _one_hot(cells, column, out):
                unknown[column.name] = count
        except DataError as problem:
            problems.append(f"column {shown(column.name)} {problem}")
    if problems:
        more = f"; and {len(problems) - 3} more columns" if len(problems) > 3 else ""
        raise DataError("; ".join(problems[:3]) + more)
    return raw, unknown


def _where(bad: NDArray[np.bool_]) -> str:
    return f"{int(bad.sum())} of {bad.size} rows (first: row {int(np.argmax(bad)) + 1})"


def _numbers(cells: pd.Series[Any]) -> FloatArray:
    values, texts, instead = numeric_cells(cells)
    if instead:
        raise DataError(f"holds {instead}: convert them to numbers or leave it out")
    if texts.any():
        raise DataError(
            f"has text where a number is due in {_where(texts)}: correct or drop these rows"
        )
    if not np.isfinite(values).all():
        where = _where(~np.isfinite(values))
        raise DataError(f"is missing or infinite in {where}: fill in or drop these rows")
    return values


def _texts(cells: pd.Series[Any], cure: str) -> tuple[NDArray[np.intp], list[str]]:
    """Codes of the cells, and their texts."""
    try:
        codes, texts = text_cells(cells)
    except TypeError:
        raise DataError("holds objects, not texts or numbers: convert or leave it out") from None
    if (codes < 0).any():
        raise DataError(f"is missing in {_where(codes < 0)}: {cure}")
    return codes, texts


def _one_hot(cells: pd.Series[Any], column: CategoricalColumn, out: FloatArray) -> int:
    """Fill in ones; returns the number of cells of no declared category."""
    cure = "drop these rows, or declare a category such as 'missing' and fill it in"
    codes, texts = _texts(cells, cure)
    position = {category: k for k, category in enumerate(column.categories)}
    index = np.array([position.get(text, -1) for text in texts], dtype=np.intp)[codes]
    rows = np.flatnonzero(index >= 0)
    out[rows, index[rows]] = 1.0
    return int(index.size - rows.size)


def scale_columns(
    frame: pd.DataFrame, columns: Sequence[Column], scaling: Scaling, strict: bool = False
) -> tuple[FloatArray, ClampCounts]:
    """Expand a table, then scale and clamp its numeric columns by public numbers.

    Returns: float64 array, shape (rows, features), without bias; and the counts. See `encode_shard`
    for `strict` and what is refused.
    """
    x, unknown = expand_columns(frame, columns)
    clamped: dict[str, int] = {}
    outside: dict[str, int] = {}
    start = 0
    for column in columns:
        if isinstance(column, NumericColumn):
            values = x[:, start].copy()  # contiguous: the column of a wide array is slow
            outside[column.name] = np.count_nonzero((values < column.low) | (values > column.high))
            bound, (shift, scale) = column.bound(scaling), column.affine(scaling)
            with np.errstate(over="ignore"):  # an infinite quotient is clamped like any other
                values = (values - shift) / scale
            # Rounding alone may reach past the bound of "range" scaling: count by the raw value.
            moved = outside[column.name] if scaling == "range" else (np.abs(values) > bound).sum()
            clamped[column.name] = int(moved)
            x[:, start] = np.clip(values, -bound, bound)
        start += len(column.features)
    counts = ClampCounts(
        rows=len(x), clamped=_positive(clamped), outside=_positive(outside), unknown=unknown
    )
    kinds = ((counts.outside, "outside its range"), (unknown, "of no declared category"))
    what = [
        f"{count} of {len(x)} values of column {shown(name)} are {where}"
        for found, where in kinds
        for name, count in found.items()
    ]
    if strict and what:
        raise DataError(
            f"{'; '.join(what[:3])}{'; ...' if what[3:] else ''}: correct them, widen the schema, "
            "or leave strict off to have them clamped and counted"
        )
    return x, counts


def _positive(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: int(count) for name, count in counts.items() if count}


def add_bias_and_clip(x: FloatArray, row_norm: float | None) -> tuple[FloatArray, int]:
    """Append the bias column; with ``row_norm`` c, divide rows by c and clip them to norm 1.

    Returns: float64 array, shape (rows, features + 1); and how many rows were clipped.
    """
    rows = np.ones((x.shape[0], x.shape[1] + 1))
    rows[:, :-1] = x
    if row_norm is None:
        return rows, 0
    # Clip before dividing: the norm of rows / row_norm may underflow, that of rows is at least 1.
    return clip_rows(rows, row_norm)


def encode_label(cells: pd.Series[Any], label: Label) -> FloatArray:
    """Encode the label as 1.0 (positive) and 0.0 (negative), shape (rows,).

    Raises:
        DataError: a label is missing or is neither of the two values.
    """
    known = {label.positive: 1.0, label.negative: 0.0}
    try:
        codes, texts = _texts(cells, "drop these rows")
        y = np.array([known.get(text, np.nan) for text in texts], dtype=np.float64)[codes]
        if np.isnan(y).any():
            raise DataError(
                f"is neither {shown(label.positive)} nor {shown(label.negative)} in "
                f"{_where(np.isnan(y))}: correct them or the schema"
            )
    except DataError as problem:
        raise DataError(f"label {shown(label.name)} {problem}") from None
    return y


def encode_targets(
    frame: pd.DataFrame, targets: Targets, strict: bool = False
) -> tuple[FloatArray, dict[str, int]]:
    """Targets on [0, 1], shape (rows, c), and how many were clamped, by column.

    Raises:
        SchemaError, DataError: see `encode_shard`; `strict` refuses values outside the range.
    """
    raw, _ = expand_columns(frame, targets.columns)
    scaled = (raw - targets.low) / targets.width
    outside = ((scaled < 0) | (scaled > 1)).sum(axis=0)
    clamped = _positive(dict(zip(targets.names, outside, strict=True)))
    if strict and clamped:
        raise DataError(
            f"targets outside their range: {sum(clamped.values())} in {', '.join(clamped)}; "
            "correct them, widen the range, or leave strict off to have them clamped"
        )
    return np.clip(scaled, 0.0, 1.0), clamped
