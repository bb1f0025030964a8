"""One party's encoded rows, checked once more before anything is packed and encrypted.

Security: no message quotes a cell of the table, and the representation of a shard shows sizes
only, so that neither a log nor a traceback carries data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from parties.data.schema import FloatArray, Schema, Targets
from protocols.errors import DataError


@dataclass(frozen=True, kw_only=True, slots=True)
class ClampCounts:
    """How often a table left the public schema. As private as the table: not to be sent.

    rows: rows of the table.
    clamped: values moved to the end of the scaled interval, by column.
    outside: values outside the declared [low, high], by column. The same as ``clamped`` for
        "range" scaling; "standard" scaling clamps at two spreads, wherever low and high are.
    unknown: cells of no declared category, by column.
    filled: missing cells that the schema's typical value or indicator stands for, by column.
    norm_clipped: rows that were longer than the row norm.

    Columns without any such cell are left out.
    """

    rows: int
    clamped: Mapping[str, int] = field(default_factory=dict)
    outside: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    filled: Mapping[str, int] = field(default_factory=dict)
    norm_clipped: int = 0

    def summary(self) -> list[str]:
        """Return one line per kind of change, none for a table that fits its schema."""
        kinds = {
            "values clamped": self.clamped,
            "values outside the declared range": self.outside,
            "cells of no declared category": self.unknown,
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
        label = self.schema.label
        due = (len(x), label.outputs) if isinstance(label, Targets) else (len(x),)
        if y.shape != due:
            raise DataError(f"y has shape {y.shape} where {due} is due")
        if isinstance(label, Targets) and not ((y >= 0) & (y <= 1)).all():  # false for NaN
            raise DataError("y leaves [0, 1]: encode the targets with encode_shard")
        if not isinstance(label, Targets) and not np.isin(y, (0.0, 1.0)).all():
            raise DataError("y has values other than 0 and 1: encode the label with encode_shard")
        norms = np.sqrt(np.einsum("ij,ij->i", x, x))
        beyond = ~(norms <= self.schema.norm_bound * (1 + 1e-12))  # true for NaN
        if beyond.any():
            raise DataError(
                f"{int(beyond.sum())} of {len(x)} rows are not finite or exceed the norm bound "
                f"{self.schema.norm_bound:g}: encode the table with encode_shard"
            )
        for name, array in (("x", x), ("y", y)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def fingerprint(self) -> str:
        """SHA-256 of the rows and their schema, hexadecimal."""
        parts = (self.schema.digest().encode(), self.x.tobytes(), self.y.tobytes())
        return hashlib.sha256(b"".join(parts)).hexdigest()

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
