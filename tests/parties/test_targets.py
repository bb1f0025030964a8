"""Numeric targets: scaled by public ranges, clamped, mapped back; cells never quoted."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from parties.columns import CategoricalColumn, NumericColumn
from parties.targets import Targets, infer_targets
from protocols.errors import DataError, SchemaError

TARGETS = Targets(
    columns=(NumericColumn(name="Y2", low=-10, high=30), NumericColumn(name="Y1", low=0, high=1))
)


def frame(**changes: object) -> pd.DataFrame:
    return pd.DataFrame({"Y1": [0.0, 0.5, 1.0], "x": [1, 2, 3], "Y2": [-10, 10, 30]} | changes)


def test_encode_and_back() -> None:
    """In the order of the targets, not of the table."""
    scaled, clamped = TARGETS.encode(frame())
    np.testing.assert_array_equal(scaled, [[0, 0], [0.5, 0.5], [1, 1]])
    np.testing.assert_array_equal(TARGETS.to_data_units(scaled)[:, 0], [-10, 10, 30])
    assert clamped == {}
    # Predictions outside the range are mapped back as they are.
    assert TARGETS.to_data_units(np.array([[1.25, -1.0]])).tolist() == [[40.0, -1.0]]


def test_values_outside_are_clamped_and_counted_or_refused() -> None:
    table = frame(Y2=[-11, 10, 1e300])
    scaled, clamped = TARGETS.encode(table)
    assert scaled[:, 0].tolist() == [0.0, 0.5, 1.0]
    assert clamped == {"Y2": 2}
    with pytest.raises(DataError, match="outside their range: 2 in Y2") as caught:
        TARGETS.encode(table, strict=True)
    assert "1e" not in str(caught.value)


@pytest.mark.parametrize("cell", [None, np.inf, "secret"])
def test_unusable_cells_are_refused_unquoted(cell: object) -> None:
    with pytest.raises(DataError, match="Y1") as caught:
        TARGETS.encode(frame(Y1=[0.1, cell, 0.2]))
    assert "secret" not in str(caught.value)


def test_missing_column() -> None:
    with pytest.raises(SchemaError, match="'Y2'"):
        TARGETS.encode(frame().drop(columns="Y2"))


def test_json() -> None:
    text = json.dumps(TARGETS.to_dict())
    assert Targets.from_dict(json.loads(text)) == TARGETS
    for item in ({}, {"targets": 1}, {"targets": [{"kind": "categorical"}]}, {"targets": [3]}):
        with pytest.raises(SchemaError):
            Targets.from_dict(item)


def test_refused_at_birth() -> None:
    column = NumericColumn(name="Y", low=0, high=1)
    for columns in ((), (column, column), (CategoricalColumn(name="c", categories=("a",)),)):
        with pytest.raises(SchemaError):
            Targets(columns=columns)  # type: ignore[arg-type]


def test_infer() -> None:
    targets = infer_targets(frame(Y2=[-9.87, 10, 27.3]), ["Y2", "Y1"])
    assert targets.names == ("Y2", "Y1")
    assert targets.outputs == 2
    assert targets.low[0] <= -9.87
    assert targets.low[0] + targets.width[0] >= 27.3
    with pytest.raises(SchemaError):
        infer_targets(frame(Y1=["a", "b", "c"]), ["Y1"])
