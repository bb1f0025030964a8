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

from parties.data.hints import hint, only_spelling
from parties.data.problems import Problems, where
from parties.data.problems import places as places_of
from parties.data.schema import (
    CategoricalColumn,
    Classes,
    Column,
    FloatArray,
    Label,
    NumericColumn,
    Scaling,
    Schema,
    Targets,
    Weight,
)
from parties.data.shard import ClampCounts, Shard
from parties.data.table import Table, numeric_cells, read_table, text_cells
from protocols.clipping import clip_rows
from protocols.documents import shown, suggest
from protocols.errors import DataError, SchemaError

_REFUSED = "fill in or drop these rows, or let the schema say missing: typical or indicator"


def encode_shard(
    frame: Table, schema: Schema, strict: bool = False, problems: Problems | None = None
) -> Shard:
    """Validate, fill in, scale, clamp and clip a private table.

    frame: anything that ``read_table`` takes. Columns that the schema does not name are ignored.
    strict: refuse values outside the schema (outside [low, high], or of no declared category)
        instead of clamping and counting them. Clamping at two spreads ("standard" scaling) and
        clipping to the row norm are no errors, and are only ever counted.
    problems: what is known to be wrong with the table already; refused with the rest.

    Raises: everything that is wrong, in one message.
        SchemaError: a column is missing; the message names it and the closest names.
        DataError: no rows; missing cells where the column refuses them, infinite values, or text in
            a numeric column; a label that is missing or none of the declared values; what
            ``strict`` refuses. Targets outside their range are clamped and counted like features.
    """
    problems = Problems() if problems is None else problems
    table = read_table(frame, label=schema.label.name, problems=problems)
    check_columns(table, schema.label.names, problems)
    x, counts = scale_columns(table, schema.columns, schema.scaling, strict, problems)
    y, moved = encode_outcome(table, schema.label, strict, problems)
    beside: dict[str, FloatArray] = {}
    for name in schema.row_terms:
        beside[name], out = encode_beside(table, schema, name, strict, problems)
        moved |= out
    problems.refuse()
    x, norm_clipped = add_bias_and_clip(x, schema.row_norm)
    counts = replace(
        counts,
        norm_clipped=norm_clipped,
        clamped={**counts.clamped, **moved},
        outside={**counts.outside, **moved},
    )
    return Shard(x=x, y=y, counts=counts, schema=schema, **beside)


def encode_features(frame: Table, schema: Schema) -> FloatArray:
    """Rows for prediction, shape (rows, num_features), as of ``encode_shard``; needs no label."""
    return encode_scored(frame, schema)[0]


def encode_scored(frame: Table, schema: Schema) -> tuple[FloatArray, FloatArray]:
    """Rows for prediction, and what the offset adds to their scores, shape (rows,)."""
    problems = Problems()
    table = read_table(frame, label=schema.label.name, problems=problems)
    x, _ = scale_columns(table, schema.columns, schema.scaling, problems=problems)
    offset: FloatArray = np.zeros(len(table))
    if schema.offset is not None:
        offset, _ = encode_beside(table, schema, "offset", False, problems)
    problems.refuse()
    return add_bias_and_clip(x, schema.row_norm)[0], offset


def encode_beside(
    table: pd.DataFrame, schema: Schema, name: str, strict: bool, problems: Problems
) -> tuple[FloatArray, dict[str, int]]:
    """Weights over their bound or offsets less their centre, shape (rows,); and how many moved.

    name: "weight" or "offset", which the schema has. What is wrong goes to `problems`: a cell that
    is missing or no number, a weight below 0; values outside the range, where `strict` says so.
    """
    known = schema.weight if name == "weight" else schema.offset
    assert known is not None  # noqa: S101 (of `row_terms`)
    column, before = known.column, len(problems)
    raw = expand_columns(table, (column,), problems, cure="correct or drop these rows")[0][:, 0]
    if len(problems) > before:
        return np.zeros(len(table)), {}
    cells = table.index
    if name == "weight" and (raw < 0).any():
        problems.add(
            f"{name} {shown(known.name)} is negative in {where(cells, raw < 0)}: a weight is 0 or "
            "more"
        )
    outside = (raw < column.low) | (raw > column.high)
    if strict and outside.any():
        problems.add(
            f"{name} {shown(known.name)} is outside [{column.low:g}, {column.high:g}] in "
            f"{where(cells, outside)}: correct it, widen the schema, or leave strict off"
        )
    held = np.clip(raw, column.low, column.high)
    moved = _positive({known.name: int(outside.sum())})
    if isinstance(known, Weight):
        return held / known.bound, moved
    return known.scores(held) - known.centre, moved


def encode_outcome(
    table: pd.DataFrame, outcome: Label | Classes | Targets, strict: bool, problems: Problems
) -> tuple[FloatArray, dict[str, int]]:
    """The label or the targets, and how many targets were clamped; what is wrong to `problems`."""
    if not set(outcome.names) <= set(table.columns):
        return np.zeros(len(table)), {}
    try:
        if isinstance(outcome, (Label, Classes)):
            return encode_label(table[outcome.name], outcome), {}
        return encode_targets(table, outcome, strict)
    except DataError as problem:
        problems.add(str(problem))
    return np.zeros(len(table)), {}


def check_columns(
    frame: pd.DataFrame, names: Iterable[str], problems: Problems | None = None
) -> None:
    """Refuse a table without rows (DataError) or without one of these columns (SchemaError).

    problems: columns that are missing go there; None: they are refused.
    """
    found = Problems() if problems is None else problems
    for name in names:
        if name not in frame.columns:
            found.add(
                f"column {shown(name)} of the schema is not in the table"
                f"{suggest(name, frame.columns)}: rename or add it",
                SchemaError,
            )
    if len(frame) == 0:
        found.add("the table has 0 rows: at least 1 is needed")
        found.refuse()
    if problems is None:
        found.refuse()


def expand_columns(
    frame: pd.DataFrame,
    columns: Sequence[Column],
    problems: Problems | None = None,
    cure: str = _REFUSED,
) -> tuple[FloatArray, ClampCounts]:
    """Features in the data's own units, shape (rows, features), and what was unknown or missing.

    Numeric columns stay as they are, categories are one-hot, an unknown category is all zeros;
    missing cells are filled in as each column says.

    problems: what is wrong goes there, and its features are zeros; None: it is refused. cure: of
    missing cells that a column refuses.

    Raises:
        SchemaError, DataError: see `encode_shard`.
    """
    found = Problems() if problems is None else problems
    check_columns(frame, (column.name for column in columns), found)
    raw = np.zeros((len(frame), sum(len(column.features) for column in columns)))
    unknown: dict[str, int] = {}
    places: dict[str, str] = {}
    filled: dict[str, int] = {}
    start = 0
    for column in columns:
        out = raw[:, start : start + len(column.features)]
        start += len(column.features)
        if column.name not in frame.columns:
            continue
        cells = frame[column.name]
        try:
            if isinstance(column, NumericColumn):
                missing = _numbers(cells, column, out, cure)
            else:
                missing, odd, words = _one_hot(cells, column, out, cure)
                unknown[column.name], places[column.name] = int(odd.sum()), words
        except DataError as problem:
            found.add(f"column {shown(column.name)} {problem}")
            continue
        filled[column.name] = int(missing.sum())
        if column.missing == "indicator":
            out[:, -1] = missing
    if problems is None:
        found.refuse()
    counts = ClampCounts(
        rows=len(frame), unknown=_positive(unknown), filled=_positive(filled), places=places
    )
    return raw, counts


def _numbers(
    cells: pd.Series[Any], column: NumericColumn, out: FloatArray, cure: str
) -> NDArray[np.bool_]:
    """Fill in numbers; returns which cells are missing, shape (rows,)."""
    values, texts, instead = numeric_cells(cells)
    if instead:
        raise DataError(f"holds {instead}: convert them to numbers or leave it out")
    missing, wrong = np.isnan(values) & ~texts, []
    if texts.any():
        where_texts = where(cells.index, texts)
        wrong.append(f"has text where a number is due in {where_texts}: {hint(cells[texts])}")
    if np.isinf(values).any():
        wrong.append(
            f"is infinite or too large for a number in {where(cells.index, np.isinf(values))}: "
            "correct or drop these rows"
        )
    if missing.any() and column.missing == "refuse":
        wrong.append(f"is missing (empty or NaN) in {where(cells.index, missing)}: {cure}")
    if wrong:
        raise DataError(", and ".join(wrong))
    out[:, 0] = np.where(missing, column.typical or 0.0, values)
    return missing


def _texts(cells: pd.Series[Any]) -> tuple[NDArray[np.intp], list[str]]:
    """Codes of the cells, -1 where one is missing, and the texts that they index."""
    try:
        return text_cells(cells)
    except TypeError:
        raise DataError("holds objects, not texts or numbers: convert or leave it out") from None


def _one_hot(
    cells: pd.Series[Any], column: CategoricalColumn, out: FloatArray, cure: str
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], str]:
    """Fill in ones; returns which cells are missing, which are of no declared category, and where.

    Shape (rows,) each; where: in words, with a hint if only spaces or capitals differ.
    """
    codes, texts = _texts(cells)
    missing = codes < 0
    if missing.any() and column.missing == "refuse":
        raise DataError(f"is missing in {where(cells.index, missing)}: {cure}")
    position = {category: k for k, category in enumerate(column.categories)}
    instead = position.get(column.typical or "", -1)
    # The last entry is for code -1.
    index = np.array([*(position.get(text, -1) for text in texts), instead], dtype=np.intp)[codes]
    rows = np.flatnonzero(index >= 0)
    out[rows, index[rows]] = 1.0
    odd = (index < 0) & ~missing
    if not odd.any():
        return missing, odd, ""
    others = [text for text in texts if text not in position]
    hinted = "; they differ in spaces or capitals only" * only_spelling(others, position)
    return missing, odd, f"{places_of(cells.index, odd)}{hinted}"


def scale_columns(
    frame: pd.DataFrame,
    columns: Sequence[Column],
    scaling: Scaling,
    strict: bool = False,
    problems: Problems | None = None,
) -> tuple[FloatArray, ClampCounts]:
    """Expand a table, then scale and clamp its numeric columns by public numbers.

    Returns: float64 array, shape (rows, features), without bias; and the counts. See `encode_shard`
    for `strict` and what is refused, `expand_columns` for `problems`.
    """
    found = Problems() if problems is None else problems
    before = len(found)
    x, counts = expand_columns(frame, columns, found)
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
    counts = replace(counts, clamped=_positive(clamped), outside=_positive(outside))
    if strict and len(found) == before:
        _refuse_outside(counts, found)
    if problems is None:
        found.refuse()
    return x, counts


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


def encode_label(cells: pd.Series[Any], label: Label | Classes) -> FloatArray:
    """Encode the label as 1.0 (positive) and 0.0 (negative), shape (rows,).

    Of several classes: 1.0 for a row's own and 0.0 for the others, shape (rows, classes).

    Raises:
        DataError: a label is missing or is none of the declared values.
    """
    known = {text: float(code) for code, text in enumerate(label.values)}
    try:
        codes, texts = _texts(cells)
    except DataError as problem:
        raise DataError(f"label {shown(label.name)} {problem}") from None
    missing = codes < 0
    y = np.array([*(known.get(text, np.nan) for text in texts), 0.0])[codes]
    wrong = []
    if missing.any():
        wrong.append(f"is missing in {where(cells.index, missing)}: drop these rows")
    if np.isnan(y).any():
        others = [text for text in texts if text not in known]
        cure = "correct them or the schema"
        if only_spelling(others, known):
            cure = f"they differ in spaces or capitals only; {cure}"
        wrong.append(f"is {_none_of(label)} in {where(cells.index, np.isnan(y))}: {cure}")
    if wrong:
        raise DataError(f"label {shown(label.name)} {', and '.join(wrong)}")
    return y if isinstance(label, Label) else np.eye(label.outputs)[y.astype(np.intp)]


def _none_of(label: Label | Classes) -> str:
    if isinstance(label, Label):
        return f"neither {shown(label.positive)} nor {shown(label.negative)}"
    few = ", ".join(map(shown, label.classes[:5]))
    return f"none of the {label.outputs} classes {few}{', …' if label.outputs > 5 else ''}"


def encode_targets(
    frame: pd.DataFrame, targets: Targets, strict: bool = False
) -> tuple[FloatArray, dict[str, int]]:
    """Targets on [0, 1], shape (rows, c), and how many were clamped, by column.

    Raises:
        SchemaError, DataError: see `encode_shard`; `strict` refuses values outside the range.
    """
    raw, _ = expand_columns(frame, targets.columns, cure="drop these rows")
    scaled = (raw - targets.low) / targets.width
    outside = ((scaled < 0) | (scaled > 1)).sum(axis=0)
    clamped = _positive(dict(zip(targets.names, outside, strict=True)))
    if strict and clamped:
        raise DataError(
            f"targets outside their range: {sum(clamped.values())} in {', '.join(clamped)}; "
            "correct them, widen the range, or leave strict off to have them clamped"
        )
    return np.clip(scaled, 0.0, 1.0), clamped
