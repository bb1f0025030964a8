"""LFFR's certificate: sensitivity, the walk, the noise."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from protocols.errors import ParameterError, PrivacyError
from protocols.exchange.serialise import to_plain
from protocols.models.lffr import CURVATURE, PAPER_LINK, slope_of_loss
from protocols.privacy.certificates.lffr import LffrSetting, check
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss.budget import Budget

Floats = np.ndarray
BUDGET = Budget(epsilon=1.0, delta=1e-5, split=NoiseSplit(parties=3, colluders=1))


def setting(**changes: Any) -> LffrSetting:
    """10,000 rows; half the rate that the rows' norm bound allows."""
    fields: dict[str, Any] = {
        "rows": 10_000,
        "features": 9,
        "outputs": 2,
        "norm_bound": 3.0,
        "link": PAPER_LINK,
        "learning_rate": 0.5 / (CURVATURE * 9.0),
        "rounds": 15,
        "budget": BUDGET,
    }
    return LffrSetting(**(fields | changes))


def slopes(x: Floats, y: Floats, w: Floats) -> Floats:
    """A row's part of the sum of gradients, shape (rows, d, c)."""
    return x[:, :, None] * slope_of_loss(PAPER_LINK, x @ w, y)[:, None, :]


@pytest.mark.parametrize("outputs", [1, 3])
def test_no_pair_of_rows_is_further_apart_than_the_sensitivity(outputs: int) -> None:
    """60,000 pairs in the ball; opposite rows at W = 0 reach 27/32 of the bound."""
    rng, s = np.random.default_rng(1), setting(outputs=outputs, features=3)
    for radius in (0.0, 0.5, 1.0):
        w = rng.normal(size=(3, outputs))
        w *= radius * s.radius / np.linalg.norm(w, axis=0)
        x = rng.normal(size=(2, 20_000, 3))
        x *= s.norm_bound / np.linalg.norm(x, axis=2, keepdims=True)
        y = rng.integers(0, 2, (2, 20_000, outputs)).astype(float)
        apart = slopes(x[0], y[0], w) - slopes(x[1], y[1], w)
        assert np.linalg.norm(apart, axis=(1, 2)).max() <= s.sensitivity
    row, low = np.array([[s.norm_bound, 0.0, 0.0]]), np.zeros((1, outputs))
    pair = slopes(row, low, 0 * w) - slopes(-row, low, 0 * w)
    assert np.linalg.norm(pair) == pytest.approx(27 / 32 * s.sensitivity)


def test_the_worst_walk_stays_within_the_bound() -> None:
    """All rows alike push one way: without noise at most what is reached, and half of it."""
    s = setting(budget=replace(BUDGET, epsilon=None), rounds=10)
    certificate = check(s)
    assert certificate.satisfied
    w, furthest = 0.0, 0.0
    for _ in range(s.rounds):
        w -= (
            s.learning_rate
            * s.norm_bound
            * float(slope_of_loss(PAPER_LINK, np.array(s.norm_bound * w), np.array(1.0)))
        )
        furthest = max(furthest, abs(w))
    assert 0.5 * certificate.figures["reached"] < furthest <= certificate.figures["reached"]


def test_noisy_walks_stay_within_the_bound() -> None:
    """300 walks of adversarial rows and the certified total noise, none beyond the bound."""
    certificate = check(setting(rows=1000))
    s, rng = certificate.setting, np.random.default_rng(2)
    row, y = np.zeros((1, 9)), np.array([[1.0]])
    row[0, 0] = s.norm_bound
    norms = []
    for _ in range(300):
        w = np.zeros((9, 1))
        for _ in range(s.rounds):
            noise = rng.normal(0, certificate.figures["sigma_total"], (9, 1))
            w = w - s.learning_rate * (slopes(row, y, w)[0] + noise)
            norms.append(np.linalg.norm(w))
    assert 0.3 * certificate.figures["reached"] < max(norms) < certificate.figures["reached"]


def test_a_walk_that_may_leave_the_interval_is_refused_by_name() -> None:
    assert check(setting()).require().satisfied
    for change in ({"rounds": 100}, {"learning_rate": 2.0}, {"rows": 300}):
        certificate = check(setting(**change))
        assert certificate.binding.name == "descent_bound"
        with pytest.raises(
            PrivacyError, match="condition descent_bound fails.*polynomial's interval"
        ):
            certificate.require()
    # The ridge pulls back.
    kept = check(setting(rounds=100, ridge=0.2))
    assert kept.satisfied
    assert kept.figures["reached"] < check(setting(rounds=100)).figures["reached"]


def test_the_noise_is_what_epsilon_needs() -> None:
    """delta(epsilon) of T Gaussian rounds, from scipy's normal law; other outputs cost sqrt(c)."""
    certificate = check(setting())
    s = certificate.setting
    assert certificate.figures["D"] == pytest.approx(2 * 3.0 * math.sqrt(2) * 8 / 27)
    mu = math.sqrt(s.rounds) * s.sensitivity / (s.rows * s.sigma)
    delta = norm.cdf(mu / 2 - 1 / mu) - math.e * norm.cdf(-mu / 2 - 1 / mu)
    assert delta == pytest.approx(BUDGET.delta_mechanism, rel=1e-6)
    assert certificate.figures["delta_total"] <= BUDGET.delta
    less = check(setting(sigma=0.95 * s.sigma))
    assert next(c.name for c in less.conditions if not c.satisfied) == "privacy_noise"
    four = check(setting(outputs=8)).setting
    assert four.sigma == pytest.approx(2 * s.sigma, rel=1e-9)
    widened = check(setting(encryption_error=1e-3))
    assert widened.setting.sigma > s.sigma
    assert widened.figures["sensitivity"] == pytest.approx(s.sensitivity + 2e-3 * math.sqrt(18))
    assert certificate.events[0].count == s.rounds


def test_settings_out_of_range_and_json() -> None:
    for change in (
        {"rows": 0},
        {"learning_rate": -1.0},
        {"ridge": math.nan},
        {"sigma": -1.0},
        {"ridge": 9.0},
    ):
        with pytest.raises(ParameterError, match=next(iter(change))):
            setting(**change)
    document = json.loads(json.dumps(check(setting()).to_dict()))
    assert document["setting"]["link"] == to_plain(PAPER_LINK)
    assert document["binding"] == "descent_bound"
