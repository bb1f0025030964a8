"""One party's encoded rows, checked once more before anything is packed and encrypted.

Security: no message quotes a cell of the table, and the representation of a shard shows sizes
only, so that neither a log nor a traceback carries data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parties.data.columns import FloatArray
from parties.data.outcome import Classes, Label
from parties.data.schema import Schema
from protocols.errors import DataError

_USUAL: Any = None  # which becomes an array at birth


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
    places: where the cells of no declared category stand, in words, by column.

    Columns without any such cell are left out.
    """

    rows: int
    clamped: Mapping[str, int] = field(default_factory=dict)
    outside: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    filled: Mapping[str, int] = field(default_factory=dict)
    norm_clipped: int = 0
    places: Mapping[str, str] = field(default_factory=dict, compare=False)

    def summary(self) -> list[str]:
        """Return one line per kind of change, none for a table that fits its schema."""
        kinds = {
            "values clamped": self.clamped,
            "values outside the declared range": self.outside,
            "cells of no declared category": self.unknown,
            "missing cells filled in": self.filled,
        }
        lines = [
            f"{what}: {sum(c.values())} in {', '.join(map(self._placed(c), c))}"
            for what, c in kinds.items()
            if c
        ]
        if self.norm_clipped:
            lines.append(f"rows clipped to the row norm: {self.norm_clipped} of {self.rows}")
        return lines

    def _placed(self, counts: Mapping[str, int]) -> Callable[[str], str]:
        """Names of columns, those of unknown categories with the places."""
        if counts is not self.unknown:
            return str
        return lambda name: f"{name} ({self.places[name]})" if name in self.places else name


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
        norms = np.sqrt(np.einsum("ij,ij->i", x, x))
        beyond = ~(norms <= self.schema.norm_bound * (1 + 1e-12))  # true for NaN
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
        return replace(self, x=self.x[rows], y=self.y[rows], **beside)

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
        """SHA-256 of the rows and their schema, hexadecimal."""
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
