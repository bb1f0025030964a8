"""Models of several classes, judged by one secure sum: scikit-learn's figures on pooled rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, roc_auc_score

from ciphercohort.after.evaluation_words import lines
from ciphercohort.after.judged import Evaluation
from ciphercohort.after.judging import objective
from ciphercohort.results.predict import ReleasedModel
from parties.reader.schema import Classes, Schema
from parties.reader.shard import encode_shard
from protocols.errors import CohortError, ParameterError
from protocols.statistics.evaluation.class_figures import class_figures
from protocols.sums.objectives import OF_CLASSES
from sims.evaluation import evaluate
from tests.sims.evaluation_tables import COLUMNS, MODEL, table

NAMES = ("low", "middle", "high")
SCHEMA = Schema(columns=COLUMNS, label=Classes("cost", NAMES))
FRAME = table(600).assign(cost=lambda frame: pd.qcut(frame.cost, 3, labels=NAMES).astype(str))
SHARD = encode_shard(FRAME, SCHEMA)
CODE = SHARD.y.argmax(axis=1)


def fitted(name: str) -> ReleasedModel:
    """Half as sure as the best of these rows, so that probabilities are spread."""
    plain = LogisticRegression(fit_intercept=False).fit(SHARD.x, CODE)
    return ReleasedModel(schema=SCHEMA, weights=0.5 * plain.coef_.T, model=name)


@pytest.fixture(scope="module", params=OF_CLASSES)
def exact(request: pytest.FixtureRequest) -> Evaluation:
    return evaluate(fitted(request.param), FRAME, split="by:site", sites=("north",), seed=1)


def agrees(found: Any, p: np.ndarray, code: np.ndarray) -> bool:
    """The outside truth."""
    cells = [[cell or 0.0 for cell in row.values()] for row in found["confusion"].values()]
    truth = confusion_matrix(code, p.argmax(axis=1))
    own = found["by_class"].values()
    return (
        abs(found["auc"] - roc_auc_score(code, p, multi_class="ovr")) < found["auc_error_bound"]
        and found["auc_error_bound"] < 0.01
        and all(
            abs(each["auc"] - roc_auc_score(code == k, p[:, k])) <= each["auc_error_bound"]
            for k, each in enumerate(own)
        )
        and abs(found["log_loss"] - log_loss(code, p)) < 1e-5
        and abs(found["brier"] - ((p - np.eye(3)[code]) ** 2).sum(axis=1).mean()) < 1e-5
        and found["accuracy"] == accuracy_score(code, p.argmax(axis=1))
        # A cell of fewer than 10 rows is not shown.
        and bool((np.where(truth < 10, 0, truth) == cells).all())
    )


def test_figures_are_scikit_learns(exact: Evaluation) -> None:
    p = exact.model.predict_proba(FRAME)
    assert agrees(exact.figures, p, CODE)
    mine = (FRAME.site == "north").to_numpy()
    assert agrees(exact.sites["north"], p[mine], CODE[mine])
    told = "\n".join(lines(exact))
    assert "high: area under ROC against the rest 0." in told and "rows were called: low" in told
    assert exact.figures.base_rate_log_loss == pytest.approx(np.log(3), abs=1e-3)


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("name", OF_CLASSES)
def test_no_row_moves_the_sum_by_more_than_its_diameter(name: str, private: bool) -> None:
    """Rows of every class and kind of score, one by one; the worst pair of a private sum is met."""
    weights = np.random.default_rng(0).normal(0, 2, (SCHEMA.num_features, 3))
    model = replace(fitted(name), weights=weights)
    task = objective(model, private=private, sites=("a",), bins=16)
    rows = np.vstack([SHARD.x[:60], 50 * SHARD.x[:20]])
    y = np.vstack([SHARD.y[:60], np.roll(SHARD.y[:20], 1, axis=1)])
    parts = np.array([task.of_rows(rows[[i]], y[[i]], "a") for i in range(len(rows))])
    lengths = np.linalg.norm(parts, axis=1)
    apart = np.linalg.norm(parts[:, None] - parts[None], axis=2)
    assert lengths.max() <= task.norm_bound("") * (1 + 1e-12)
    assert apart.max() <= task.diameter("") * (1 + 1e-12)
    if private:
        assert apart.max() == pytest.approx(task.diameter("")) == pytest.approx(4.0)


def test_the_stated_noise_is_that_of_many_draws() -> None:
    task = objective(fitted("softmax"), private=True)
    clear, source = task.of_rows(SHARD.x, SHARD.y, ""), np.random.default_rng(0)
    draws = [clear + 0.5 * source.standard_normal(len(clear)) for _ in range(300)]
    first, *found = (
        class_figures(task, each, rows=len(CODE), names=NAMES, noise_std=0.5)
        for each in (clear, *draws)
    )
    for name in ("auc", "accuracy", "log_loss", "brier"):
        spread = np.std([each[name] for each in found])
        assert spread == pytest.approx(first[f"{name}_noise_std"], rel=0.2), name


def test_a_private_sum_pays_once_and_is_near() -> None:
    many = pd.concat([FRAME] * 5, ignore_index=True)
    model = fitted("softmax")
    found = evaluate(model, many, epsilon=8.0, seed=1)
    assert found.summary()["privacy"]["epsilon"] == pytest.approx(8.0)
    assert found.opened.plan.length == 3 * 2 * 64 + 9
    truth = roc_auc_score(CODE, model.predict_proba(FRAME), multi_class="ovr")
    assert abs(found.figures.auc - truth) < 4 * found.figures.auc_noise_std + 0.01


def test_what_does_not_fit_is_refused() -> None:
    model = fitted("softmax")
    with pytest.raises(ParameterError, match="several classes is called; leave it out"):
        evaluate(model, FRAME, threshold=0.2)
    task = objective(model, private=False)
    with pytest.raises(ParameterError, match="has no threshold"):
        replace(task, centre=6.0)
    task = objective(model, private=False)
    with pytest.raises(ParameterError, match="3 classes, labels have shape"):
        task.of_rows(SHARD.x, SHARD.y[:, :2], "")
    # What a sum's message holds.
    many = tuple("abcdefghijkl")
    assert 35_000 > objective(model, private=False, sites=many).length(SCHEMA.num_features) > 30_000
    with pytest.raises(ParameterError, match="name fewer sites"):
        objective(model, private=True, sites=tuple(f"site {k}" for k in range(120)))
    # A model of two values does not judge rows whose label has three, whatever a plan says.
    with pytest.raises(CohortError, match="no label of several classes"):
        run_on_classes(MODEL)


def run_on_classes(model: ReleasedModel) -> None:
    """An evaluation of a binary model's plan, by parties whose label has three values."""
    import sims.evaluation as module

    task = objective(model, private=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "objective", lambda *_, **__: task)
        evaluate(fitted("softmax"), FRAME, seed=1)
