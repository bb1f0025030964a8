"""Numeric targets: scaled by public ranges, clamped, mapped back; cells never quoted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from parties.reader.infer import infer_targets
from parties.reader.schema import CategoricalColumn, NumericColumn, Schema, Targets
from parties.reader.shard import encode_outcome, encode_shard
from protocols.errors import DataError, SchemaError

WARD = CategoricalColumn(name="c", categories=("a",))
Y = NumericColumn(name="Y", low=0, high=1)
TARGETS = Targets(
    columns=(NumericColumn(name="Y2", low=-10, high=30), NumericColumn(name="Y1", low=0, high=1))
)

SCHEMA = Schema(columns=(NumericColumn(name="x", low=0, high=9),), label=TARGETS, scaling="range")


def frame(**changes: object) -> pd.DataFrame:
    return pd.DataFrame({"Y1": [0.0, 0.5, 1.0], "x": [1, 2, 3], "Y2": [-10, 10, 30]} | changes)


def test_encode_and_back() -> None:
    """In the order of the targets, not of the table."""
    scaled = encode_outcome(frame(), TARGETS)
    np.testing.assert_array_equal(scaled, [[0, 0], [0.5, 0.5], [1, 1]])
    np.testing.assert_array_equal(TARGETS.to_data_units(scaled)[:, 0], [-10, 10, 30])
    # Predictions outside the range are mapped back as they are.
    assert TARGETS.to_data_units(np.array([[1.25, -1.0]])).tolist() == [[40.0, -1.0]]


def test_values_outside_are_clamped_and_counted_or_refused() -> None:
    table = frame(Y2=[-11, 10, 1e300])
    shard = encode_shard(table, SCHEMA)
    assert shard.y[:, 0].tolist() == [0.0, 0.5, 1.0]
    assert shard.counts.clamped == shard.counts.outside == {"Y2": 2}
    assert not encode_shard(frame(), SCHEMA, strict=True).counts.clamped
    words = r"2 of 3 values of column 'Y2' are outside its range \(rows 1, 3\)"
    with pytest.raises(DataError, match=words) as caught:
        encode_shard(table, SCHEMA, strict=True)
    assert "1e" not in str(caught.value)


@pytest.mark.parametrize("cell", [None, np.inf, "secret"])
def test_unusable_cells_are_refused_unquoted(cell: object) -> None:
    with pytest.raises(DataError, match="Y1") as caught:
        encode_outcome(frame(Y1=[0.1, cell, 0.2]), TARGETS)
    assert "secret" not in str(caught.value)


def test_missing_column() -> None:
    with pytest.raises(SchemaError, match="'Y2'"):
        encode_outcome(frame().drop(columns="Y2"), TARGETS)


def test_json() -> None:
    schema = Schema(columns=(WARD,), label=TARGETS, scaling="range")
    assert Schema.from_json(schema.to_json()) == schema
    item = schema.to_dict()
    for targets in (1, [{"kind": "categorical"}], [3], [], {}):
        with pytest.raises(SchemaError, match="label.targets"):
            Schema.from_dict(item | {"label": {"targets": targets}})


@pytest.mark.parametrize("columns", [(), (Y, Y), (WARD,)])
def test_refused_at_birth(columns: Any) -> None:
    with pytest.raises(SchemaError):
        Targets(columns=columns)


def test_infer() -> None:
    targets = infer_targets(frame(Y2=[-9.87, 10, 27.3]), ["Y2", "Y1"])
    assert targets.names == ("Y2", "Y1")
    assert targets.outputs == 2
    assert targets.low[0] <= -9.87
    assert targets.low[0] + targets.width[0] >= 27.3
    with pytest.raises(SchemaError):
        infer_targets(frame(Y1=["a", "b", "c"]), ["Y1"])
