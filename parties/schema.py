"""The public description of the columns that all parties agree on before any data is touched.

Privacy: scaling uses numbers of the schema only, never of a private table. ``infer_schema``
therefore belongs on a public sample; on private rows its ranges would reveal extreme values.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from parties.checks import MIN_WIDTH, check_keys, check_number, parse_json, shown
from parties.columns import (
    CLAMP_SPREADS,
    SCALINGS,
    CategoricalColumn,
    Column,
    Label,
    NumericColumn,
    Scaling,
    column_from_dict,
)
from parties.infer import infer_columns, typical_row_norm
from parties.tables import FloatArray, Table, read_table
from parties.targets import Targets, infer_outcome, outcome_from_dict
from protocols.errors import ParameterError, SchemaError

__all__ = [
    "CLAMP_SPREADS",
    "CategoricalColumn",
    "Column",
    "Label",
    "NumericColumn",
    "Scaling",
    "Schema",
    "infer_schema",
]
_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """Columns, label and scaling of every party's table.

    columns: numeric and categorical columns in feature order, at least one.
    label: what to predict: a column of two values, or numeric targets.
    scaling: of numeric columns. "range": [low, high] -> [-1, 1], clamped there. "standard":
        (x - typical) / spread, clamped to [-2, 2]. Categories are one-hot in {0, 1}.
    row_norm: c > 0: rows, bias included, are divided by c and clipped to Euclidean norm 1. None:
        rows stay as scaled.

    A bias column of ones comes last.

    Raises:
        SchemaError: a field is out of range, or names collide; the message names them.
    """

    columns: tuple[Column, ...]
    label: Label | Targets
    scaling: Scaling = "standard"
    row_norm: float | None = None

    def __post_init__(self) -> None:
        """Check the fields one by one, then against each other."""
        given: object = self.columns
        if not isinstance(given, (list, tuple)) or not given:
            raise SchemaError(
                f"columns={shown(given)} is not a list of at least 1 column: add a column"
            )
        for column in self.columns:
            if not isinstance(column, (NumericColumn, CategoricalColumn)):
                raise SchemaError(f"columns has a {type(column).__name__}, not a column")
        object.__setattr__(self, "columns", tuple(self.columns))
        if not isinstance(self.label, (Label, Targets)):
            raise SchemaError(f"label is a {type(self.label).__name__}, not a Label or Targets")
        if self.scaling not in SCALINGS:
            raise SchemaError(f"scaling={shown(self.scaling)} is not 'range' or 'standard'")
        if self.row_norm is not None:
            row_norm = check_number("row_norm", self.row_norm, "the schema")
            if row_norm < MIN_WIDTH:
                raise SchemaError(
                    f"row_norm={row_norm:g} is not above 0: give a typical norm of a scaled row, "
                    "or null for no clipping"
                )
            object.__setattr__(self, "row_norm", row_norm)
        self._check_names()
        for column in self.columns if self.scaling == "standard" else ():
            if isinstance(column, NumericColumn) and column.spread is None:
                raise SchemaError(
                    f"column {shown(column.name)} has no typical value and spread, which "
                    "scaling='standard' needs: add both, or choose scaling='range'"
                )

    def _check_names(self) -> None:
        names = [column.name for column in self.columns]
        for name, count in Counter([*names, *self.label_names]).items():
            if count > 1:
                raise SchemaError(
                    f"name {shown(name)} is used by {count} columns (the label counts): "
                    "give each its own name"
                )
        for name, count in Counter(self.feature_names).items():
            if count > 1:
                raise SchemaError(
                    f"feature {shown(name)} arises {count} times from column and category names: "
                    "rename a column"
                )

    @property
    def label_names(self) -> tuple[str, ...]:
        """Columns to predict: one label, or the targets in order."""
        return self.label.names if isinstance(self.label, Targets) else (self.label.name,)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the expanded features, one-hot as "column=category", without the bias."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def num_features(self) -> int:
        """Length of an encoded row, the bias included."""
        return 1 + sum(len(column.features) for column in self.columns)

    @property
    def norm_bound(self) -> float:
        """B_x, a bound on the Euclidean norm of every encoded row (it enters the sensitivity).

        1 with ``row_norm``; otherwise the root of the summed squares of the features' bounds:
        sqrt(num_features) for "range", more for "standard", whose values reach 2.
        """
        if self.row_norm is not None:
            return 1.0
        squares = (
            column.bound(self.scaling) ** 2
            if isinstance(column, NumericColumn)
            else len(column.features)
            for column in self.columns
        )
        return math.sqrt(1 + sum(squares))

    def affine(self) -> tuple[FloatArray, FloatArray]:
        """Return (shift, scale), float64 arrays over ``feature_names`` [data units].

        An unclamped, unclipped feature is encoded as (x - shift) / scale / (row_norm or 1).
        """
        pairs = [
            column.affine(self.scaling) if isinstance(column, NumericColumn) else (0.0, 1.0)
            for column in self.columns
            for _ in column.features
        ]
        shift, scale = np.array(pairs, dtype=np.float64).T
        return shift, scale

    def model_in_data_units(self, weights: ArrayLike) -> tuple[FloatArray, float]:
        """Undo the scaling (not the clipping) of a model.

        weights: float64 array, shape (num_features,), the bias last.

        Returns: coef, float64 array over ``feature_names``, and the intercept, such that
        coef @ (raw expanded features) + intercept = weights @ (encoded row) for every row of
        which nothing was clamped or clipped.

        Raises:
            ParameterError: wrong shape, or a weight that is not finite.
        """
        w = np.asarray(weights, dtype=np.float64)
        if w.shape != (self.num_features,) or not np.isfinite(w).all():
            raise ParameterError(
                f"weights of shape {w.shape} are not {self.num_features} finite numbers: "
                "one per feature, and the bias last"
            )
        shift, scale = self.affine()
        # w . ((x - shift) / scale, 1) / c = (s . x + w_bias - s . shift) / c  with  s = w / scale
        c = 1.0 if self.row_norm is None else self.row_norm
        slopes = w[:-1] / scale
        return slopes / c, float((w[-1] - slopes @ shift) / c)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain JSON values."""
        return {
            "version": _VERSION,
            "scaling": self.scaling,
            "row_norm": self.row_norm,
            "label": self.label.to_dict(),
            "columns": [column.to_dict() for column in self.columns],
        }

    @classmethod
    def from_dict(cls, item: object) -> Schema:
        """Read what ``to_dict`` wrote; strict about keys and types.

        Raises:
            SchemaError: the message names the field, its value, the bound and the cure.
        """
        required = ("version", "scaling", "label", "columns")
        fields = check_keys(item, required, ("row_norm",), "the schema")
        if fields["version"] is True or fields["version"] != _VERSION:
            raise SchemaError(
                f"version={shown(fields['version'])} of the schema is not {_VERSION}: "
                "write it again with this version of ciphercohort"
            )
        columns = fields["columns"]
        if not isinstance(columns, list):
            raise SchemaError(f"columns={shown(columns)} is not a list: write [...]")
        return cls(
            columns=tuple(
                column_from_dict(column, f"column {k + 1}") for k, column in enumerate(columns)
            ),
            label=outcome_from_dict(fields["label"]),
            scaling=fields["scaling"],
            row_norm=fields.get("row_norm"),
        )

    def to_json(self) -> str:
        """Return the schema as JSON for a person to read and edit."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Schema:
        """Read a schema from JSON (UTF-8 where bytes).

        Raises:
            SchemaError: not JSON, a repeated key, or anything that ``from_dict`` refuses.
        """
        return cls.from_dict(parse_json(text))

    def digest(self) -> str:
        """Return the SHA-256 of the canonical JSON (sorted keys, no spaces, ASCII), in hex."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the schema to a JSON file (UTF-8)."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema file.

        Raises:
            SchemaError: the file is missing or unreadable, or holds no valid schema.
        """
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise SchemaError(
                f"schema file {str(path)!r} cannot be read ({type(error).__name__}): check the path"
            ) from None
        return cls.from_json(content)


def infer_schema(
    frame: Table,
    label: str | Sequence[str],
    positive: object = None,
    scaling: Scaling = "standard",
    row_norm: Literal["auto"] | float | None = "auto",
    *,
    exclude: Sequence[str] = (),
    include: Sequence[str] | None = None,
) -> Schema:
    """Describe a PUBLIC sample; the result is a first schema for a person to check.

    frame: anything that ``read_table`` takes; arrays get the column names x1..xd.
    label: name of the label column ("y" for a pair of arrays); or, in a list, those of numeric
        targets.
    positive: the label's positive value [default: the "1"-like one, or else the larger].
    row_norm: c, None for no clipping, or "auto" for the median norm of the scaled rows.
    exclude: columns to leave out.
    include: the only columns to use [default: all]. A column named here may look like an ID or
        have more than 100 categories.

    Text, boolean and categorical columns become categorical, all others numeric. Ranges are rounded
    outward to two significant digits, typical value, spread and row norm to one.

    Raises:
        SchemaError: unknown column names, a label without exactly two values, an unusable column.
        DataError: the table cannot be read or has no rows, or a label is missing.

    Warns:
        UserWarning: a column looks like an ID; it is kept.
    """
    names = [label] if isinstance(label, str) else list(label)
    table = read_table(frame, label=names[0])
    columns = tuple(infer_columns(table, names[0], (*exclude, *names[1:]), include))
    schema = Schema(columns=columns, label=infer_outcome(table, label, positive), scaling=scaling)
    if isinstance(row_norm, str):
        if row_norm != "auto":
            raise SchemaError(f"row_norm={shown(row_norm)} is not 'auto', a number or None")
        row_norm = typical_row_norm(table, schema.columns, schema.scaling)
    return replace(schema, row_norm=row_norm)
