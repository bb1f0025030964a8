"""Private rows: encoding and its bounds. Refusals, which must not leak, are in test_refusals.py."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parties.reader import Problems
from parties.reader.cells import Features
from parties.reader.schema import CategoricalColumn, Label, NumericColumn, Schema
from parties.reader.shard import ClampCounts, Shard, encode_scored, encode_shard
from protocols.errors import DataError
from tests.support.helpers import raw_features

AGE = NumericColumn(name="age", low=0, high=100, typical=40, spread=10)
WARD = CategoricalColumn(name="ward", categories=("A", "B"))
LABEL = Label(name="ill", positive="yes", negative="no")


def make_schema(**changes: Any) -> Schema:
    fields: dict[str, Any] = {"columns": (AGE, WARD), "label": LABEL}
    return Schema(**(fields | changes))


def table(**changes: Any) -> pd.DataFrame:
    rows = {"ward": ["A", "B", "C"], "age": [50, 65, 120], "ill": ["yes", "no", "no"], "other": 7}
    return pd.DataFrame(rows | changes)


def test_range_scaling() -> None:
    shard = encode_shard(table(), make_schema(scaling="range"))
    expected = [[0.0, 1, 0, 1], [0.3, 0, 1, 1], [1.0, 0, 0, 1]]
    np.testing.assert_allclose(shard.x, expected, atol=1e-15)
    assert shard.y.tolist() == [1.0, 0.0, 0.0]
    assert shard.counts == ClampCounts(
        rows=3, clamped={"age": 1}, outside={"age": 1}, unknown={"ward": 1}
    )
    assert shard.x.dtype == shard.y.dtype == np.float64


def test_unknown_categories_are_named_by_row_and_hinted_at() -> None:
    """No cell is quoted; where only capitals differ that is said."""
    schema = make_schema(scaling="range")
    (line,) = (w for w in encode_shard(table(), schema).counts.summary() if "category" in w)
    assert line == "cells of no declared category: 1 in ward (row 3)"
    spelt = table(ward=["a", "b ", " A"])
    (line,) = (w for w in encode_shard(spelt, schema).counts.summary() if "category" in w)
    assert line.endswith("2 in ward (rows 1, 2; they differ in capitals only)")
    with pytest.raises(DataError, match=r"no declared category \(rows 1, 2; they differ in cap"):
        encode_shard(spelt, schema, strict=True)


@pytest.mark.parametrize("scale", [None, "range", "standard", "unit", "weight", "clamp"])
@pytest.mark.parametrize("ends", [(0.0, 1.0), (1.0, 2.0), (-3.0, 5.0)])
def test_two_numbers_have_none_between(scale: Any, ends: tuple[float, float]) -> None:
    """Taken as the nearer, however they are scaled, and counted; a missing cell is as typical."""
    low, high = ends
    between = [low + share * (high - low) for share in (0, 0.2, 0.5, 1)]
    typical = {"typical": low + 0.3 * (high - low), "spread": 1.0}
    column = NumericColumn("flag", low, high, missing="typical", binary=True, **typical)
    cells = Features([column], scale, cure="")
    rows = pd.DataFrame({"flag": [*between, np.nan]})
    told = pd.DataFrame({"flag": [low, low, high, high, np.nan]})
    plain = Features([msgspec.structs.replace(column, binary=False)], scale, cure="")
    np.testing.assert_array_equal(cells.take(rows), plain.take(told))
    assert cells.counts()["between"] == {"flag": 2}
    problems = Problems()
    cells.refuse(problems, strict=True)
    with pytest.raises(DataError, match=f"2 of 5 values.* neither {low:g} nor {high:g} .rows 2, 3"):
        problems.refuse()


def test_standard_scaling() -> None:
    shard = encode_shard(table(), make_schema(scaling="standard"))
    assert shard.x[:, 0].tolist() == [1.0, 2.0, 2.0]
    assert shard.x[:, -1].tolist() == [1.0, 1.0, 1.0]
    assert shard.counts.clamped == {"age": 2}  # 65 is 2.5 spreads off, yet inside [0, 100]
    assert shard.counts.outside == {"age": 1}


def test_row_norm() -> None:
    schema = make_schema(scaling="standard", row_norm=2.0)
    shard = encode_shard(table(), schema)
    norms = np.linalg.norm(shard.x, axis=1)
    assert shard.counts.norm_clipped == 2
    np.testing.assert_allclose(shard.x[0], [0.5, 0.5, 0, 0.5], rtol=1e-15)  # not clipped: / c only
    np.testing.assert_allclose(norms, [np.sqrt(0.75), 1, 1], rtol=1e-11)
    assert shard.x[1, 0] / shard.x[1, -1] == pytest.approx(2.0)  # the direction stays
    assert len(shard.counts.summary()) == 4


cells = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(cells, cells, st.sampled_from(["A", "B", "?"])), min_size=1, max_size=8),
    st.sampled_from(["range", "standard"]),
    st.none() | st.floats(1e-3, 1e3),
)
def test_no_row_exceeds_the_norm_bound(rows: Any, scaling: Any, row_norm: float | None) -> None:
    other = NumericColumn(name="b", low=-1e-3, high=1e9, typical=0.1, spread=0.3)
    schema = make_schema(columns=(AGE, other, WARD), scaling=scaling, row_norm=row_norm)
    frame = pd.DataFrame(rows, columns=["age", "b", "ward"])
    shard = encode_shard(frame.assign(ill="no"), schema)
    assert np.isfinite(shard.x).all()
    assert (np.sqrt((shard.x**2).sum(axis=1)) <= schema.norm_bound).all()
    outside = {name: int((~frame[name].between(low, high)).sum()) for name, low, high in
               (("age", 0, 100), ("b", -1e-3, 1e9))}  # fmt: skip
    assert shard.counts.outside == {name: count for name, count in outside.items() if count}
    assert shard.counts.unknown.get("ward", 0) == (frame["ward"] == "?").sum()
    np.testing.assert_array_equal(encode_scored(frame, schema)[0], shard.x)


def test_clipped_rows_stay_below_one_in_any_order_of_summation() -> None:
    x = np.random.default_rng(2).normal(size=(2000, 30))
    columns = tuple(NumericColumn(name=f"x{k + 1}", low=-9, high=9) for k in range(30))
    rows = encode_scored(x, make_schema(columns=columns, scaling="range", row_norm=0.7))[0]
    for norms in (
        np.linalg.norm(rows, axis=1),
        np.sqrt((rows[:, ::-1] ** 2).cumsum(axis=1)[:, -1]),
    ):
        assert (norms <= 1).all()
        assert (norms > 1 - 1e-11).all()


@pytest.mark.parametrize(
    "ages",
    [
        ["50", "65", " 12e1"],
        pd.array([50, 65, 120], dtype="Int64"),
        pd.array([50, 65, 120], dtype="float64[pyarrow]"),
        pd.Categorical([50, 65, 120]),
        np.array([50, 65, 120], dtype=object),
        np.array([50, 65, 120], dtype=np.float32),
    ],
)
def test_numbers_of_any_type(ages: Any) -> None:
    schema = make_schema(scaling="range")
    np.testing.assert_array_equal(
        encode_shard(table(age=ages), schema).x, encode_shard(table(), schema).x
    )


@pytest.mark.parametrize("ages", [[True, False, True], pd.array([1, 0, 1], dtype="boolean")])
def test_booleans_are_numbers_too(ages: Any) -> None:
    schema = make_schema(columns=(AGE,), scaling="standard", row_norm=None)
    assert raw_features(table(age=ages), schema)[:, 0].tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    "labels",
    [[1, 0, 0], [1.0, 0.0, 0.0], ["1", "0", "0"], pd.Categorical([1, 0, 0]), [1, "0", 0]],
)
def test_labels_of_any_type(labels: Any) -> None:
    schema = make_schema(label=Label(name="ill", positive="1", negative="0"))
    assert encode_shard(table(ill=labels), schema).y.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "wards",
    [
        pd.Categorical(["A", "B", "C"]),
        pd.array(["A", "B", "C"], dtype="string"),
        pd.array(["A", "B", "C"], dtype="string[pyarrow]"),
    ],
)
def test_texts_of_any_type(wards: Any) -> None:
    shard = encode_shard(table(ward=wards), make_schema())
    assert shard.x[:, 1:3].tolist() == [[1, 0], [0, 1], [0, 0]]


def test_arrays() -> None:
    x = np.array([[0.0, 50.0], [5.0, 100.0]])
    columns = tuple(NumericColumn(name=f"x{k}", low=0, high=100) for k in (1, 2))
    schema = Schema(
        columns=columns, label=Label(name="y", positive="1", negative="0"), scaling="range"
    )
    shard = encode_shard((x, np.array([[1], [0]])), schema)
    np.testing.assert_allclose(shard.x, [[-1.0, 0.0, 1.0], [-0.9, 1.0, 1.0]], atol=1e-15)
    np.testing.assert_array_equal(encode_scored(x, schema)[0], shard.x)
    np.testing.assert_array_equal(raw_features(x, schema), x)


def test_the_source_is_never_changed() -> None:
    frame = table()
    before = frame.copy(deep=True)
    encode_shard(frame, make_schema(row_norm=2))
    pd.testing.assert_frame_equal(frame, before)


def test_a_shard_is_frozen_and_shows_no_data() -> None:
    shard = encode_shard(table(), make_schema())
    assert repr(shard) == str(shard) == "Shard(rows=3, num_features=4)"
    for array in (shard.x, shard.y):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5.0
    with pytest.raises(AttributeError):
        shard.x = np.zeros((1, 4))  # type: ignore[misc]
    again = pickle.loads(pickle.dumps(shard))
    np.testing.assert_array_equal(again.x, shard.x)
    assert again.counts == shard.counts and again.schema == shard.schema


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((0, 4)), np.zeros(0), "shape"),
        (np.zeros((2, 3)), np.zeros(2), "shape"),
        (np.zeros((2, 4)), np.zeros(3), "shape"),
        (np.zeros((2, 4)), np.full(2, 0.5), "0 and 1"),
        (np.full((2, 4), np.nan), np.zeros(2), "2 of 2 rows are not finite or exceed"),
        (np.diag([0, 0, 0, 1.001]), np.zeros(4), "1 of 4 rows are not finite or exceed"),
    ],
)
def test_a_shard_checks_its_bound(x: Any, y: Any, message: str) -> None:
    schema = make_schema(row_norm=2)
    with pytest.raises(DataError, match=message):
        Shard(x=x, y=y, counts=ClampCounts(rows=len(x)), schema=schema)


def test_strict_accepts_what_fits() -> None:
    frame = table(ward=["A", "B", "B"], age=[0, 65, 100])
    shard = encode_shard(frame, make_schema(scaling="standard", row_norm=1.5), strict=True)
    assert shard.counts.clamped == {"age": 3} and shard.counts.norm_clipped == 3
