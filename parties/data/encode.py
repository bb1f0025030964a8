"""From the cells of a table to scaled, clamped, norm-clipped rows of float64, batch by batch.

A table is read in batches, each encoded by the public schema at once: beside the rows there is one
batch in memory. What is wrong is said of the whole table, in one message.

Security: cells are private. Every message names columns, row numbers and counts only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from parties.data.cells import Labels
from parties.data.columns import Column, FloatArray, Scaling
from parties.data.features import Beside, Features, Outcome
from parties.data.outcome import Classes, Label, Targets
from parties.data.problems import Problems
from parties.data.schema import Schema
from parties.data.shard import ClampCounts, Shard
from parties.data.table import Table, batches
from protocols.clipping import clip_rows
from protocols.documents import shown, suggest
from protocols.errors import SchemaError

BATCH_ROWS = 1 << 15
"""Of a table, in memory at a time."""


def encode_shard(
    frame: Table,
    schema: Schema,
    strict: bool = False,
    problems: Problems | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Shard:
    """Validate, fill in, scale, clamp and clip a private table.

    frame: anything that ``read_table`` takes. Columns that the schema does not name are ignored.
    strict: refuse values outside the schema (outside [low, high], or of no declared category)
        instead of clamping and counting them. Clamping at two spreads ("standard" scaling) and
        clipping to the row norm are no errors, and are only ever counted.
    problems: what is known to be wrong with the table already; refused with the rest.
    batch_rows: read at a time; the rows are the same whatever it is.

    Raises: everything that is wrong, in one message.
        SchemaError: a column is missing; the message names it and the closest names.
        DataError: no rows; missing cells where the column refuses them, infinite values, or text in
            a numeric column; a label that is missing or none of the declared values; what
            ``strict`` refuses. Targets outside their range are clamped and counted like features.
    """
    problems = Problems() if problems is None else problems
    features, outcome = Features(schema.columns, schema.scaling), Outcome(schema.label)
    beside = {name: Beside(schema, name) for name in schema.row_terms}
    parts: dict[str, list[FloatArray]] = {name: [] for name in ("x", "y", *beside)}
    clipped = 0
    due = [*schema.label.names, *features.names, *schema.beside]
    for table in _checked(frame, due, schema.label.name, problems, batch_rows):
        rows, moved = add_bias_and_clip(features.take(table), schema.row_norm)
        clipped += moved
        parts["x"].append(rows)
        parts["y"].append(outcome.take(table))
        for name, term in beside.items():
            parts[name].append(term.take(table))
    features.refuse(problems, strict)
    outcome.refuse(problems, strict)
    for term in beside.values():
        term.refuse(problems, strict)
    problems.refuse()
    counts, others = features.counts, outcome.moved
    for term in beside.values():
        others |= term.moved
    counts = replace(
        counts,
        norm_clipped=clipped,
        clamped={**counts.clamped, **others},
        outside={**counts.outside, **others},
    )
    whole = {name: joined(arrays) for name, arrays in parts.items()}
    return Shard(counts=counts, schema=schema, **whole)


def _checked(
    source: Table, due: Sequence[str], label: str, problems: Problems, rows: int
) -> Iterator[pd.DataFrame]:
    """Batches of a table, the first of which is held against the columns that are due."""
    found = batches(source, label=label, problems=problems, rows=rows)
    first = next(found)
    check_columns(first, due, problems)
    yield first
    del first
    yield from found


def joined(arrays: list[FloatArray]) -> FloatArray:
    """All rows in one array that is nobody else's, read-only; the list is emptied on the way.

    Its pages come into memory as the batches go.
    """
    rows = sum(map(len, arrays))
    found = np.empty((rows, *arrays[0].shape[1:]))
    arrays.reverse()
    start = 0
    while arrays:
        part = arrays.pop()
        found[start : start + len(part)] = part
        start += len(part)
    found.setflags(write=False)
    return found


def encode_features(frame: Table, schema: Schema) -> FloatArray:
    """Rows for prediction, shape (rows, num_features), as of ``encode_shard``; needs no label."""
    return encode_scored(frame, schema)[0]


def encode_scored(frame: Table, schema: Schema) -> tuple[FloatArray, FloatArray]:
    """Rows for prediction, and what the offset adds to their scores, shape (rows,)."""
    problems, features = Problems(), Features(schema.columns, schema.scaling)
    term = None if schema.offset is None else Beside(schema, "offset")
    found: list[FloatArray] = []
    added: list[FloatArray] = []
    due = [*features.names, *(term.names if term else ())]
    for table in _checked(frame, due, schema.label.name, problems, BATCH_ROWS):
        found.append(add_bias_and_clip(features.take(table), schema.row_norm)[0])
        added.append(term.take(table) if term else np.zeros(len(table)))
    features.refuse(problems)
    if term:
        term.refuse(problems)
    problems.refuse()
    return joined(found), joined(added)


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


# -- of whole tables ------------------------------------------------------------------------------


def expand_columns(
    frame: pd.DataFrame, columns: Sequence[Column]
) -> tuple[FloatArray, ClampCounts]:
    """`Features` in the data's own units, shape (rows, features), and what was unknown or missing.

    Raises:
        SchemaError, DataError: see `encode_shard`.
    """
    return _whole(frame, Features(columns))


def scale_columns(
    frame: pd.DataFrame, columns: Sequence[Column], scaling: Scaling
) -> tuple[FloatArray, ClampCounts]:
    """`expand_columns`, numeric ones scaled and clamped by public numbers."""
    return _whole(frame, Features(columns, scaling))


def _whole(frame: pd.DataFrame, features: Features) -> tuple[FloatArray, ClampCounts]:
    problems = Problems()
    check_columns(frame, features.names, problems)
    found = features.take(frame)
    features.refuse(problems)
    problems.refuse()
    return found, features.counts


def encode_label(cells: pd.Series[Any], label: Label | Classes) -> FloatArray:
    """`Labels` of a whole column.

    Raises:
        DataError: a label is missing or is none of the declared values.
    """
    problems, labels = Problems(), Labels(label)
    found = labels.take(cells)
    labels.refuse(problems)
    problems.refuse()
    return found


def encode_targets(
    frame: pd.DataFrame, targets: Targets, strict: bool = False
) -> tuple[FloatArray, dict[str, int]]:
    """Targets on [0, 1], shape (rows, c), and how many were clamped, by column.

    Raises:
        SchemaError, DataError: see `encode_shard`; `strict` refuses values outside the range.
    """
    problems, outcome = Problems(), Outcome(targets)
    check_columns(frame, targets.names, problems)
    found = outcome.take(frame)
    outcome.refuse(problems, strict)
    problems.refuse()
    return found, outcome.moved


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
