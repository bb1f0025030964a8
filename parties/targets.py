"""Numeric targets with public ranges: what a regression predicts.

Each target is scaled to [0, 1] by the range of the schema, never by that of a private table, and
clamped there. The range bounds the sensitivity; predictions are mapped back by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from parties.checks import check_keys, shown
from parties.columns import CategoricalColumn, Label, NumericColumn, label_from_dict
from parties.encode import check_columns, expand_columns
from parties.infer import infer_column, infer_label
from parties.tables import FloatArray
from protocols.errors import DataError, SchemaError

# A linear fit needs rows as long as they are: clipping to a norm would bend it.
REGRESSION_SCALING: dict[str, Any] = {"scaling": "range", "row_norm": None}
"""Of an inferred schema with targets."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Targets:
    """columns: numeric columns with public ranges, at least one, in the order of the outputs.

    Raises:
        SchemaError: none, not numeric, or two of one name.
    """

    columns: tuple[NumericColumn, ...]

    def __post_init__(self) -> None:
        columns: object = self.columns
        if not isinstance(columns, (list, tuple)) or not columns:
            raise SchemaError("targets=() is empty: name at least 1 numeric column")
        object.__setattr__(self, "columns", tuple(columns))
        for column in self.columns:
            if isinstance(column, CategoricalColumn):
                raise SchemaError(
                    f"target {shown(column.name)} holds texts, not numbers: choose another column, "
                    "or correct its cells"
                )
            if not isinstance(column, NumericColumn):
                raise SchemaError(f"targets has a {type(column).__name__}, not a numeric column")
        for name, count in Counter(self.names).items():
            if count > 1:
                raise SchemaError(f"target {shown(name)} is named {count} times: name it once")

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def name(self) -> str:
        """All names, for titles."""
        return ", ".join(self.names)

    @property
    def outputs(self) -> int:
        """c."""
        return len(self.columns)

    @property
    def low(self) -> FloatArray:
        """Shape (c,) [data units]."""
        return np.array([column.low for column in self.columns])

    @property
    def width(self) -> FloatArray:
        """high - low, shape (c,) [data units]."""
        return np.array([column.high - column.low for column in self.columns])

    def encode(
        self, frame: pd.DataFrame, strict: bool = False
    ) -> tuple[FloatArray, dict[str, int]]:
        """Targets on [0, 1], shape (rows, c), and how many were clamped, by column.

        strict: refuse values outside the range instead.

        Raises:
            SchemaError: a column is missing.
            DataError: no rows; missing or infinite values, or text; what `strict` refuses.
        """
        check_columns(frame, self.names)
        raw, _ = expand_columns(frame, self.columns)
        scaled = (raw - self.low) / self.width
        outside = ((scaled < 0) | (scaled > 1)).sum(axis=0)
        clamped = {
            name: int(count) for name, count in zip(self.names, outside, strict=True) if count
        }
        if strict and clamped:
            raise DataError(
                f"targets outside their range: {sum(clamped.values())} in {', '.join(clamped)}; "
                "correct them, widen the range, or leave strict off to have them clamped"
            )
        return np.clip(scaled, 0.0, 1.0), clamped

    def to_data_units(self, scaled: FloatArray) -> FloatArray:
        """Predictions on the scale of [0, 1], shape (rows, c), in the data's units."""
        return self.low + scaled * self.width

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"targets": [column.to_dict() for column in self.columns]}

    @classmethod
    def from_dict(cls, item: object) -> Targets:
        """Read what `to_dict` wrote.

        Raises:
            SchemaError: an unknown key, a wrong type, or what the class refuses.
        """
        listed = check_keys(item, ("targets",), (), "the targets")["targets"]
        if not isinstance(listed, list):
            raise SchemaError(f"targets={shown(listed)} is not a list: write [...]")
        return cls(columns=tuple(_column(entry, k) for k, entry in enumerate(listed)))


def infer_outcome(
    frame: pd.DataFrame, label: str | Sequence[str], positive: object
) -> Label | Targets:
    """The label of this name, or the targets of these names; see `parties.schema.infer_schema`."""
    return (
        infer_label(frame[label], positive)
        if isinstance(label, str)
        else infer_targets(frame, label)
    )


def outcome_from_dict(item: object) -> Label | Targets:
    """Read a label or targets, whichever they are."""
    if isinstance(item, Mapping) and "targets" in item:
        return Targets.from_dict(item)
    return label_from_dict(item)


def infer_targets(frame: pd.DataFrame, names: Sequence[str]) -> Targets:
    """Describe targets of a PUBLIC sample: ranges rounded outward to two digits.

    Raises:
        SchemaError: an unknown column, or one that is not numeric.
    """
    check_columns(frame, names)
    columns: Any = tuple(infer_column(frame[name], deliberate=True) for name in names)
    return Targets(columns=columns)


def _column(item: object, position: int) -> NumericColumn:
    owner = f"target {position + 1}"
    kind = item.get("kind") if isinstance(item, Mapping) else None
    if kind != "numeric":
        raise SchemaError(f"kind={shown(kind)} of {owner} is not 'numeric'")
    fields = check_keys(item, ("kind", "name", "low", "high"), ("typical", "spread"), owner)
    return NumericColumn(**{key: fields[key] for key in fields if key != "kind"})
