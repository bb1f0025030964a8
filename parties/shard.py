"""One party's private rows, validated and encoded by the public schema.

Security: no message quotes a cell of the table, and the representation of a shard shows sizes
only, so that neither a log nor a traceback carries data.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from parties.columns import Label
from parties.encode import (
    ClampCounts,
    add_bias_and_clip,
    check_columns,
    encode_label,
    scale_columns,
)
from parties.schema import Schema
from parties.tables import FloatArray, Table, read_table
from parties.targets import Targets
from protocols.errors import DataError

__all__ = [
    "ClampCounts",
    "Shard",
    "encode_features",
    "encode_shard",
    "read_table",
]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Shard:
    """The rows of one party, ready to be packed and encrypted.

    x: float64 array, shape (rows, num_features), scaled, the bias last; every row's norm is at
        most ``schema.norm_bound``. Read-only.
    y: float64 array, shape (rows,), 1.0 for the positive label and 0.0 for the negative; of
        numeric targets shape (rows, outputs), on [0, 1]. Read-only.
    counts: how often the table left the schema.
    schema: the schema that the rows were encoded by.

    Privacy: the norm bound enters the sensitivity, so it is checked here, at birth, for every row.

    Raises:
        DataError: wrong shapes, no rows, a value that is not finite, a label outside {0, 1}, a
            target outside [0, 1], a row beyond the norm bound.
    """

    x: FloatArray = field(repr=False)
    y: FloatArray = field(repr=False)
    counts: ClampCounts = field(repr=False)
    schema: Schema = field(repr=False)

    def __post_init__(self) -> None:
        """Check shapes and bounds, then freeze private copies of both arrays."""
        x = np.array(self.x, dtype=np.float64, order="C")
        y = np.array(self.y, dtype=np.float64)
        if x.ndim != 2 or x.shape[0] < 1 or x.shape[1] != self.schema.num_features:
            raise DataError(
                f"x has shape {x.shape} where (rows, {self.schema.num_features}) with at least 1 "
                "row is due: encode the table with encode_shard"
            )
        _check_outcome(y, x.shape[0], self.schema.label)
        norms = np.sqrt(np.einsum("ij,ij->i", x, x))
        beyond = ~(norms <= self.schema.norm_bound * (1 + 1e-12))  # true for NaN
        if beyond.any():
            raise DataError(
                f"{int(beyond.sum())} of {x.shape[0]} rows are not finite or exceed the norm bound "
                f"{self.schema.norm_bound:g}: encode the table with encode_shard"
            )
        for name, array in (("x", x), ("y", y)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

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


def _check_outcome(y: FloatArray, rows: int, label: Label | Targets) -> None:
    due = (rows, label.outputs) if isinstance(label, Targets) else (rows,)
    if y.shape != due:
        raise DataError(f"y has shape {y.shape} where {due} is due")
    if isinstance(label, Targets):
        if not ((y >= 0) & (y <= 1)).all():  # false for NaN
            raise DataError("y leaves [0, 1]: encode the targets with encode_shard")
    elif not np.isin(y, (0.0, 1.0)).all():
        raise DataError("y has values other than 0 and 1: encode the label with encode_shard")


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
    check_columns(table, [*(column.name for column in schema.columns), *schema.label_names])
    x, counts = scale_columns(table, schema.columns, schema.scaling, strict)
    x, norm_clipped = add_bias_and_clip(x, schema.row_norm)
    counts = replace(counts, norm_clipped=norm_clipped)
    if isinstance(schema.label, Label):
        y = encode_label(table[schema.label.name], schema.label)
        return Shard(x=x, y=y, counts=counts, schema=schema)
    y, moved = schema.label.encode(table, strict)
    counts = replace(
        counts, clamped={**counts.clamped, **moved}, outside={**counts.outside, **moved}
    )
    return Shard(x=x, y=y, counts=counts, schema=schema)


def encode_features(frame: Table, schema: Schema, strict: bool = False) -> FloatArray:
    """Encode a table for prediction, exactly as ``encode_shard`` does; no label is needed.

    Returns: float64 array, shape (rows, num_features), the bias last.

    Raises:
        SchemaError, DataError: as ``encode_shard``, except for the label.
    """
    table = read_table(frame, label=schema.label.name)
    x, _ = scale_columns(table, schema.columns, schema.scaling, strict)
    return add_bias_and_clip(x, schema.row_norm)[0]
