"""Labels of several classes: from a table to a model, beside scikit-learn's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.multiclass import OneVsRestClassifier
from typer.testing import CliRunner

from ciphercohort import FederatedLogisticRegression
from ciphercohort.cli.app import app
from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.figures import check_kind, figures_of
from ciphercohort.job.layout import RELEASE
from ciphercohort.planning.forecast import Forecast
from ciphercohort.report.report import confusion
from ciphercohort.results.predict import load_model
from ciphercohort.results.result import RunResult
from ciphercohort.verify.folder import verify_run
from coordinator.replay import replay
from parties.reader.schema import Classes, Schema
from protocols.errors import CohortError, DataError, ParameterError, SchemaError
from protocols.models.registry import model_named
from protocols.plan import kinds
from protocols.plan.run_plan import Member
from protocols.privacy.calibrate.calibration import calibrate
from protocols.sums.objectives import OF_CLASSES
from sims import simulation
from sims.api import plan as forecast
from sims.api import simulate
from sims.held_out import HeldBack
from sims.prepare import PreparedData, builtin_dataset, prepare
from sims.simulation import party_specs
from sims.twins import Twin, twin_of

SUMS = {"protocol": "secure-aggregation"}


def table(name: str) -> pd.DataFrame:
    """What scikit-learn ships, without constant columns; labels as words."""
    found = getattr(datasets, f"load_{name}")(as_frame=True)
    varied = found.data.loc[:, found.data.nunique() > 1]
    return varied.assign(kind="k" + found.target.astype(str))


def in_plain(**options: Any) -> tuple[PreparedData, Twin]:
    """A seeded run without encryption."""
    config = SimulationConfig(label="kind", **SUMS, **{"seed": 1, **options})
    data = prepare(config, np.random.default_rng(1))
    figures = figures_of(data.schema, [shard.rows for shard in data.shards.values()])
    found = calibrate(figures, config.wanted())
    members = tuple(
        Member(name=name, rows=shard.rows, verify_key="0" * 64, commitment="0" * 64)
        for name, shard in data.shards.items()
    )
    specs = party_specs(config, data.shards, 1, "0" * 64)
    return data, twin_of(found.plan("0" * 32, members), data, specs)


# -- outside truth --------------------------------------------------------------------------------


@pytest.mark.parametrize("model", OF_CLASSES)
def test_without_noise_it_is_scikit_learns_optimum(model: str) -> None:
    """The same ridge on the same scaled rows; coefficients, probabilities and accuracy."""
    ridge = 0.02
    data, twin = in_plain(data=table("wine"), model=model, update="nag", ridge=ridge, rounds=120)
    x, y, test = data.rows, data.labels.argmax(axis=1), data.test
    plain = LogisticRegression(C=1 / (ridge * len(x)), fit_intercept=False, tol=1e-8, max_iter=999)
    theirs = (plain if model == "softmax" else OneVsRestClassifier(plain)).fit(x, y)
    each = [theirs] if model == "softmax" else theirs.estimators_
    coef = np.vstack([one.coef_ for one in each]).T
    ours = twin.weights - (twin.weights.mean(axis=1, keepdims=True) if model == "softmax" else 0)
    np.testing.assert_allclose(ours, coef, atol=1e-3)
    probabilities = model_named(model).decode(test.x @ twin.weights)
    np.testing.assert_allclose(probabilities, theirs.predict_proba(test.x), atol=1e-3)
    right = (probabilities.argmax(axis=1) == test.y.argmax(axis=1)).mean()
    assert right == theirs.score(test.x, test.y.argmax(axis=1))


# -- a run ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, Path]:
    """Without --data: iris, encrypted; classes in the order of their names."""
    out = tmp_path_factory.mktemp("classes") / "run"
    options: dict[str, Any] = {"epsilon": 4.0, "iterations": 5, "seed": 1, "keep_messages": True}
    return simulate(model="softmax", **SUMS, **options, out=out), out


def test_the_encrypted_run_is_its_twin(ran: tuple[RunResult, Path]) -> None:
    result, out = ran
    assert result.weights.shape == (5, 3) and result.max_abs_diff_to_twin < 1e-5
    assert result.plan.model == "softmax"
    assert result.certificate is not None and result.certificate["satisfied"]
    checks = [*verify_run(out), *replay(out / RELEASE).checks]
    assert all(check.passed for check in checks), checks
    assert confusion(result).sum() == len(result.test_y)


def test_the_model_document_predicts(ran: tuple[RunResult, Path]) -> None:
    _, out = ran
    fields, model = (
        json.loads((out / "release/model.json").read_text()),
        load_model(out),
    )
    names = ("setosa", "versicolor", "virginica")
    assert fields["kind"] == "classification" and tuple(fields["classes"]) == names == model.classes
    rows = datasets.load_iris(as_frame=True).data
    p, called = model.predict_proba(rows), model.predict(rows)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert (called["prediction"] == np.array(names)[p.argmax(axis=1)]).all()
    assert list(called) == [*(f"probability_{name}" for name in names), "prediction"]
    np.testing.assert_array_equal(called.to_numpy()[:, :-1].astype(float), p)
    # In the data's own units, for rows within the schema; sum 0 over the classes.
    scores = rows.to_numpy() @ model.coefficients.to_numpy() + model.intercept.to_numpy()
    assert list(model.coefficients.columns) == list(names)
    np.testing.assert_allclose(model.coefficients.sum(axis=1), 0.0, atol=1e-12)
    assert (scores.argmax(axis=1) == p.argmax(axis=1)).mean() > 0.95  # clipping keeps labels
    labelled = rows.assign(species=np.array(names)[datasets.load_iris().target])
    assert model.score(labelled).accuracy == (labelled.species == called.prediction).mean()


def test_its_rows_that_are_held_back_are_judged(tmp_path: Path) -> None:
    """The outside truth: scikit-learn's figures of exactly these rows."""
    kept: dict[str, Any] = {"held_out": 0.4, "evaluate": True, "seed": 1}
    found = simulate(
        model="softmax", **SUMS, no_privacy=True, iterations=3, out=tmp_path / "run", **kept
    ).evaluation
    assert found is not None and found.rows_of == "held-out"
    frame, label = builtin_dataset("iris")
    back = HeldBack.load(tmp_path / "run")
    rows = [
        np.array(owner.rows)[back.judged.chosen(bytes.fromhex(owner.coin.secret), len(owner.rows))]
        for owner in back.owners.values()
    ]
    judged = frame.iloc[np.concatenate(rows)]
    p = found.model.predict_proba(judged)
    assert found.figures.rows == len(judged)
    assert found.figures.log_loss == pytest.approx(log_loss(judged[label], p), abs=1e-6)
    areas = roc_auc_score(judged[label], p, multi_class="ovr")
    assert found.figures.auc == pytest.approx(areas, abs=found.figures.auc_error_bound + 1e-9)


# -- estimator ------------------------------------------------------------------------------------


def test_the_estimator_takes_several_classes_where_sums_are_opened() -> None:
    X, y = datasets.load_iris(return_X_y=True)
    y = np.array([10, 9, 2])[y]  # in another order than their texts
    settings: dict[str, Any] = {"epsilon": None, "random_state": 1, **SUMS}
    model = FederatedLogisticRegression(**settings, C=1.0, iterations=60).fit(X, y)
    assert model.classes_.tolist() == [2, 9, 10] and model.coef_.shape == (3, 4)
    assert model.intercept_.shape == (3,) and model.decision_function(X).shape == (150, 3)
    p = model.predict_proba(X)
    assert (model.predict(X) == model.classes_[p.argmax(axis=1)]).all()
    assert model.score(X, y) > 0.8 and p[y == 2][:, 0].mean() > 0.5
    with pytest.raises(DataError, match="multiclass.*protocol='secure-aggregation' alone"):
        FederatedLogisticRegression(epsilon=None).fit(X, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_estimators_schema_says_the_order() -> None:
    schema = Schema.from_dict(
        {
            "version": 1,
            "scaling": "range",
            "label": {"name": "y", "classes": ["c", "a", "b"]},
            "columns": [{"kind": "numeric", "name": "x", "low": -1, "high": 1}],
            "row_norm": None,
        }
    )
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (90, 1))
    y = np.select([x[:, 0] < -0.3, x[:, 0] > 0.3], ["a", "c"], "b")
    settings: dict[str, Any] = {"epsilon": None, "schema": schema, "random_state": 1, **SUMS}
    model = FederatedLogisticRegression(**settings, multi_class="one-vs-rest", iterations=20)
    model.fit(x, y)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.coef_[0, 0] < 0 < model.coef_[2, 0]
    assert model.predict([[-0.9], [0.9]]).tolist() == ["a", "c"]
    with pytest.raises(DataError, match="classes c, a, b: all have to occur"):
        model.fit(x, np.where(y == "b", "d", y))


# -- schema and table -----------------------------------------------------------------------------


def test_labels_outside_the_classes_are_refused_by_their_lines(tmp_path: Path) -> None:
    frame = table("iris")
    schema = simulation.prepare(
        SimulationConfig(data=frame, label="kind", model="softmax", **SUMS),
        np.random.default_rng(1),
    ).schema
    assert isinstance(schema.label, Classes) and schema.label.classes == ("k0", "k1", "k2")
    assert Schema.from_json(schema.to_json()) == schema
    with pytest.raises(SchemaError, match=r"several classes \(kind\): choose softmax or one"):
        check_kind(schema, "logistic")
    schema.save(tmp_path / "schema.json")
    frame.loc[[3, 90], "kind"] = ["K0", "other"]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(DataError, match=r"'kind' is none of the 3 classes.*lines 5, 92") as found:
        simulate(
            data=tmp_path / "rows.csv",
            schema=tmp_path / "schema.json",
            label="kind",
            model="softmax",
            **SUMS,
        )
    assert "other" not in str(found.value)


def test_the_commands_know_classes(tmp_path: Path) -> None:
    cohort, path = CliRunner(), tmp_path / "sample.csv"
    table("iris").to_csv(path, index=False)
    told = cohort.invoke(app, ["schema", "init", str(path), "--label", "kind"])
    assert told.exit_code == 0 and "kind has 3 classes: models softmax" in told.stderr
    assert Schema.from_json(told.stdout).label == Classes(name="kind", classes=("k0", "k1", "k2"))
    (tmp_path / "schema.json").write_text(told.stdout)
    shown = cohort.invoke(app, ["schema", "show", str(tmp_path / "schema.json")])
    assert "label: kind, one of k0, k1, k2" in shown.stdout
    figures = "plan --model softmax --rows 5000 --features 20 --classes 4 --no-timing --json"
    planned = cohort.invoke(app, [*figures.split(), "--protocol", "secure-aggregation"])
    assert json.loads(planned.stdout)["model"] == "softmax"


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        (["a", "b"], "length >= 3"),
        (["a", "b", "a"], "class 'a' of label 'y' is listed 2 times"),
        ("abc", "Expected 'array'"),
    ],
)
def test_bad_lists_of_classes_are_refused(classes: Any, words: str) -> None:
    columns = [{"kind": "numeric", "name": "x", "low": 0, "high": 1}]
    label = {"name": "y", "classes": classes}
    with pytest.raises(SchemaError, match=words):
        Schema.from_dict({"version": 1, "scaling": "range", "label": label, "columns": columns})


# -- refusals and plans ---------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["encrypted-rows", "encrypted-model"])
def test_other_protocols_are_refused_in_a_sentence(protocol: str) -> None:
    with pytest.raises(ParameterError, match="train model softmax: take secure-aggregation$"):
        simulate(model="softmax", protocol=protocol)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "logistic"}, "has 3 different values"),
        ({"model": "softmax", "positive": "k1"}, "positive"),
        ({"model": "softmax", "update": "barrier"}, "label of two values"),
        ({"model": "softmax", "inference": True}, "standard errors are known of"),
        ({"model": "softmax", "data": table("breast_cancer")}, "2 different values"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(CohortError, match=words):
        simulate(**{"data": table("iris"), "label": "kind", **SUMS, **options})


@pytest.mark.usefixtures("quick_machine")
@pytest.mark.parametrize("model", OF_CLASSES)
def test_a_plan_from_a_shape(model: str) -> None:
    shape: dict[str, Any] = {"rows": 5000, "features": 20, "model": model, **SUMS}
    found = forecast(**shape, classes=4, epsilon=1.0)
    assert found.seconds is not None and found.seconds.total > 0
    assert isinstance(found, Forecast) and kinds.released(found.plan).startswith(
        "the noisy sum of every"
    )
    assert found.plan.length == 21 * 4 and found.plan.update["kind"] == "nag-sc"  # type: ignore[attr-defined]
    with pytest.raises(ParameterError, match="need their number, with --classes"):
        forecast(**shape)
    with pytest.raises(ParameterError, match="no other takes it"):
        forecast(**{**shape, "model": "logistic"}, classes=4)
