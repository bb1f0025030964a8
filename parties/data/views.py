"""The same rows, encoded otherwise than for training: by the columns' ranges, or missing or not.

A view is public: it follows from the owner's schema. What it shows of a row is in `one_sum.OneSum`
objectives that name it.

RANGES, for standard errors: neither standardised nor clipped to a norm. Then a model of encoded
rows is exactly one of raw rows, and no row is longer than `row_norm`, for of each categorical
column one feature is 1 at most. Values beyond a range count as its end.

MISSING, for counts: of every column that is filled in 1 where a cell is empty, else -1.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from parties.data.schema import CategoricalColumn, Column, Missing, NumericColumn, Schema
from parties.data.shard import BATCH_ROWS, Shard, encode_shard
from parties.data.table import Table, batches
from protocols.errors import DataError, SchemaError
from protocols.one_sum import MISSING, RANGES

# -- by range -------------------------------------------------------------------------------------


def by_range(schema: Schema, *, private: bool = False) -> Schema:
    """The same columns, scaled by their ranges alone.

    private: without the last category of each column, which the others would determine: noise
    hides whether they do. A category that the schema does not list counts as the last one, then.
    """
    columns = tuple(map(_without_last, schema.columns)) if private else schema.columns
    return replace(schema, columns=columns, scaling="range", row_norm=None)


def _without_last(column: Column) -> Column:
    if not isinstance(column, CategoricalColumn):
        return column
    # Cells are filled in before: what they are filled with may be the last.
    missing: Missing = "indicator" if column.missing == "indicator" else "refuse"
    if len(column.categories) == 1:
        return CategoricalColumn(column.name, column.categories)
    return CategoricalColumn(column.name, column.categories[:-1], missing)


def row_norm(schema: Schema) -> float:
    """Of every row of `by_range`: 1 and at most 1 a column, 2 of numbers with an indicator."""
    beside = sum(isinstance(c, NumericColumn) and c.missing == "indicator" for c in schema.columns)
    return math.sqrt(1 + len(schema.columns) + beside)


def shard_by_range(table: Table, schema: Schema, *, private: bool) -> Shard:
    """Rows of a table.

    Raises:
        SchemaError, DataError: as `encode_shard`.
    """
    shard = encode_shard(table, by_range(schema))
    own = by_range(schema, private=private)
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


def missing_shard(table: Table, shard: Shard) -> Shard:
    """Which cells of a table are empty; shard: its rows."""
    own = missing_schema(shard.schema)
    names = [column.name for column in own.columns]
    read = batches(table, label=shard.schema.label.name, rows=BATCH_ROWS)
    empty = np.concatenate([frame[names].isna().to_numpy(dtype=np.float64) for frame in read])
    x = np.column_stack([2 * empty - 1, np.ones(shard.rows)])
    return Shard(x=x, y=shard.y, counts=shard.counts, schema=own)


# -- what a plan asks for -------------------------------------------------------------------------


class Views:
    """What a party answers sums over other views of its rows from.

    table: of which `shard` is, read again for each view: nobody keeps it in memory.
    """

    def __init__(self, table: Table, shard: Shard) -> None:
        self._table, self._shard = table, shard

    def find(self, view: str, digest: str) -> Shard | None:
        """Rows of a view whose schema has this digest; None: this table has no such view.

        Raises:
            DataError: the table has other rows than it had.
        """
        schema = self._shard.schema
        if view == RANGES:
            for private in (False, True):
                if by_range(schema, private=private).digest() == digest:
                    self._check_rows()
                    return shard_by_range(self._table, schema, private=private)
        fills = any(column.missing != "refuse" for column in schema.columns)
        if view == MISSING and fills and missing_schema(schema).digest() == digest:
            self._check_rows()
            return missing_shard(self._table, self._shard)
        return None

    def _check_rows(self) -> None:
        """All views are of the same rows."""
        if encode_shard(self._table, self._shard.schema).fingerprint() != self._shard.fingerprint():
            raise DataError("the table has changed since it was read: start the party again")
