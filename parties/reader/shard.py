"""One party's rows: encoded by the public schema, checked, ready to be packed and encrypted.

A table is read in batches, each encoded at once (`cells`), scaled, clamped and norm-clipped: beside
the rows there is one batch in memory. What is wrong is said of the whole table, in one message.

Security: cells are private. Every message names columns, row numbers and counts only, and the
representation of a shard shows sizes only, so that neither a log nor a traceback carries data.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.kernel.integers import clip_rows, row_norms
from parties.reader import Problems
from parties.reader.cells import Features, Labels, Scale, outcome_of
from parties.reader.schema import (
    Classes,
    Column,
    FloatArray,
    Label,
    Offset,
    Schema,
    Targets,
    Weight,
)
from parties.reader.table import Table, batches
from protocols.errors import DataError, SchemaError
from protocols.exchange.documents import shown, suggest

log = logging.getLogger(__name__)
BATCH_ROWS = 1 << 15
"""Of a table, in memory at a time."""

_USUAL: Any = None  # which becomes an array at birth


@dataclass(frozen=True, kw_only=True, slots=True)
class ClampCounts:
    """How often a table left the public schema. As private as the table: not to be sent.

    rows: rows of the table.
    clamped: values moved to the end of the scaled interval, by column.
    outside: values outside the declared [low, high], by column. The same as ``clamped`` for
        "range" scaling; "standard" scaling clamps at two spreads, wherever low and high are.
    unknown: cells of no declared category, by column.
    between: cells between the two numbers of a column that has no other, by column.
    filled: missing cells that the schema's typical value or indicator stands for, by column.
    norm_clipped: rows that were longer than the row norm.
    places: where the cells of no declared category stand, in words, by column.

    Columns without any such cell are left out.
    """

    rows: int
    clamped: Mapping[str, int] = field(default_factory=dict)
    outside: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    between: Mapping[str, int] = field(default_factory=dict)
    filled: Mapping[str, int] = field(default_factory=dict)
    norm_clipped: int = 0
    places: Mapping[str, str] = field(default_factory=dict, compare=False)

    def doubts(self) -> list[str]:
        """Of cells that are of no declared value, and what becomes of their rows."""
        kinds = (
            (self.unknown, "of no declared category", "such rows count as of none"),
            (self.between, "between the two numbers", "they count as the nearer one"),
        )
        return [
            f"{(number := sum(found.values())):,} cell{'s' * (number > 1)} {what} in "
            f"{', '.join(map(shown, found))}: {becomes}; correct them, widen the schema, or refuse "
            "them by strict"
            for found, what, becomes in kinds
            if found
        ]

    def summary(self) -> list[str]:
        """Return one line per kind of change, none for a table that fits its schema."""
        placed = {f"{n} ({self.places[n]})" if n in self.places else n: c
                  for n, c in self.unknown.items()}  # fmt: skip
        kinds = {
            "values beyond the scaled interval, taken as its end": self.clamped,
            "values outside the declared range": self.outside,
            "cells of no declared category": placed,
            "cells between the two numbers, taken as the nearer one": self.between,
            "missing cells filled in": self.filled,
        }
        lines = [f"{what}: {sum(c.values())} in {', '.join(c)}" for what, c in kinds.items() if c]
        if self.norm_clipped:
            lines.append(f"rows clipped to the row norm: {self.norm_clipped} of {self.rows}")
        return lines


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Shard:
    """The rows of one party, ready to be packed and encrypted.

    x: float64 array, shape (rows, num_features), scaled, the bias last; every row's norm is at
        most ``schema.norm_bound``. Read-only.
    y: float64 array, shape (rows,), 1.0 for the positive label and 0.0 for the negative; of
        numeric targets shape (rows, outputs), on [0, 1]; of several classes shape (rows, classes),
        1.0 for a row's own and 0.0 for the others. Read-only.
    counts: how often the table left the schema.
    schema: the schema that the rows were encoded by.
    weight: float64 array, shape (rows,), how much each row counts over ``schema.weight.bound``, on
        [0, 1]; None: ones, for a schema without weights. Read-only.
    offset: float64 array, shape (rows,), added to each row's score, ``schema.offset.reach`` from 0
        at most; None: zeros, for a schema without offsets. Read-only.
    origin: fingerprint of the rows in their table's order; empty: they are in it.

    Privacy: norm bound and largest weight enter the sensitivity, so they are checked here, at
    birth, for every row.

    Raises:
        DataError: wrong shapes, no rows, a value that is not finite, a label outside {0, 1}, a
            target outside [0, 1], a row of no class or of two, a row beyond the norm bound; a
            weight or an offset beyond its bound, or where the schema has none.
    """

    x: FloatArray = field(repr=False)
    y: FloatArray = field(repr=False)
    counts: ClampCounts = field(repr=False)
    schema: Schema = field(repr=False)
    weight: FloatArray = field(default=_USUAL, repr=False)
    offset: FloatArray = field(default=_USUAL, repr=False)
    origin: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Check shapes and bounds, then freeze private copies of arrays that others may change."""
        x, y = _private(self.x), _private(self.y)
        if x.ndim != 2 or x.shape[0] < 1 or x.shape[1] != self.schema.num_features:
            raise DataError(
                f"x has shape {x.shape} where (rows, {self.schema.num_features}) with at least 1 "
                "row is due: encode the table with encode_shard"
            )
        label = self.schema.label
        due = (len(x),) if isinstance(label, Label) else (len(x), label.outputs)
        if y.shape != due:
            raise DataError(f"y has shape {y.shape} where {due} is due")
        if not ((y >= 0) & (y <= 1)).all():  # false for NaN
            raise DataError("y leaves [0, 1]: encode it with encode_shard")
        if isinstance(label, (Label, Classes)) and not np.isin(y, (0.0, 1.0)).all():
            raise DataError("y has values other than 0 and 1: encode the label with encode_shard")
        if isinstance(label, Classes) and not (y.sum(axis=1) == 1).all():
            raise DataError("y has rows that are not of one class: encode them with encode_shard")
        beyond = ~(row_norms(x) <= self.schema.norm_bound * (1 + 1e-12))  # true for NaN
        if beyond.any():
            raise DataError(
                f"{int(beyond.sum())} of {len(x)} rows are not finite or exceed the norm bound "
                f"{self.schema.norm_bound:g}: encode the table with encode_shard"
            )
        terms = self.schema.row_terms
        weight = self._beside("weight", 0.0 if "weight" in terms else 1.0, 1.0)
        reach = terms.get("offset", 0.0)
        offset = self._beside("offset", 0.0 - reach, reach)
        for name, array in (("x", x), ("y", y), ("weight", weight), ("offset", offset)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def only(self, rows: NDArray[np.intp]) -> Shard:
        """These rows alone; `counts` stay those of the table."""
        beside = {name: getattr(self, name)[rows] for name in ("weight", "offset")}
        return replace(self, x=self.x[rows], y=self.y[rows], origin="", **beside)

    def in_order(self, order: NDArray[np.intp]) -> Shard:
        """All rows, otherwise ordered; their fingerprint stays."""
        return replace(self.only(order), origin=self.fingerprint())

    def _beside(self, name: str, low: float, high: float) -> FloatArray:
        """The weights or the offsets, within a hair of [low, high], then exactly; None: `high`."""
        given, rows = getattr(self, name), len(self.x)
        if given is None and name in self.schema.row_terms:
            raise DataError(f"rows without {name}s, which the schema has: use encode_shard")
        values = np.full(rows, high) if given is None else np.array(given, dtype=np.float64)
        room = 1e-12 * max(high, 1.0)
        if values.shape != (rows,) or not ((values >= low - room) & (values <= high + room)).all():
            raise DataError(
                f"{name}s are not {rows} numbers on [{low:g}, {high:g}]: encode the table with "
                "encode_shard"
            )
        return np.clip(values, low, high)

    def fingerprint(self) -> str:
        """SHA-256 of the rows in their table's order and of their schema, hexadecimal."""
        if self.origin:
            return self.origin
        arrays = [self.x, self.y, *(getattr(self, name) for name in self.schema.row_terms)]
        hashed = hashlib.sha256(self.schema.digest().encode())
        for array in arrays:
            hashed.update(np.ascontiguousarray(array).data)
        return hashed.hexdigest()

    def __repr__(self) -> str:
        """Show sizes only, never data."""
        return f"Shard(rows={self.rows}, num_features={self.num_features})"

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.x.shape[0])

    @property
    def num_features(self) -> int:
        """Length of a row, the bias included."""
        return int(self.x.shape[1])


def _private(given: FloatArray) -> FloatArray:
    """A copy, unless the array is nobody's view and read-only, as `encode` hands it over."""
    is_ours = np.asarray(given) is given and given.base is None and given.dtype == np.float64
    if is_ours and given.flags.c_contiguous and not given.flags.writeable:
        return given
    return np.array(given, dtype=np.float64, order="C")


# -- from a table ---------------------------------------------------------------------------------


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
            a numeric column; a label that is missing or none of the declared values; a weight below
            0; what ``strict`` refuses. Targets outside their range are clamped and counted like
            features.
    """
    readers = {"y": outcome_of(schema.label), **_beside(schema)}
    problems = Problems() if problems is None else problems
    arrays, counts = _encoded(frame, schema, readers, problems, strict, batch_rows)
    fields: dict[str, Any] = {**arrays}
    return Shard(counts=counts, schema=schema, **fields)


def encode_scored(
    frame: Table, schema: Schema, quiet: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Rows for prediction, as of ``encode_shard``, and what the offset adds to their scores.

    quiet: do not log which cells have no declared category, and so count as of none.

    Returns: shapes (rows, num_features) and (rows,). The table needs neither label nor weights.
    """
    readers = _beside(replace(schema, weight=None))
    arrays, counts = _encoded(frame, schema, readers, Problems())
    for words in () if quiet else counts.doubts():
        log.warning("%s", words)
    return arrays["x"], arrays.get("offset", np.zeros(len(arrays["x"])))


def _beside(schema: Schema) -> dict[str, Features]:
    """Readers of weights over their bound, and of offsets, as far as the schema has them."""
    kinds: tuple[tuple[str, Weight | Offset | None, Scale], ...] = (
        ("weight", schema.weight, "weight"),
        ("offset", schema.offset, "clamp"),
    )
    cure = "correct or drop these rows"
    return {name: Features((of.column,), scale, cure) for name, of, scale in kinds if of}


def _encoded(
    source: Table,
    schema: Schema,
    readers: Mapping[str, Features | Labels],
    problems: Problems,
    strict: bool = False,
    batch_rows: int = BATCH_ROWS,
) -> tuple[dict[str, FloatArray], ClampCounts]:
    """Fields of a `Shard`: x, and what the readers make of the table; its counts."""
    features = Features(schema.columns, schema.scaling)
    every = {"x": features, **readers}
    parts: dict[str, list[FloatArray]] = {name: [] for name in every}
    rows = clipped = 0
    first: pd.DataFrame | None = None
    for batch in batches(source, label=schema.label.name, problems=problems, rows=batch_rows):
        first = batch if first is None else first
        x = features.take(batch)
        x = x if schema.projection is None else schema.projection(x)
        encoded, moved = add_bias_and_clip(x, schema.row_norm)
        rows, clipped = rows + len(batch), clipped + moved
        parts["x"].append(encoded)
        for name, reader in readers.items():
            parts[name].append(reader.take(batch))
    assert first is not None  # noqa: S101 (a table has one batch at least)
    check_columns(first, [name for r in every.values() for name in r.names], problems)
    counts = ClampCounts(rows=rows, norm_clipped=clipped)
    for reader in every.values():
        reader.refuse(problems, strict)
        own = reader.counts().items()
        more: dict[str, Any] = {kind: {**getattr(counts, kind), **by} for kind, by in own}
        counts = replace(counts, **more)
    problems.refuse()
    whole = {name: joined(arrays) for name, arrays in parts.items()}
    if "weight" in whole:
        whole["weight"] = whole["weight"][:, 0]
    if "offset" in whole and schema.offset:  # in the same units as scores
        whole["offset"] = schema.offset.scores(whole["offset"][:, 0]) - schema.offset.centre
    return whole, counts


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


def joined(arrays: list[FloatArray]) -> FloatArray:
    """All rows in one array that is nobody else's, read-only; the list is emptied on the way.

    Its pages come into memory as the batches go.
    """
    found = np.empty((sum(map(len, arrays)), *arrays[0].shape[1:]))
    arrays.reverse()
    start = 0
    while arrays:
        part = arrays.pop()
        found[start : start + len(part)] = part
        start += len(part)
    found.setflags(write=False)
    return found


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


# -- of a whole table in memory -------------------------------------------------------------------


def encode_columns(
    frame: pd.DataFrame, columns: Sequence[Column], scale: Scale | None = None
) -> FloatArray:
    """Features, shape (rows, features), in the data's own units or scaled and clamped.

    Raises:
        SchemaError, DataError: see `encode_shard`.
    """
    return _whole(frame, Features(columns, scale))


def encode_outcome(frame: pd.DataFrame, label: Label | Classes | Targets) -> FloatArray:
    """What is predicted, see `Shard.y`.

    Raises:
        SchemaError, DataError: see `encode_shard`.
    """
    return _whole(frame, outcome_of(label))


def _whole(frame: pd.DataFrame, reader: Features | Labels) -> FloatArray:
    problems = Problems()
    check_columns(frame, reader.names, problems)
    found = reader.take(frame)
    reader.refuse(problems)
    problems.refuse()
    return found
