"""Expected log loss against simulations of the same population, scored by scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm
from sklearn.metrics import log_loss as sklearn_log_loss

from protocols.numerics.approximation import Polynomial, is_symmetric, sigmoid_approximation
from protocols.privacy.certificates.problem import Problem
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss.budget import Budget
from protocols.privacy.search import barrier as barrier_search
from protocols.privacy.search import momentum as momentum_search
from protocols.privacy.search import ridge as ridge_search
from protocols.privacy.search.search import TOLERANCE, find_setting
from protocols.privacy.search.utility import (
    TRUTHS,
    Candidate,
    _odd,
    gaussian_mean,
    log_loss,
)
from protocols.rows.training import PlainGradient, train_plain
from protocols.updates.barrier import Barrier
from protocols.updates.momentum import GradientDescent
from tests.protocols.privacy.search.candidates import candidate_of

Floats = NDArray[np.float64]

MOMENTS = (0.2, 0.15, 0.12, 0.1, 0.1, 0.05, 0.02)
ROWS = 30_000
SEEDS = 6
LOUD, LOUD_SEEDS = 16, 150


def _problem(method: str, rounds: int) -> Problem:
    split = NoiseSplit(parties=10, colluders=3)
    return Problem(
        method=method,
        rows=3000,
        features=len(MOMENTS),
        norm_bound=1.0,
        budget=Budget(epsilon=1.0, delta=1e-5, split=split),
        rounds=rounds,
    )


def _gd(d: Any) -> Any:
    return GradientDescent(rounds=d.rounds, learning_rate=d.learning_rate, ridge=d.lam)


def _barrier(d: Any) -> Any:
    p = d.reciprocal.polynomial
    scaled = Polynomial(
        coefficients=tuple(c / d.theta for c in p.coefficients),
        center=p.center * d.theta,
        radius=p.radius * d.theta,
    )
    return Barrier(
        rounds=d.rounds,
        learning_rate=d.learning_rate,
        theta=d.theta,
        weight=d.lam,
        reciprocal=scaled,
    )


def _link(d: Any) -> Polynomial:
    if hasattr(d, "approximation"):
        found: Polynomial = d.approximation.polynomial
        return found
    return sigmoid_approximation(d.degree, d.interval).polynomial


def _population(rng: np.random.Generator, variance: float, base: float) -> tuple[Floats, Floats]:
    """Rows and labels with the moments of `MOMENTS`, the first column constant."""
    x = rng.standard_normal((ROWS, len(MOMENTS))) * np.sqrt(MOMENTS)
    x[:, 0] = math.sqrt(MOMENTS[0])
    mean = float(gaussian_mean(np.array([[variance]]), np.array([[base]]))[0, 0])
    weights = math.sqrt(variance / sum(MOMENTS[1:]))
    z = mean + weights * x[:, 1:].sum(axis=1)
    return x, (rng.random(ROWS) < expit(z)).astype(float)


def _simulated(rule: Any, link: Polynomial, noise: float, seeds: int = SEEDS) -> float:
    """Log loss on new rows, mean over the reference populations and noise."""
    rng = np.random.default_rng(7)
    found = []
    for truth in TRUTHS:
        (x, y), (new_x, new_y) = _population(rng, *truth), _population(rng, *truth)
        if not is_symmetric(link):
            x, y = x * (2 * y - 1)[:, None], np.ones_like(y)
        for _ in range(seeds if noise else 1):
            chi = noise * rng.standard_normal((rule.rounds, len(MOMENTS)))
            w = train_plain(rule, PlainGradient(x, y, chi, link), len(MOMENTS))
            found.append(sklearn_log_loss(new_y, expit(new_x @ w)))
    return float(np.mean(found))


@pytest.mark.parametrize(
    ("rounds", "rate", "noise"), [(2, 4.0, 0.02), (10, 8.0, 0.0), (10, 8.0, 0.03)]
)
def test_a_simulation_of_signed_rows(rounds: int, rate: float, noise: float) -> None:
    """Residuals that saturate; the symmetric part of the link alone would be off by more."""
    link = sigmoid_approximation(15, 12.0, "saturating").polynomial
    rule = GradientDescent(rounds=rounds, learning_rate=rate, ridge=0.0)
    told = candidate_of(rule, link, noise)
    expected = float(log_loss([told], features=7, population=MOMENTS)[0])
    assert _simulated(rule, link, noise, seeds=30) == pytest.approx(expected, abs=0.004)
    symmetric = replace(told, link=_odd(link))
    assert abs(log_loss([symmetric], features=7, population=MOMENTS)[0] - expected) > 0.0055


@pytest.mark.parametrize(
    ("method", "search", "rounds", "rule", "noise_factor"),
    [
        ("ridge", ridge_search, 12, _gd, 0.0),
        ("ridge", ridge_search, 60, _gd, 1.0),
        ("barrier", barrier_search, 25, _barrier, 1.0),
        ("nag", momentum_search, 8, lambda d: d.rule, 1.0),
    ],
)
def test_a_simulation_gives_the_expected_log_loss(
    method: str, search: Any, rounds: int, rule: Callable[[Any], Any], noise_factor: float
) -> None:
    found = list(search.drafts(_problem(method, rounds)))
    noisy = search.merits(found, len(MOMENTS), MOMENTS)
    order = np.argsort(noisy)
    for at in (0, 0.3, 0.6):
        draft = found[order[int(at * len(found))]]
        draft = replace(draft, noise=noise_factor * draft.noise)
        expected = float(search.merits([draft], len(MOMENTS), MOMENTS)[0])
        told = candidate_of(rule(draft), _link(draft), draft.noise)
        assert log_loss([told], features=7, population=MOMENTS)[0] == pytest.approx(
            expected, abs=1e-3 if method == "barrier" else 1e-12
        )
        assert _simulated(rule(draft), _link(draft), draft.noise) == pytest.approx(
            expected, abs=0.008
        )


def test_so_it_does_where_noise_is_most_of_the_weights() -> None:
    search, rule = momentum_search, lambda d: d.rule
    found = list(search.drafts(_problem("nag", 6)))
    draft = found[int(np.argmin(search.merits(found, len(MOMENTS), MOMENTS)))]
    draft = replace(draft, noise=LOUD * draft.noise)
    still = replace(draft, noise=0.0)
    least, expected = search.merits([still, draft], len(MOMENTS), MOMENTS)
    found_loss = _simulated(rule(draft), _link(draft), draft.noise, LOUD_SEEDS)
    assert expected > least + 0.04
    assert found_loss - least == pytest.approx(expected - least, rel=0.12)


def _silent(rates: tuple[float, ...], link: Polynomial) -> float:
    candidate = Candidate(rates=rates, noise=0.0, link=link)
    return float(log_loss([candidate], features=7, population=MOMENTS)[0])


def test_a_link_that_is_too_flat_costs_though_it_ranks_as_well() -> None:
    """Its fixed point has the true direction and too large a scale."""
    good = sigmoid_approximation(15, 8.0).polynomial
    flat = replace(good, coefficients=(0.5, *(c / 3 for c in good.coefficients[1:])))
    rates = (4.0,) * 3000
    least = np.mean([_entropy(*truth) for truth in TRUTHS])
    assert _silent(rates, good) == pytest.approx(least, abs=1e-4)
    assert _silent(rates, flat) > least + 0.1


def test_divergence_is_infinite_and_last() -> None:
    """Steps of 1000 on a link whose slope is kept by clipping: nothing overflows into a figure."""
    line = Polynomial(coefficients=(0.5, 0.25), center=0.0, radius=1.0)
    wild = Candidate(rates=(1e200,) * 9, noise=0.0, link=line)
    tame = Candidate(rates=(1.0,) * 9, noise=0.0, link=line)
    losses = log_loss([wild, tame], features=5)
    assert losses[0] == math.inf
    assert math.isfinite(losses[1])


def _entropy(variance: float, base: float) -> float:
    """Log loss of the truth itself, by another quadrature."""
    mean = float(gaussian_mean(np.array([[variance]]), np.array([[base]]))[0, 0])

    def term(g: float) -> float:
        p = float(expit(mean + math.sqrt(variance) * g))
        return -float(norm.pdf(g)) * (p * math.log(p) + (1 - p) * math.log(1 - p))

    return float(quad(term, -12, 12)[0])


def _find(**more: Any) -> Any:
    figures: dict[str, Any] = {
        "rows": 3000,
        "features": 7,
        "norm_bound": 1.0,
        "epsilon": 1.0,
        "delta": 1e-5,
    }
    return find_setting(**figures, parties=10, colluders=3, method="ridge", **more)


def test_the_cheapest_of_the_good_settings_is_found() -> None:
    certificate = _find(population=MOMENTS)
    problem = replace(_problem("ridge", 1), rounds=None)
    strategy = ridge_search.STRATEGY
    found = list(strategy.drafts(problem))
    losses = strategy.merits(found, len(MOMENTS), MOMENTS)
    loss = certificate.figures["expected_log_loss"]
    assert loss <= losses.min() + TOLERANCE
    good = [draft for draft, each in zip(found, losses, strict=True) if each <= loss]
    assert certificate.setting.rounds <= min(draft.rounds for draft in good)
    assert "merit" not in certificate.figures


def test_a_population_proves_nothing() -> None:
    """It chooses; noise and conditions of what is chosen are the checker's."""
    skewed = _find(population=(0.9, *[1e-4] * 6))
    assert skewed.satisfied
    assert skewed.figures["epsilon_exact"] <= 1.0
