"""The schema: fields checked at birth, strict JSON, a pinned digest, the way back to data units."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ciphercohort.job.figures import figures_of
from parties.kernel.rows.curvature import in_range, largest_row_sum, row_sum_bound
from parties.reader.infer import infer_schema
from parties.reader.schema import CategoricalColumn, Label, NumericColumn, Schema
from parties.reader.shard import encode_scored, encode_shard
from protocols.errors import ParameterError, SchemaError
from protocols.privacy.calibrate.rows import curvature_of
from tests.support.helpers import raw_features

AGE = NumericColumn(name="age", low=0, high=120, typical=40, spread=10)
WARD = CategoricalColumn(name="ward", categories=("A", "B", "C"))
LABEL = Label(name="ill", positive="1", negative="0")


def make_schema(**changes: Any) -> Schema:
    fields: dict[str, Any] = {"columns": (AGE, WARD), "label": LABEL}
    return Schema(**(fields | changes))


def as_dict() -> dict[str, Any]:
    item: dict[str, Any] = json.loads(make_schema(row_norm=3).to_json())
    return item


def test_names_and_sizes() -> None:
    schema = make_schema()
    assert schema.feature_names == ("age", "ward=A", "ward=B", "ward=C")
    assert schema.num_features == 5


def test_norm_bound() -> None:
    # A number, one category of three, the bias.
    assert make_schema(scaling="range").norm_bound == math.sqrt(1 + 1 + 1)
    assert make_schema(scaling="standard").norm_bound == math.sqrt(4 + 1 + 1)  # values reach 2
    assert make_schema(row_norm=0.5).norm_bound == 1.0


def test_digest_is_pinned_and_tells_schemas_apart() -> None:
    schema = make_schema(row_norm=3)
    assert schema.digest() == make_schema(row_norm=3.0, columns=[AGE, WARD]).digest()
    assert schema.digest() == "e28e1a490ebbdb423ec0e436f42d8e9d9183da7838226a0e3d7b5a6de181dbb9"
    others = [
        make_schema(),
        make_schema(row_norm=3, scaling="range"),
        make_schema(row_norm=3, columns=(WARD, AGE)),
        make_schema(row_norm=3, label=Label(name="ill", positive="0", negative="1")),
    ]
    assert len({schema.digest(), *(other.digest() for other in others)}) == 5
    low = [NumericColumn(name="a", low=zero, high=1) for zero in (0.0, -0.0)]
    first, second = (make_schema(columns=(column,), scaling="range") for column in low)
    assert first.digest() == second.digest()


finite = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
# Neither spaces nor words for missing cells.
category_texts = texts.map(lambda text: f"c{text}c")


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(texts, min_size=2, max_size=6, unique=True))
    columns: list[NumericColumn | CategoricalColumn] = []
    for name in names[1:]:
        if draw(st.booleans()):
            low = draw(finite)
            numbers = {"low": low, "high": low + draw(st.floats(0.01, 1e6))}
            numbers |= {"typical": draw(finite), "spread": draw(st.floats(0.01, 1e6))}
            columns.append(NumericColumn(name="n" + name, **numbers))
        else:
            categories = draw(st.lists(category_texts, min_size=1, max_size=4, unique=True))
            columns.append(CategoricalColumn(name=name + "$", categories=tuple(categories)))
    label = Label(name="label:" + names[0], positive="yes", negative="no")
    scaling: Any = draw(st.sampled_from(["range", "standard"]))
    row_norm = draw(st.none() | st.floats(0.1, 100))
    try:
        return Schema(columns=tuple(columns), label=label, scaling=scaling, row_norm=row_norm)
    except SchemaError:  # two features of one name
        return make_schema(scaling=scaling, row_norm=row_norm)


@settings(max_examples=40, deadline=None)
@given(schemas())
def test_json_round_trip(schema: Schema) -> None:
    again = Schema.from_json(schema.to_json())
    assert again == schema
    assert again.digest() == schema.digest()
    assert Schema.from_json(schema.to_json().encode()) == schema


@settings(max_examples=40, deadline=None)
@given(schemas(), st.integers(0, 2**32))
def test_model_in_data_units_equals_the_scaled_model(schema: Schema, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows: dict[str, Any] = {schema.label.name: [schema.label.positive] * 20}
    for column in schema.columns:
        if isinstance(column, CategoricalColumn):
            rows[column.name] = rng.choice(np.array(column.categories, dtype=object), 20)
        else:
            shift, scale = column.affine(schema.scaling)
            rows[column.name] = shift + scale * rng.uniform(-1, 1, 20)
    frame = pd.DataFrame(rows)
    if schema.row_norm is not None:  # long enough that no row is clipped
        schema = Schema.from_dict(schema.to_dict() | {"row_norm": schema.row_norm + 10})
    shard = encode_shard(frame, schema)
    assert not shard.counts.clamped and shard.counts.norm_clipped == 0
    weights = rng.normal(size=schema.num_features)
    coef, intercept = schema.model_in_data_units(weights)
    assert coef.dtype == np.float64 and coef.shape == (len(schema.feature_names),)
    scale = 1 + np.abs(coef) @ np.abs(raw_features(frame, schema)).T + abs(intercept)
    error = np.abs(raw_features(frame, schema) @ coef + intercept - shard.x @ weights)
    assert (error <= 1e-12 * scale).all()


@pytest.mark.parametrize("weights", [[1.0], np.ones((1, 5)), [1, 2, 3, 4, math.nan]])
def test_model_in_data_units_refuses_bad_weights(weights: Any) -> None:
    with pytest.raises(ParameterError, match="5 finite numbers"):
        make_schema().model_in_data_units(weights)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"low": 2, "high": 2}, "low=2 .*'age'.*below high=2"),
        ({"low": math.nan}, "low=nan .*'age'"),
        ({"high": math.inf}, "high=inf .*'age'"),
        ({"high": 10**400}, "high=a huge int|high=1000.*'age'"),
        ({"low": "0"}, "low='0' .*'age': Expected 'float', got 'str'"),
        ({"low": True}, "low=True .*bool"),
        ({"low": -1e308, "high": 1e308}, "low=-1e\\+308"),
        ({"spread": 0}, "spread=0 .*>= 1e-150"),
        ({"spread": -1}, "spread=-1 .*>= 1e-150"),
        ({"spread": None}, "'age' has typical only"),
        ({"name": ""}, "name='' .*length >= 1"),
        ({"name": 3}, "name=3 .*int"),
        ({"name": "\ud800"}, "name=.*matching regex"),
    ],
)
def test_numeric_column_refuses(fields: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"name": "age", "low": 0, "high": 120, "typical": 40, "spread": 10}
    with pytest.raises(SchemaError, match=message):
        NumericColumn(**(good | fields))


@pytest.mark.parametrize(
    ("categories", "message"),
    [
        ((), "length >= 1"),
        ("AB", "categories='AB' .*array"),
        (("A", "A"), "'A' .*2 times"),
        (("A", ""), r"categories\[1\]='' .*length >= 1"),
        (("A", 1), r"categories\[1\]=1 .*int"),
        (None, "categories=None .*array"),
    ],
)
def test_categorical_column_refuses(categories: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        CategoricalColumn(name="ward", categories=categories)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": ()}, r"columns=\(\).*add one"),
        ({"columns": (AGE, AGE)}, "name 'age' is used by 2"),
        ({"columns": (AGE,), "label": Label(name="age", positive="1", negative="0")}, "'age'"),
        ({"columns": (NumericColumn(name="ward=A", low=0, high=1), WARD)}, "'ward=A'"),
        ({"columns": ("age",)}, r"columns\[0\]='age'"),
        ({"label": "ill"}, "not a Label"),
        ({"scaling": "minmax"}, "scaling='minmax'"),
        ({"row_norm": 0}, "row_norm=0 .*>= 1e-150"),
        ({"row_norm": "auto"}, "row_norm='auto'"),
        ({"columns": (NumericColumn(name="a", low=0, high=1),)}, "'a' has no typical value"),
    ],
)
def test_schema_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        make_schema(**({"scaling": "standard"} | changes))


def test_label_needs_two_values() -> None:
    with pytest.raises(SchemaError, match="equals negative"):
        Label(name="ill", positive="1", negative="1")


def _edit(path: tuple[Any, ...], value: Any) -> str:
    item = as_dict()
    place: Any = item
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(item)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "the schema: .*got 'array'"),
        ('{"version": 1, "version": 1}', "'version' .*2 times"),
        ('{"version": NaN}', "NaN"),
        ("{}", "missing required field 'version'"),
        (_edit(("version",), 2), "version=2"),
        (_edit(("lable",), 1), "unknown field 'lable'; did you mean 'label'"),
        (_edit(("columns",), {}), "columns of the schema: Expected 'array'"),
        (_edit(("columns", 0), 7), r"columns\[0\]=7"),
        (
            _edit(("columns", 0, "kind"), "moment"),
            r"columns\[0\].kind='moment' .*not one of '",
        ),
        (
            _edit(("columns", 0, "kind"), "date"),
            r"origin='' of DateColumn",
        ),
        (_edit(("columns", 0, "hihg"), 7), r"columns\[0\] .*'hihg'; did you mean 'high'"),
        (_edit(("columns", 0, "high"), "7"), "high='7'"),
        (_edit(("columns", 1, "categories"), ["A", 2]), r"columns\[1\].categories\[1\]=2"),
        (_edit(("label", "positive"), True), "positive=True"),
        (_edit(("label",), None), "label=None"),
        (_edit(("row_norm",), -1), "row_norm=-1"),
        (_edit(("scaling",), []), "scaling=\\[\\]"),
    ],
)
def test_json_is_strict(text: str | bytes, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema.from_json(text)


def test_save_and_load(tmp_path: Path) -> None:
    schema = make_schema(columns=(CategoricalColumn(name="Größe", categories=("≤5", ">5")),))
    schema.save(tmp_path / "schema.json")
    assert Schema.load(tmp_path / "schema.json") == schema
    with pytest.raises(SchemaError, match=r"'.*none\.json' cannot be read"):
        Schema.load(tmp_path / "none.json")


# -- what no row exceeds --------------------------------------------------------------------------


@pytest.mark.parametrize("project", [None, 3])
@pytest.mark.parametrize("row_norm", [None, 2.5])
@pytest.mark.parametrize("scaling", ["range", "standard"])
def test_no_row_adds_more_than_its_schema_says(scaling: Any, row_norm: Any, project: Any) -> None:
    """Of entries, norms and |x_k| sum_j |x_j|, by cells far beyond their ranges; so plans take."""
    rng = np.random.default_rng(4)
    sample = pd.DataFrame(rng.normal(size=(60, 6)), columns=[*"abcdef"])
    sample["y"] = np.arange(60) % 2
    schema = infer_schema(sample, "y", scaling=scaling, row_norm=row_norm, project=project)
    cells = pd.DataFrame(1e6 * rng.choice([-1, 0, 1], (2000, 6)), columns=[*"abcdef"])
    rows, _ = encode_scored(cells, schema, quiet=True)
    entries, sums = np.abs(rows).max(), (np.abs(rows) * np.abs(rows).sum(axis=1)[:, None]).max()
    assert entries <= schema.entry_bound * (1 + 1e-12)
    d = schema.num_features
    owner = SimpleNamespace(schema=schema, num_features=d)
    held = largest_row_sum(owner, (), math.inf)
    assert 0.3 * held <= sums <= held * (1 + 1e-12)
    figures = figures_of(schema, [100, 100])
    curvature = curvature_of(figures)
    assert in_range(curvature.range, held)
    assert row_sum_bound(figures.norm_bound, d, figures.entry_bound) == held
    turned = rows @ np.linalg.qr(rng.normal(size=(d, d)))[0].T
    most = (np.abs(turned) * np.abs(turned).sum(axis=1)[:, None]).max()
    assert most <= largest_row_sum(owner, np.eye(d).tolist(), math.inf) * (1 + 1e-9)
