"""The same rows, encoded otherwise than for training: by the columns' ranges, or missing or not.

A view is public: it follows from the owner's schema. What it shows of a row is in `one_sum.OneSum`
objectives that name it.

`ranges`, for standard errors: neither standardised nor clipped to a norm. Then a model of encoded
rows is exactly one of raw rows, and no row is longer than `row_norm`, for of each categorical
column one feature is 1 at most. Values beyond a range count as its end.

`missing`, for counts: of every column that is filled in 1 where a cell is empty, else -1.

`cells`, for descriptions: by the columns' ranges, and of every column that is filled in whether a
cell is empty.

Of `ranges` where the schema has models of missing cells: one view more for each time that these are
drawn (`parties.reader.imputation`).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.kernel.private import closed
from parties.reader import Problems
from parties.reader.cells import Features, missing_cells
from parties.reader.schema import (
    CategoricalColumn,
    Column,
    FloatArray,
    Missing,
    NumericColumn,
    Schema,
)
from parties.reader.shard import Shard, add_bias_and_clip, encode_shard, joined
from parties.reader.table import Table, batches
from protocols.errors import SchemaError
from protocols.names import CELLS_VIEW, EMPTY_VIEW, RANGES_VIEW

log = logging.getLogger(__name__)

# -- by range -------------------------------------------------------------------------------------


def by_range(schema: Schema, *, private: bool = False) -> Schema:
    """The same columns, scaled by their ranges alone.

    private: without the first category of each column, which the others would determine: noise
    hides whether they do. A category that the schema does not list counts as the first, then.
    """
    own = replace(schema, scaling="range", row_norm=None, projection=None)
    if not private:
        return own
    return replace(own, columns=tuple(map(_without_first, schema.columns)), imputation=None)


def _without_first(column: Column) -> Column:
    if not isinstance(column, CategoricalColumn):
        return column
    # Cells are filled in before: what they are filled with may be the first.
    missing: Missing = "indicator" if column.missing == "indicator" else "refuse"
    if len(column.categories) == 1:
        return CategoricalColumn(column.name, column.categories)
    return CategoricalColumn(column.name, column.categories[1:], missing)


def row_norm(schema: Schema) -> float:
    """Of every row of `by_range`: 1 and at most 1 a column, 2 of numbers with an indicator."""
    return by_range(schema).norm_bound


def shard_by_range(table: Table, schema: Schema, *, private: bool) -> Shard:
    """Rows of a table.

    Raises:
        SchemaError, DataError: as `encode_shard`.
    """
    shard = encode_shard(table, by_range(schema))
    return _private_view(shard, schema) if private else shard


def _private_view(shard: Shard, schema: Schema) -> Shard:
    """Of rows by range, those of `by_range` with private."""
    own = by_range(schema, private=True)
    kept = np.isin(shard.schema.feature_names, own.feature_names)
    return replace(shard, x=shard.x[:, [*kept, True]], schema=own)


# -- missing cells --------------------------------------------------------------------------------


def missing_schema(schema: Schema) -> Schema:
    """A column of zeros and ones for each that is filled in.

    Raises:
        SchemaError: none is.
    """
    filled = [column.name for column in schema.columns if column.missing != "refuse"]
    if not filled:
        raise SchemaError(
            "the schema refuses empty cells in every column, so there are none to count: missing: "
            "typical or indicator fills them in"
        )
    columns = tuple(NumericColumn(name, 0.0, 1.0) for name in filled)
    return Schema(columns=columns, label=schema.label, scaling="range")


# -- cells ----------------------------------------------------------------------------------------


def cells_schema(schema: Schema) -> Schema:
    """The same columns by their ranges, each with an indicator if it is filled in."""
    return replace(by_range(schema), columns=tuple(map(_with_indicator, schema.columns)))


def _with_indicator(column: Column) -> Column:
    if column.missing == "refuse":
        return column
    if isinstance(column, CategoricalColumn):
        return CategoricalColumn(column.name, column.categories, "indicator")
    return msgspec.structs.replace(column, missing="indicator")


def views_of(schema: Schema, view: str) -> Iterator[Schema]:
    """Schemas of a view that a plan may ask for."""
    if view == RANGES_VIEW:
        yield by_range(schema)
        yield by_range(schema, private=True)
        yield from _drawn(schema)
    if view == CELLS_VIEW:
        yield cells_schema(schema)
    if view == EMPTY_VIEW and any(column.missing != "refuse" for column in schema.columns):
        yield missing_schema(schema)


def _drawn(schema: Schema) -> Iterator[Schema]:
    """One for each draw; owners whose schema has no models of missing cells load no such code."""
    if schema.imputation is None:
        return
    from parties.reader.imputation import MOST_DRAWS, drawn

    own = by_range(schema)
    yield from (drawn(own, draw) for draw in range(1, MOST_DRAWS + 1))


# -- what a plan asks for -------------------------------------------------------------------------


class Views:
    """What a party answers sums over other views of its rows from.

    shard: its rows as for training; ranges: the same by their columns' ranges; empty: which cells
    of the columns that are filled in are missing, shape (rows, such columns); coins: the owner's,
    for draws of missing cells.

    Privacy: all of it was encoded before the party enrolled, so that neither how long an answer
    takes nor whether there is one depends on the rows.
    """

    def __init__(
        self, shard: Shard, ranges: Shard, empty: NDArray[np.bool_], coins: bytes = b""
    ) -> None:
        self._shard, self._ranges, self._empty, self._coins = shard, ranges, empty, coins

    def trained(self) -> str:
        """Digest of the rows as for training, which coins are of."""
        return self._shard.fingerprint()

    def fingerprint(self) -> str:
        """SHA-256 of all that sums of these rows are over: of the ranges and of what was empty too.

        Rows as for training would not do: two values beyond their clamp are the same there, and so
        are a missing cell and what it is filled with.
        """
        found = hashlib.sha256(self._shard.fingerprint().encode())
        found.update(self._ranges.fingerprint().encode())
        found.update(np.ascontiguousarray(self._empty).data)
        return found.hexdigest()

    def find(self, view: str, digest: str) -> Shard | None:
        """Rows of a view whose schema has this digest, closed; None: there is no such view."""
        schema = self._shard.schema
        if view == RANGES_VIEW and self._ranges.schema.digest() == digest:
            return closed(self._ranges)
        if view == RANGES_VIEW and by_range(schema, private=True).digest() == digest:
            return closed(_private_view(self._ranges, schema))
        if view == EMPTY_VIEW and self._empty.size and missing_schema(schema).digest() == digest:
            return closed(self._missing())
        if view == CELLS_VIEW and cells_schema(schema).digest() == digest:
            return closed(self._cells())
        for own in _drawn(schema) if view == RANGES_VIEW else ():
            if own.digest() == digest:
                return closed(self.imputed(own))
        return None

    def imputed(self, schema: Schema) -> Shard:
        """Rows of `imputation.drawn`, in the open: a simulation has them."""
        from parties.reader.imputation import imputed

        ranges, columns = self._ranges, self._shard.schema.columns
        filled = [column.name for column in columns if column.missing != "refuse"]
        empty = dict(zip(filled, self._empty.T, strict=True))
        features = dict(zip(ranges.schema.expanded_names, ranges.x.T, strict=False))
        x = imputed(features, ranges.y, schema, empty, self._coins)
        return replace(ranges, x=add_bias_and_clip(x, None)[0], schema=schema)

    def _cells(self) -> Shard:
        """Where a typical value was filled in, a categorical column has no category instead."""
        ranges, parts, start, filled = self._ranges, list[FloatArray](), 0, 0
        for column in ranges.schema.columns:
            part = ranges.x[:, start : start + len(column.features)]
            start += len(column.features)
            if column.missing != "refuse":
                empty, filled = self._empty[:, filled], filled + 1
                if column.missing == "typical":
                    kept = 1.0 - empty * isinstance(column, CategoricalColumn)
                    part = np.column_stack([part * kept[:, None], empty])
            parts.append(part)
        x = np.column_stack([*parts, ranges.x[:, -1]])
        return replace(ranges, x=x, schema=cells_schema(self._shard.schema))

    def _missing(self) -> Shard:
        shard, own = self._shard, missing_schema(self._shard.schema)
        x = np.column_stack([2.0 * self._empty - 1, np.ones(shard.rows)])
        return Shard(x=x, y=shard.y, counts=shard.counts, schema=own)


def encode_with_views(
    table: Table, schema: Schema, strict: bool = False, coins: bytes = b""
) -> tuple[Shard, Views]:
    """A party's rows and their views, closed, from one reading of the table; coins: see `Views`.

    Raises:
        SchemaError, DataError: as `encode_shard`.
    """
    own, problems = by_range(schema), Problems()
    features = None if own == schema else Features(own.columns, own.scaling)
    filled = [column.name for column in schema.columns if column.missing != "refuse"]
    parts: list[FloatArray] = []
    empty: list[NDArray[np.bool_]] = []

    def seen(rows: int | None) -> Iterator[pd.DataFrame]:
        for batch in batches(table, label=schema.label.name, problems=problems, rows=rows):
            if features is not None:
                parts.append(add_bias_and_clip(features.take(batch), None)[0])
            held = [missing_cells(batch[name]) for name in filled if name in batch]
            empty.append(np.array(held, dtype=bool).T)
            yield batch

    shard = encode_shard(seen, schema, strict, problems)
    for words in shard.counts.doubts():
        log.warning("for the owner of these rows alone: %s", words)
    ranges = shard
    if features is not None:
        ranges = replace(shard, x=joined(parts), schema=own)
    return closed(shard), Views(shard, ranges, np.concatenate(empty), coins)
