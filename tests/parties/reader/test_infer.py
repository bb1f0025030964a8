"""Inference of a first schema from a public sample."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parties.reader.cells import cell_text
from parties.reader.infer import infer_schema
from parties.reader.schema import CategoricalColumn, NumericColumn
from parties.reader.shard import encode_shard
from protocols.errors import DataError, SchemaError


def sample() -> pd.DataFrame:
    rng = np.random.default_rng(7)
    frame = pd.DataFrame({"age": rng.integers(18, 90, 60), "dose": rng.normal(3.2, 0.7, 60)})
    frame["sex"] = rng.choice(["m", "f"], 60)
    frame["smokes"] = rng.choice([True, False], 60)
    frame["ward"] = pd.Categorical(rng.choice(["B", "A"], 60), categories=["B", "A", "unused"])
    frame["y"] = rng.choice([0, 1], 60)
    return frame


def numeric(values: Any) -> NumericColumn:
    rows = len(values)
    frame = pd.DataFrame({"a": values, "y": [0] * (rows - rows // 2) + [1] * (rows // 2)})
    column = infer_schema(frame, "y").columns[0]
    assert isinstance(column, NumericColumn)
    return column


def test_kinds() -> None:
    kinds = {column.name: column for column in infer_schema(sample(), "y").columns}
    assert list(kinds) == ["age", "dose", "sex", "smokes", "ward"]
    assert isinstance(kinds["age"], NumericColumn) and isinstance(kinds["dose"], NumericColumn)
    found = [c.categories for c in kinds.values() if isinstance(c, CategoricalColumn)]
    assert found == [("f", "m"), ("False", "True"), ("A", "B")]


def test_the_sample_fits_its_own_schema() -> None:
    for scaling in ("range", "standard"):
        counts = encode_shard(sample(), infer_schema(sample(), "y", scaling=scaling)).counts
        assert not counts.outside and not counts.unknown


@pytest.mark.parametrize(
    ("values", "low", "high", "typical", "spread"),
    [
        ([12285, 1484705, 178000, 190000], 12000, 1500000, 500000, 600000),
        ([17, 90, 38, 40], 17, 90, 50, 30),
        ([2010, 2015, 2020, 2012], 2010, 2020, 2014, 4),  # finer than two digits of 2010
        ([-0.1234, 0.1, 0.0477, 0.03], -0.13, 0.1, 0.01, 0.08),
        ([0, 1, 0, 0, 0, 0, 0, 0, 0, 0], 0, 1, 0.1, 0.5),  # two values are never clamped
        ([5, 5, 5, 5], 0, 10, 5, 5),
        ([0.0, 0.0], -1, 1, 0, 1),
        ([1.5, np.nan, np.inf, 2.5, 2.0], 1.5, 2.5, 2, 0.4),
    ],
)
def test_rounding(
    values: list[float], low: float, high: float, typical: float, spread: float
) -> None:
    column = numeric(values)
    assert (column.low, column.high) == (low, high)
    assert (column.typical, column.spread) == (typical, spread)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e9, 1e9) | st.integers(-5, 5), min_size=2, max_size=12))
def test_ranges_hold_every_value(values: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        column = numeric([float(value) for value in values])
    assert column.low <= min(values) and max(values) <= column.high
    assert column.spread is not None and column.spread > 0
    assert len(f"{column.spread:.12g}".replace(".", "").strip("0").split("e")[0]) == 1


def test_row_norm() -> None:
    frame = sample()
    loose = infer_schema(frame, "y", row_norm=None)
    norms = np.linalg.norm(encode_shard(frame, loose).x, axis=1)
    auto = infer_schema(frame, "y").row_norm
    assert loose.row_norm is None
    assert auto == float(f"{np.median(norms):.0e}")
    assert infer_schema(frame, "y", row_norm=2.5).row_norm == 2.5
    holes = frame.assign(age=np.where(frame.index < 30, np.nan, frame["age"]))
    assert infer_schema(holes, "y").row_norm is not None
    with pytest.raises(SchemaError, match="row_norm='big'"):
        infer_schema(frame, "y", row_norm="big")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("labels", "positive"),
    [
        ([0, 1], "1"),
        ([1.0, 2.0], "2"),
        (["9", "10"], "10"),
        ([False, True], "True"),
        (["<=50K", ">50K"], ">50K"),
        (["no", "Yes"], "Yes"),
        (["+", "-"], "+"),
    ],
)
def test_default_positive_value(labels: list[Any], positive: str) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3, 5], "y": labels * 2})
    assert infer_schema(frame, "y").label.positive == positive
    for value in labels:
        chosen = infer_schema(frame, "y", positive=value).label
        assert {chosen.positive, chosen.negative} == {cell_text(cell) for cell in labels}
        assert chosen.positive == cell_text(value)


@pytest.mark.parametrize("count", [1, 3, 60])
def test_label_with_other_than_two_values(count: int) -> None:
    frame = sample().assign(y=np.arange(60) % count)
    with pytest.raises(SchemaError, match=f"'y' has {count} different values where 2"):
        infer_schema(frame, "y")


def test_label_problems() -> None:
    with pytest.raises(SchemaError, match="'Y' is not in the table; did you mean 'y'"):
        infer_schema(sample(), "Y")
    with pytest.raises(SchemaError, match="positive='ill' is no value of label 'y': .*'0' or '1'"):
        infer_schema(sample(), "y", positive="ill")
    missing = sample().assign(y=[None] * 4 + [0, 1] * 28)
    with pytest.raises(DataError, match="'y' is missing in 4 of"):
        infer_schema(missing, "y")
    with pytest.raises(DataError, match="0 rows"):
        infer_schema(sample().head(0), "y")


def test_exclude_and_include() -> None:
    assert infer_schema(sample(), "y", exclude=["age"]).columns[0].name == "dose"
    kept = infer_schema(sample(), "y", include=["ward", "age"]).columns
    assert [column.name for column in kept] == ["age", "ward"]
    with pytest.raises(SchemaError, match="'aeg' is not in the table; did you mean 'age'"):
        infer_schema(sample(), "y", exclude=["aeg"])
    with pytest.raises(SchemaError, match="label 'y' is among"):
        infer_schema(sample(), "y", include=["y"])
    with pytest.raises(SchemaError, match="no column is left to predict from"):
        infer_schema(sample(), "y", include=[])


@pytest.mark.parametrize("name", ["ID", "row"])
def test_an_id_is_kept_with_a_warning(name: str) -> None:
    frame = sample().assign(**{name: np.arange(1000, 1060)})
    with pytest.warns(UserWarning, match=f"'{name}' looks like .*exclude it"):
        schema = infer_schema(frame, "y")
    assert name in schema.feature_names
    assert name in infer_schema(frame, "y", include=[name]).feature_names  # no warning
    assert name not in infer_schema(frame, "y", exclude=[name]).feature_names


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([f"name {k}" for k in range(120)], "120 different texts"),
        ([str(k) for k in range(118)] + ["unknown", "?"], "mixes numbers with 2 different texts"),
        ([None] * 120, "no values at all"),
        ([np.inf] * 120, "no values at all"),
        (pd.date_range("2020-01-01", periods=120), "dates"),
        ([[k] for k in range(120)], "objects"),
        ([1e200] * 60 + [0] * 60, "beyond 1e\\+149"),
        (np.arange(120) * 1j, "objects"),
    ],
)
def test_unusable_columns(cells: Any, message: str) -> None:
    frame = pd.DataFrame({"odd": cells, "y": [0, 1] * 60})
    with pytest.raises(SchemaError, match=f"'odd' .*{message}"):
        infer_schema(frame, "y")


def test_include_lifts_the_limit_of_categories() -> None:
    frame = pd.DataFrame({"town": [f"t{k}" for k in range(120)], "y": [0, 1] * 60})
    assert infer_schema(frame, "y", include=["town"]).num_features == 121


def test_arrays() -> None:
    x = np.random.default_rng(3).normal(size=(30, 3))
    schema = infer_schema((x, x[:, 0] > 0), "y")
    assert schema.feature_names == ("x1", "x2", "x3")
    assert schema.label.positive == "True"
