"""Numeric targets: scaled by public ranges, clamped, mapped back; cells never quoted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from parties.data.columns import CategoricalColumn, NumericColumn
from parties.data.encode import encode_targets
from parties.data.infer import infer_targets
from parties.data.outcome import Targets
from parties.data.schema import Schema
from protocols.errors import DataError, SchemaError

WARD = CategoricalColumn(name="c", categories=("a",))
Y = NumericColumn(name="Y", low=0, high=1)
TARGETS = Targets(
    columns=(NumericColumn(name="Y2", low=-10, high=30), NumericColumn(name="Y1", low=0, high=1))
)


def frame(**changes: object) -> pd.DataFrame:
    return pd.DataFrame({"Y1": [0.0, 0.5, 1.0], "x": [1, 2, 3], "Y2": [-10, 10, 30]} | changes)


def test_encode_and_back() -> None:
    """In the order of the targets, not of the table."""
    scaled, clamped = encode_targets(frame(), TARGETS)
    np.testing.assert_array_equal(scaled, [[0, 0], [0.5, 0.5], [1, 1]])
    np.testing.assert_array_equal(TARGETS.to_data_units(scaled)[:, 0], [-10, 10, 30])
    assert clamped == {}
    # Predictions outside the range are mapped back as they are.
    assert TARGETS.to_data_units(np.array([[1.25, -1.0]])).tolist() == [[40.0, -1.0]]


def test_values_outside_are_clamped_and_counted_or_refused() -> None:
    table = frame(Y2=[-11, 10, 1e300])
    scaled, clamped = encode_targets(table, TARGETS)
    assert scaled[:, 0].tolist() == [0.0, 0.5, 1.0]
    assert clamped == {"Y2": 2}
    with pytest.raises(DataError, match="outside their range: 2 in Y2") as caught:
        encode_targets(table, TARGETS, strict=True)
    assert "1e" not in str(caught.value)


@pytest.mark.parametrize("cell", [None, np.inf, "secret"])
def test_unusable_cells_are_refused_unquoted(cell: object) -> None:
    with pytest.raises(DataError, match="Y1") as caught:
        encode_targets(frame(Y1=[0.1, cell, 0.2]), TARGETS)
    assert "secret" not in str(caught.value)


def test_missing_column() -> None:
    with pytest.raises(SchemaError, match="'Y2'"):
        encode_targets(frame().drop(columns="Y2"), TARGETS)


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
