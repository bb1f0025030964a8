"""Prediction treats rows exactly as training did."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ciphercohort.results.predict import ReleasedModel, load_model, score_table
from ciphercohort.results.result import RunResult
from parties.reader.shard import encode_shard
from protocols.errors import CohortError, DataError, ParameterError, SchemaError
from tests.sims.fake_run import NASTY, SCHEMA, make_frame
from tests.support.helpers import raw_features


@pytest.fixture(scope="module")
def model(fake: tuple[Path, RunResult]) -> ReleasedModel:
    return load_model(fake[0] / "release/model.json")


def test_the_file_gives_back_the_model(fake: tuple[Path, RunResult], model: ReleasedModel) -> None:
    _, result = fake
    assert model.weights.tolist() == result.weights.tolist() and model.schema == result.schema
    assert model.insecure and model.session == result.plan.session


def test_scores_are_the_runs(fake: tuple[Path, RunResult], model: ReleasedModel) -> None:
    assert score_table(model, make_frame(200, seed=2)) == fake[1].scores
    assert score_table(model, make_frame(50).drop(columns="died")) is None


def test_rows_are_clamped_as_in_training(model: ReleasedModel) -> None:
    frame = make_frame(40)
    frame.loc[0, "age"], frame.loc[1, NASTY], frame.loc[2, "ward"] = 1e6, -1e6, "unknown"
    logits = encode_shard(frame, SCHEMA).x @ model.weights
    table = model.predict(frame.drop(columns="died").set_index(np.arange(5, 45)))
    assert table.index.tolist() == list(range(5, 45))
    np.testing.assert_allclose(table["probability"], 1 / (1 + np.exp(-logits)), rtol=1e-12)
    assert (table["prediction"] == np.where(logits > 0, "yes", "no")).all()


def test_data_units_predict_the_same_where_nothing_is_clipped(model: ReleasedModel) -> None:
    frame = make_frame(200)
    raw = raw_features(frame, SCHEMA)
    x = encode_shard(frame, SCHEMA).x
    inside = np.isclose(x[:, -1], 0.5) & (np.abs(x).max(axis=1) < 1.0 - 1e-9)
    assert inside.sum() > 20
    coef, intercept = SCHEMA.model_in_data_units(model.weights)
    logits = np.log(model.predict(frame)["probability"] / (1 - model.predict(frame).probability))
    np.testing.assert_allclose((raw @ coef + intercept)[inside], logits[inside], rtol=1e-9)


@pytest.mark.parametrize(
    ("error", "change"),
    [
        (SchemaError, lambda frame: frame.drop(columns="age")),
        (DataError, lambda frame: frame.assign(age=np.nan)),
        (DataError, lambda frame: frame.head(0)),
    ],
)
def test_bad_rows_are_named(error: type[CohortError], change: object, model: ReleasedModel) -> None:
    assert callable(change)
    with pytest.raises(error):
        model.predict(change(make_frame(10)))


def test_unknown_labels_cannot_be_scored(model: ReleasedModel) -> None:
    with pytest.raises(DataError, match="neither 'yes' nor 'no'"):
        score_table(model, make_frame(10).assign(died="perhaps"))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("kind", "forest", "of the model is not one of logistic"),
        ("weights", [1.0], "weights of shape"),
        ("weights", None, "has no weights"),
        ("schema", {}, "schema"),
    ],
)
def test_bad_models_are_named(
    fake: tuple[Path, RunResult], tmp_path: Path, field: str, value: object, message: str
) -> None:
    fields = json.loads((fake[0] / "release/model.json").read_text())
    fields[field] = value
    if value is None:
        del fields[field]
    path = tmp_path / "model.json"
    path.write_text(json.dumps(fields))
    with pytest.raises(CohortError, match=message):
        load_model(path)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    with pytest.raises(ParameterError, match="cannot be read"):
        load_model(path)
    for text in ("{", "[]", "\udcff"):
        path.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(ParameterError, match="model file"):
            load_model(path)
