"""Log loss, Brier score and calibration are scikit-learn's, and never an error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss

from protocols.models.probabilities import Array, calibration, probability_figures

SLOPE, INTERCEPT = "calibration_slope", "calibration_intercept"


def drawn(seed: int, slope: float = 1.0, scale: float = 2.0) -> tuple[Array, NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    z = rng.normal(0.5, scale, 400)
    return z, rng.uniform(size=400) < expit(slope * z - 0.3)


@pytest.mark.parametrize("kind", ["plain", "ties", "steep", "tiny", "reversed", "far", "outlier"])
def test_figures_are_scikit_learns(kind: str) -> None:
    z, positive = drawn(1)
    change = {
        "plain": z,
        "ties": np.round(z),
        "steep": 30 * z,
        "tiny": 1e-6 * z,
        "reversed": -z,
        "far": z + 1000,
        "outlier": np.where(np.arange(400) == 7, 1000.0, z),
    }
    z = change[kind]
    found = probability_figures(z, positive)
    p = expit(z)
    # scikit-learn cuts probabilities off at one ulp: a row that is certain and wrong costs 36 nats
    exact = np.mean(np.where(positive, np.logaddexp(0, -z), np.logaddexp(0, z)))
    if np.abs(z).max() < 30:
        assert exact == pytest.approx(log_loss(positive, p))
    assert found["log_loss"] == pytest.approx(exact, rel=1e-12)
    assert found["brier"] == pytest.approx(brier_score_loss(positive, p), rel=1e-9)
    base = np.full(400, positive.mean())
    assert found["base_rate_log_loss"] == pytest.approx(log_loss(positive, base), rel=1e-12)
    centre, spread = z.mean(), z.std()
    fit = LogisticRegression(C=1e12, tol=1e-10, solver="newton-cholesky", max_iter=1000)
    fit.fit(((z - centre) / spread)[:, None], positive)
    slope = fit.coef_[0, 0] / spread
    assert found[SLOPE] == pytest.approx(slope, rel=1e-5)
    # at the centre, where both are best known
    middle = found[INTERCEPT] + found[SLOPE] * centre
    assert middle == pytest.approx(fit.intercept_[0], abs=1e-5)


def test_extreme_scores_have_finite_figures() -> None:
    z = np.array([1000.0, -1000.0, 1000.0, -1000.0, 1000.0])
    positive = np.array([True, False, False, True, True])
    found = probability_figures(z, positive)
    assert found["log_loss"] == pytest.approx(400) and found["brier"] == pytest.approx(0.4)
    # two of three above are positive, one of two below
    assert found[SLOPE] == pytest.approx(math.log(2) / 2000)
    assert found[INTERCEPT] == pytest.approx(math.log(2) / 2)


@pytest.mark.parametrize(
    ("z", "positive"),
    [
        ([1.0, 2.0, 3.0], [True, True, True]),
        ([1.0, 2.0, 3.0], [False, False, False]),
        ([1.0, 2.0, 3.0, 4.0], [False, False, True, True]),
        ([1.0, 2.0, 3.0, 4.0], [True, True, False, False]),
        ([1.0, 2.0, 2.0, 3.0], [False, False, True, True]),
        ([1.0, 2.0, 2.0 + 4e-16, 3.0], [False, True, False, True]),
        ([0.0, 0.0, 0.0], [False, True, True]),
        ([0.1, 0.1 + 2e-17, 0.1 - 2e-17], [False, True, True]),
        ([math.inf, 0.0, 1.0, -1.0], [True, False, False, True]),
        ([1.0, 2.0, 3.0, 1e300], [True, False, True, False]),
    ],
)
def test_where_no_calibration_exists_it_is_none(z: list[float], positive: list[bool]) -> None:
    """One class, separated, separated but for a tie, constant, infinite; 1e300 has an optimum."""
    found = calibration(np.array(z), np.array(positive))
    if max(z) == 1e300:
        assert all(map(math.isfinite, found)) or all(map(math.isnan, found))
    else:
        assert all(map(math.isnan, found))
        assert found[0] is math.nan  # so that equal results compare as equal
