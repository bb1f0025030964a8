"""The release of the gradient at zero: its bound, its price, and what the certificate says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import ncx2, norm

from protocols.errors import ParameterError
from protocols.privacy import barrier_certificate
from protocols.privacy.accounting import compose
from protocols.privacy.budget import Budget
from protocols.privacy.certificate import Certificate
from protocols.privacy.gdp import epsilon_for_mu
from protocols.privacy.search import find_setting
from protocols.privacy.shares import NoiseSplit
from protocols.privacy.start_gradient import StartRelease, charged, noise_for

ROWS, FEATURES, DELTA = 20_000, 11, 1e-5
SPLIT = NoiseSplit(parties=5, colluders=2)
BUDGET = Budget(epsilon=1.0, delta=DELTA, split=SPLIT, mechanism_share=0.9, spent_delta=1e-7)
PROBLEM: dict[str, Any] = {
    "rows": ROWS,
    "features": FEATURES,
    "norm_bound": 1.0,
    "epsilon": 1.0,
    "delta": DELTA,
    "parties": 5,
    "colluders": 2,
    "rounds": 50,
    "degree": 5,
}
SIGMA = noise_for(share=0.05, budget=BUDGET, norm_bound=1.0, rows=ROWS, features=FEATURES)


def release(length: float = 0.2, **changes: Any) -> StartRelease:
    return replace(StartRelease(norm=length, sigma=SIGMA, failure=1e-7), **changes)


def certified(start: StartRelease | None) -> Certificate:
    return find_setting(**PROBLEM, start=start)


# -- the bound ------------------------------------------------------------------------------------


def test_the_bound_fails_as_often_as_stated_at_most() -> None:
    # p = 0.05, 20,000 draws: within 4.5 binomial deviations of p, and not far below it.
    rng, sigma, p, draws = np.random.default_rng(3), 0.01, 0.05, 20_000
    for size, length in ((2, 0.5), (11, 0.3), (40, 0.2)):
        g = rng.normal(size=size)
        g *= length / np.linalg.norm(g)
        noise = rng.normal(0, SPLIT.total_std(sigma), (draws, size))
        seen = np.linalg.norm(g + noise, axis=1)
        one = StartRelease(norm=0.0, sigma=sigma, failure=p)
        bad = float(np.mean(seen + one.margin(SPLIT) < length))
        assert bad <= p + 4.5 * math.sqrt(p / draws)
        # By one deviation less the bound would fail too often where it is tight.
        if size == 2:
            less = one.margin(SPLIT) - SPLIT.total_std(sigma)
            assert float(np.mean(seen + less < length)) > 2 * p


def test_the_exact_law_of_the_norm_gives_little_less() -> None:
    # Upper confidence bound by the noncentral chi-square law, by bisection.
    s, seen = SPLIT.total_std(SIGMA), 0.2
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        tail = ncx2.cdf((seen / s) ** 2, FEATURES, (middle / s) ** 2)
        low, high = (middle, high) if tail > 1e-7 else (low, middle)
    ours = release(seen).d(1.0, SPLIT)
    assert high <= ours <= high + FEATURES * s**2 / (2 * high) * 1.5 + 1e-9


def test_d_is_never_above_one_half_and_counts_rounding() -> None:
    assert release(0.7).d(1.0, SPLIT) == 0.5
    margin = norm.isf(1e-7) * SPLIT.total_std(SIGMA)
    assert release(0.2).d(1.0, SPLIT) == pytest.approx(0.2 + margin, rel=1e-5)
    assert release(0.2).d(2.0, SPLIT) == pytest.approx((0.2 + margin) / 2, rel=1e-5)
    wider = release(0.2, rounding=0.01).d(1.0, SPLIT) - release(0.2).d(1.0, SPLIT)
    assert wider == pytest.approx(0.01)


def test_a_row_moves_the_gradient_at_zero_by_its_norm_at_most() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(100_000, 2, FEATURES))
    x /= np.maximum(np.linalg.norm(x, axis=2, keepdims=True), 1)
    y = rng.integers(0, 2, (100_000, 2, 1))
    rows = (0.5 - y) * x
    moved = np.linalg.norm(rows[:, 0] - rows[:, 1], axis=1)
    assert 0.95 < moved.max() <= 1.0
    cost = release().mu(norm_bound=1.0, rows=ROWS, features=FEATURES, split=SPLIT)
    assert cost == pytest.approx(1 / (ROWS * SIGMA), rel=1e-6)


# -- the price ------------------------------------------------------------------------------------


def test_a_share_of_the_budget_is_a_share_of_mu_squared() -> None:
    cost = release().mu(norm_bound=1.0, rows=ROWS, features=FEATURES, split=SPLIT)
    assert (cost / BUDGET.mu) ** 2 == pytest.approx(0.05, rel=1e-6)
    for share in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ParameterError, match="release_start"):
            noise_for(share=share, budget=BUDGET, norm_bound=1.0, rows=ROWS, features=FEATURES)


@pytest.mark.parametrize("accounting", ["exact", "paper"])
def test_what_is_left_for_the_rounds_composes_to_the_promise(accounting: Any) -> None:
    plain = replace(BUDGET, accounting=accounting, mechanism_share=1 / 3)
    paid = replace(plain, spent_mu=plain.mu / 2)
    call: dict[str, Any] = {"rounds": 30, "sensitivity": 2.0, "rows": ROWS}
    sigma = paid.sigma(**call)
    assert sigma == pytest.approx(plain.sigma(**call) / math.sqrt(0.75), rel=1e-12)
    mu = math.hypot(paid.spent_mu, math.sqrt(30) * 2 / (ROWS * sigma))
    assert mu == pytest.approx(plain.mu, rel=1e-12)
    assert paid.spent(sigma=sigma, **call) == epsilon_for_mu(mu=mu, delta=paid.delta_mechanism)
    assert paid.spent(sigma=sigma, **call) <= 1 + 1e-8
    with pytest.raises(ParameterError, match="uses up mu"):
        replace(plain, spent_mu=plain.mu).sigma(**call)


def test_charging_without_a_release_changes_nothing() -> None:
    shape: dict[str, Any] = {"norm_bound": 1.0, "rows": ROWS, "features": FEATURES}
    assert charged(BUDGET, None, **shape) == BUDGET
    paid = charged(replace(BUDGET, spent_delta=0.0), release(), **shape)
    assert paid.spent_delta == pytest.approx(1e-7, rel=1e-6)
    assert paid.spent_mu > 0


# -- the certificate ------------------------------------------------------------------------------


def test_the_certificate_lists_the_release() -> None:
    found = certified(release())
    names = [condition.name for condition in found.conditions]
    assert found.satisfied
    assert {"gradient_at_zero", "start_mu", "start_delta"} <= set(names)
    assert found.setting.d == release().d(1.0, SPLIT)
    first, rest = found.events
    assert first.count == 1
    assert rest.count == 50
    assert compose(found.events, delta=found.figures["delta_mechanism"]) <= 1 + 1e-8
    assert found.figures["delta_start"] >= 1e-7
    assert found.epsilon_by_coalition[2] <= 1
    assert found.epsilon_by_coalition[3] > 1


def test_a_small_gradient_at_zero_needs_a_weaker_barrier() -> None:
    """Where it pays: the proxy of quality rises, by more than the budget's share costs."""
    better, plain = certified(release(0.02)), certified(None)
    assert better.figures["merit"] > plain.figures["merit"]
    assert better.setting.lam * better.setting.rounds != plain.setting.lam * plain.setting.rounds


def budget_of(certificate: Certificate, **changes: Any) -> Any:
    setting = certificate.setting
    return replace(setting, budget=replace(setting.budget, **changes))


@pytest.mark.parametrize(
    ("mutant", "condition"),
    [
        (lambda c: budget_of(c, spent_mu=0.0), "start_mu"),
        (lambda c: budget_of(c, spent_delta=0.0), "start_delta"),
        (lambda c: replace(c.setting, d=c.setting.d * 0.99), "gradient_at_zero"),
        (lambda c: replace(c.setting, start=None), "gradient_at_zero"),
        (
            lambda c: replace(c.setting, start=replace(c.setting.start, sigma=SIGMA / 2)),
            "start_mu",
        ),
        (lambda c: replace(c.setting, start=release(0.3)), "gradient_at_zero"),
    ],
)
def test_mutants_are_named(mutant: Any, condition: str) -> None:
    again = barrier_certificate.check(mutant(certified(release())))
    assert condition in {c.name for c in again.conditions if not c.satisfied}


def test_the_ridge_has_no_use_for_it() -> None:
    with pytest.raises(ParameterError, match="no use of the gradient at zero"):
        find_setting(**PROBLEM, method="ridge", start=release())
