"""The public description of the columns that all parties agree on before any data is touched.

Privacy: scaling uses numbers of the schema only, never of a private table.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from parties.data.columns import (
    Column,
    Columns,
    FloatArray,
    NumericColumn,
    Public,
    Scaling,
    Width,
    once,
)
from parties.data.outcome import Classes, Label, Offset, Targets, Weight
from protocols.documents import parse_json, read, shown
from protocols.errors import ParameterError, SchemaError

_VERSION = 1


class _Document(Public, frozen=True):
    """A schema file; label: a `Label`, `Classes` or `Targets`."""

    version: Literal[1]
    scaling: Scaling
    label: dict[str, Any]
    columns: Columns
    row_norm: Width | None = None
    weight: Weight | None = None
    offset: Offset | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """Columns, label and scaling of every party's table.

    columns: numeric and categorical columns in feature order, at least one.
    label: what to predict: a column of two values, of several classes, or numeric targets.
    scaling: of numeric columns. "range": [low, high] -> [-1, 1], clamped there. "standard":
        (x - typical) / spread, clamped to [-2, 2]. Categories are one-hot in {0, 1}.
    row_norm: c > 0: rows, bias included, are divided by c and clipped to Euclidean norm 1. None:
        rows stay as scaled.
    weight, offset: columns beside the features; None: every row counts the same, and its score is
        that of its features.

    A bias column of ones comes last.

    Raises:
        SchemaError: a field is out of range, or names collide; the message names them.
    """

    columns: tuple[Column, ...]
    label: Label | Classes | Targets
    scaling: Scaling = "standard"
    row_norm: float | None = None
    weight: Weight | None = None
    offset: Offset | None = None

    def __post_init__(self) -> None:
        """Check the fields one by one, then against each other."""
        kinds = {"columns": Columns, "scaling": Scaling, "row_norm": Width | None}
        for name, kind in kinds.items():
            value = read(getattr(self, name), kind, "the schema", SchemaError, name)
            object.__setattr__(self, name, value)
        if not isinstance(self.label, (Label, Classes, Targets)):
            what = type(self.label).__name__
            raise SchemaError(f"label is a {what}, not a Label, Classes or Targets")
        if isinstance(self.label, Classes) and self.offset is not None:
            raise SchemaError(
                f"offset={shown(self.offset.name)} beside a label of several classes: an offset of "
                "every class's score changes no probability; leave it out"
            )
        names = [*(column.name for column in self.columns), *self.label.names, *self.beside]
        once(names, "name {} is used by {} columns (the label counts)")
        once(self.feature_names, "feature {} arises {} times from column and category names")
        for column in self.columns if self.scaling == "standard" else ():
            if isinstance(column, NumericColumn) and column.spread is None:
                raise SchemaError(
                    f"column {shown(column.name)} has no typical value and spread, which "
                    "scaling='standard' needs: add both, or choose scaling='range'"
                )

    @property
    def beside(self) -> tuple[str, ...]:
        """Names of the columns of weights and offsets, as far as there are any."""
        return tuple(each.name for each in (self.weight, self.offset) if each is not None)

    @property
    def row_terms(self) -> dict[str, float]:
        """What a plan states of weights and offsets: the bound, and how far offsets reach."""
        found: dict[str, float] = {}
        if self.weight is not None:
            found["weight"] = self.weight.bound
        if self.offset is not None:
            found["offset"] = self.offset.reach
        return found

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the expanded features, one-hot as "column=category", without the bias."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def num_features(self) -> int:
        """Length of an encoded row, the bias included."""
        return 1 + len(self.feature_names)

    @property
    def bias(self) -> float:
        """What the bias column holds in a row that is not clipped."""
        return 1.0 if self.row_norm is None else 1 / self.row_norm

    @property
    def norm_bound(self) -> float:
        """B_x, a bound on the Euclidean norm of every encoded row (it enters the sensitivity).

        1 with ``row_norm``; otherwise the root of the summed squares of the features' bounds:
        sqrt(num_features) for "range", more for "standard", whose values reach 2.
        """
        if self.row_norm is not None:
            return 1.0
        squares = (bound**2 for c in self.columns for bound in c.bounds(self.scaling))
        return math.sqrt(1 + sum(squares))

    def affine(self) -> tuple[FloatArray, FloatArray]:
        """Return (shift, scale), float64 arrays over ``feature_names`` [data units].

        An unclamped, unclipped feature is encoded as (x - shift) / scale / (row_norm or 1).
        """
        pairs = [pair for c in self.columns for pair in c.affines(self.scaling)]
        shift, scale = np.array(pairs, dtype=np.float64).T
        return shift, scale

    def model_in_data_units(self, weights: ArrayLike) -> tuple[FloatArray, float]:
        """Undo the scaling (not the clipping) of weights, shape (num_features,), the bias last.

        Returns: coef over ``feature_names`` and intercept, such that coef @ (raw expanded features)
        + intercept = weights @ (encoded row) for every row of which nothing was clamped or clipped;
        with offsets less their centre, so that offsets are added as they are.

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
        centre = 0.0 if self.offset is None else self.offset.centre
        return slopes / c, float((w[-1] - slopes @ shift) / c) - centre

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain JSON values."""
        plain = {name: getattr(self, name) for name in ("scaling", "row_norm", "label", "columns")}
        fields: dict[str, Any] = msgspec.to_builtins({"version": _VERSION, **plain})
        for column in (*fields["columns"], *fields["label"].get("targets", ())):
            # The digest of a schema that fills nothing in is that of version 0.1.
            if column["missing"] == "refuse":
                del column["missing"]
            if column["kind"] == "categorical" and column["typical"] is None:
                del column["typical"]
        for name in ("weight", "offset"):
            if (beside := getattr(self, name)) is not None:
                fields[name] = msgspec.to_builtins(beside)
        return fields

    @classmethod
    def from_dict(cls, item: object) -> Schema:
        """Read what ``to_dict`` wrote; anything else is a SchemaError."""
        found: _Document = read(item, _Document, "the schema", SchemaError)
        kinds = {"targets": Targets, "classes": Classes}
        kind = next((kinds[key] for key in kinds if key in found.label), Label)
        return cls(
            columns=found.columns,
            label=read(found.label, kind, "the schema", SchemaError, "label"),
            scaling=found.scaling,
            row_norm=found.row_norm,
            weight=found.weight,
            offset=found.offset,
        )

    def to_json(self) -> str:
        """Return the schema as JSON for a person to read and edit."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Schema:
        """Read JSON (UTF-8 where bytes); a repeated key, for one, is a SchemaError."""
        return cls.from_dict(parse_json(text, "the schema", SchemaError))

    def digest(self) -> str:
        """Return the SHA-256 of the canonical JSON (sorted keys, no spaces, ASCII), in hex."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the schema to a JSON file (UTF-8)."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema file; one that is missing or holds no schema is a SchemaError."""
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise SchemaError(
                f"schema file {str(path)!r} cannot be read ({type(error).__name__}): check the path"
            ) from None
        return cls.from_json(content)
