"""The optimum without privacy is scikit-learn's own model on the table as it is."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ciphercohort.job.config import SimulationConfig
from ciphercohort.results.result import scored
from protocols.models.registry import model_named
from sims.prepare import PreparedData, prepare
from sims.simulation import simulate
from sims.twin import OPTIMA, fit_optimum, fit_unclipped
from tests.sims.model_runs import make_frame


def skewed(rows: int = 900, seed: int = 3) -> pd.DataFrame:
    """A label that follows the far end of a skewed column, in units of its own."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "a": 1e4 + 500 * rng.exponential(1.0, rows) ** 2,
            "b": rng.normal(-3, 1e-3, rows),
            "c": rng.integers(0, 2, rows),
        }
    )
    odds = (frame["a"] - 1.1e4) / 700 + (frame["b"] + 3) / 1e-3 + frame["c"] - 0.5
    return frame.assign(y=(odds + rng.logistic(size=rows) > 0).astype(int))


@pytest.fixture(scope="module")
def data() -> PreparedData:
    config = SimulationConfig(data=skewed(), label="y", epsilon=None, update="gd")
    return prepare(config, np.random.default_rng(0))


def test_of_a_label_it_is_scikit_learns(data: PreparedData) -> None:
    weights = fit_unclipped(OPTIMA["logistic"], data.raw, data.labels)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1e6 / len(data.raw), tol=1e-8))
    model.fit(data.raw[:, :-1], data.labels)
    expected = model.predict_proba(data.raw_test[:, :-1])[:, 1]
    found = 1 / (1 + np.exp(-data.raw_test @ weights))
    np.testing.assert_allclose(found, expected, atol=2e-3)
    scores = scored(model_named("logistic"), weights, data.raw_test, data.test.y, data.schema)
    assert scores.auc == pytest.approx(roc_auc_score(data.test.y, expected), abs=1e-3)
    assert scores.log_loss == pytest.approx(log_loss(data.test.y, expected), abs=1e-3)


def test_clipping_is_what_it_leaves_out(data: PreparedData) -> None:
    """Rows as owners encrypt them have lost the far end, and so has their optimum."""
    clipped = fit_optimum(data.rows, data.labels)
    raw = fit_unclipped(fit_optimum, data.raw, data.labels)

    def loss(scores: np.ndarray) -> float:
        return float(np.mean(np.logaddexp(0, scores) - data.test.y * scores))

    assert loss(data.raw_test @ raw) < loss(data.test.x @ clipped) - 0.002
    assert data.raw[:, 0].max() > 1.5e4 and (data.raw[:, -1] == 1).all()


def test_of_targets_it_is_least_squares_whatever_the_units() -> None:
    frame = make_frame(300)
    frame.loc[:4, "a"] = 40.0  # beyond any range that rows are clamped to
    config = SimulationConfig(
        data=frame, model="linear", targets=("cost", "days"), epsilon=None, seed=1
    )
    made = prepare(config, np.random.default_rng(1))
    weights = fit_unclipped(OPTIMA["linear"], made.raw, made.labels)
    model = LinearRegression().fit(made.raw[:, :-1], made.labels)
    np.testing.assert_allclose(
        made.raw_test @ weights, model.predict(made.raw_test[:, :-1]), atol=1e-9
    )


def test_a_constant_column_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    raw = np.column_stack([rng.normal(size=(60, 2)), np.full(60, 7.0), np.ones(60)])
    y = raw[:, :2] @ [1.0, -2.0] + 3
    weights = fit_unclipped(OPTIMA["linear"], raw, y[:, None])
    np.testing.assert_allclose(raw @ weights, y[:, None], atol=1e-9)


@pytest.mark.parametrize(
    ("update", "rounds", "warns"), [("", 3, True), ("quadratic-nag", 20, False)]
)
def test_a_run_that_stops_short_of_it_says_so_first(update: str, rounds: int, warns: bool) -> None:
    """Without noise; the loss that is possible is scikit-learn's on the training rows."""
    frame = skewed(300)
    config = SimulationConfig(
        data=frame, label="y", update=update, rounds=rounds, epsilon=None, seed=1,
        profile="fast-insecure", parties=2, as_trained=True,
    )  # fmt: skip
    result = simulate(config)
    told = [w for w in result.warnings if "has not converged" in w]
    assert bool(told) == warns
    if warns:
        schema, far, first = result.warnings[:3]
        assert schema.startswith("schema: inferred")
        assert far.startswith("coefficients are not at the maximum")
        assert first == told[0] and "take --iterations 12" in told[0]
        rows = prepare(config, np.random.default_rng(1))
        fit = LogisticRegression(C=1e9, fit_intercept=False, max_iter=5000)
        fit.fit(rows.rows, rows.labels)
        least = log_loss(rows.labels, fit.predict_proba(rows.rows)[:, 1])
        assert f"{least:.3f}" in told[0]
