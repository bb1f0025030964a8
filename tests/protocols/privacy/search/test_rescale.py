"""Slope and intercept from public figures, against those that scikit-learn finds in the rows."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from protocols.numerics.approximation import Polynomial, sigmoid_approximation
from protocols.privacy.search import rescale as module
from protocols.privacy.search.rescale import LARGEST, Moments, Scaling, rescale
from protocols.privacy.search.utility import Candidate
from protocols.rows.training import PlainGradient, train_plain
from protocols.updates.momentum import GradientDescent, Nesterov
from tests.protocols.privacy.search.candidates import candidate_of

Floats = NDArray[np.float64]

DIM = 8
BIAS = 0.3
FLAT = sigmoid_approximation(7, 20.0).polynomial
FINE = sigmoid_approximation(15, 12.0).polynomial


def _table(rows: int, rng: np.random.Generator, variance: float = 3.0) -> tuple[Floats, Floats]:
    """Correlated rows of mean other than 0 and norm about 1, the bias last; a third positive."""
    mixing = np.random.default_rng(1).standard_normal((DIM - 1, DIM - 1)) / 8 + np.eye(DIM - 1) / 4
    plain = rng.standard_normal((rows, DIM - 1))
    z = -1.0 + math.sqrt(variance / (DIM - 1)) * plain.sum(axis=1)
    x = np.hstack([plain @ mixing + 0.1, np.full((rows, 1), BIAS)])
    return x, (rng.random(rows) < expit(z)).astype(float)


def _public(x: Floats, noise: float = 0.0, seed: int = 0) -> Moments:
    """C with noise, and the A that whitens it."""
    error = noise * np.random.default_rng(seed).standard_normal((DIM, DIM))
    moment = x.T @ x / len(x) + (error + error.T) / 2
    values, vectors = np.linalg.eigh(moment)
    values = np.maximum(values, 0.0)
    matrix = (vectors / np.sqrt(values + 5 * noise + 1e-12)) @ vectors.T
    matrix /= math.sqrt(np.sum(values / (values + 5 * noise + 1e-12)))
    return Moments(moment=moment, matrix=matrix, noise=noise, bias=BIAS)


def _trained(
    rule: Any, link: Polynomial, x: Floats, y: Floats, public: Moments, noise: float, seed: int = 3
) -> Floats:
    """v, as the project's own training gives it."""
    chi = noise * np.random.default_rng(seed).standard_normal((rule.rounds, DIM))
    return train_plain(rule, PlainGradient(x @ public.matrix, y, chi, link, 1.0), DIM)


def _ideal(z: Floats, y: Floats) -> tuple[float, float]:
    found = LogisticRegression(C=1e9, max_iter=1000).fit(z[:, None], y)
    return float(found.coef_[0, 0]), float(found.intercept_[0])


@pytest.mark.parametrize(
    ("rule", "link"),
    [
        pytest.param(GradientDescent(rounds=120, learning_rate=8.0), FLAT, id="flat link"),
        pytest.param(GradientDescent(rounds=6, learning_rate=12.0), FINE, id="few steps"),
        pytest.param(GradientDescent(rounds=60, learning_rate=8.0, ridge=0.01), FINE, id="ridge"),
        pytest.param(Nesterov(rounds=5, learning_rate=8.0), FINE, id="momentum"),
        pytest.param(GradientDescent(rounds=120, learning_rate=8.0), FINE, id="no bias"),
    ],
)
def test_a_known_bias_is_taken_out(rule: Any, link: Polynomial) -> None:
    rng = np.random.default_rng(0)
    (x, y), (new_x, new_y) = _table(12_000, rng), _table(30_000, rng)
    public = _public(x)
    noise = 0.002 * rule.rounds**0.5
    ratios, gaps, intercepts, gains = [], [], [], []
    for seed in range(3):
        weights = _trained(rule, link, x, y, public, noise, seed)
        raw = public.matrix @ weights
        slope, intercept = _ideal(new_x @ raw, new_y)
        found = rescale(weights, candidate_of(rule, link, noise), public)
        ratios.append(found.slope / slope)
        intercepts.append(found.intercept - intercept)
        before = log_loss(new_y, expit(new_x @ raw))
        after = log_loss(new_y, expit(new_x @ found.of(raw, BIAS)))
        best = log_loss(new_y, expit(slope * (new_x @ raw) + intercept))
        gaps.append(after - best)
        gains.append(before - after)
    # Below 1: part of the way is not gone, for the mean field's own error.
    assert 0.82 < float(np.mean(ratios)) < 1.12
    assert float(np.mean(intercepts)) == pytest.approx(0, abs=0.12)
    assert float(np.mean(gaps)) < 0.006
    assert float(np.mean(gains)) > -0.002
    assert min(gains) > -0.008


@pytest.mark.parametrize(
    ("rule", "link"),
    [
        (GradientDescent(rounds=120, learning_rate=8.0), FLAT),
        (GradientDescent(rounds=6, learning_rate=12.0), FINE),
        (GradientDescent(rounds=60, learning_rate=8.0, ridge=0.01), FINE),
        (Nesterov(rounds=5, learning_rate=8.0), FINE),
    ],
)
def test_the_estimate_itself_has_no_bias(
    rule: Any, link: Polynomial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MISFIT", 0.0)
    rng = np.random.default_rng(2)
    (x, y), (new_x, new_y) = _table(60_000, rng), _table(100_000, rng)
    public = _public(x)
    weights = _trained(rule, link, x, y, public, 0.0)
    slope, intercept = _ideal(new_x @ public.matrix @ weights, new_y)
    found = rescale(weights, candidate_of(rule, link, 0.0), public)
    assert found.slope == pytest.approx(slope, rel=0.04)
    assert found.intercept == pytest.approx(intercept, abs=0.04)


@pytest.mark.parametrize("seed", range(4))
def test_where_noise_explains_the_weights_nothing_is_destroyed(seed: int) -> None:
    """300 rows at about epsilon = 1."""
    rng = np.random.default_rng(seed)
    (x, y), (new_x, new_y) = _table(300, rng), _table(20_000, rng)
    public = _public(x, noise=0.06, seed=seed)
    rule, noise = GradientDescent(rounds=8, learning_rate=4.0), 0.08
    weights = _trained(rule, FINE, x, y, public, noise, seed)
    raw = public.matrix @ weights
    found = rescale(weights, candidate_of(rule, FINE, noise), public)
    before = log_loss(new_y, expit(new_x @ raw))
    assert log_loss(new_y, expit(new_x @ found.of(raw, BIAS))) < before + 0.02


def test_weights_of_noise_alone_are_left_alone() -> None:
    x, _ = _table(300, np.random.default_rng(0))
    public = _public(x)
    rule, noise = GradientDescent(rounds=8, learning_rate=4.0), 0.5
    candidate = candidate_of(rule, FINE, noise)
    slopes = [
        rescale(
            _trained(rule, Polynomial(coefficients=(0.5,), center=0.0, radius=1.0), x,
                     np.full(300, 0.5), public, noise, seed), candidate, public,
        ).slope
        for seed in range(20)
    ]  # fmt: skip
    assert 0.6 < float(np.exp(np.mean(np.log(slopes)))) < 1.1
    assert max(slopes) < 1.5


def _example() -> tuple[Floats, Candidate, Moments]:
    x, y = _table(5000, np.random.default_rng(0))
    public, rule = _public(x), GradientDescent(rounds=8, learning_rate=8.0)
    return _trained(rule, FINE, x, y, public, 0.01), candidate_of(rule, FINE, 0.01), public


def test_every_machine_finds_the_same_digits() -> None:
    """Rounding of a linear algebra library is some 1e-15."""
    weights, candidate, public = _example()
    found = rescale(weights, candidate, public)
    rng = np.random.default_rng(5)
    for _ in range(10):
        hair = 1 + 1e-14 * rng.standard_normal(DIM)
        same = replace(public, moment=public.moment * (1 + 1e-14))
        assert rescale(weights * hair, candidate, same) == found
    assert found.slope != 1.0


def test_it_sees_nothing_but_public_figures() -> None:
    assert list(inspect.signature(rescale).parameters) == ["weights", "candidate", "moments"]
    fields = set(Moments.__dataclass_fields__)
    assert fields == {"moment", "matrix", "noise", "bias"}


@pytest.mark.parametrize("bad", [0.0, math.nan, math.inf, 1e200])
def test_impossible_weights_stay_as_they_are(bad: float) -> None:
    weights, candidate, public = _example()
    assert rescale(bad * weights, candidate, public) == Scaling(slope=1.0, intercept=0.0)


def test_scores_become_a_z_plus_b() -> None:
    x, _ = _table(50, np.random.default_rng(0))
    weights: Floats = np.linspace(1.0, 2.0, DIM).astype(np.float64)
    kept = weights.copy()
    found = x @ Scaling(slope=2.5, intercept=-0.7).of(weights, BIAS)
    assert found == pytest.approx(2.5 * (x @ weights) - 0.7)
    assert (weights == kept).all()
    assert LARGEST > 2.5
