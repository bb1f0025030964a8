"""The accountant: never below the exact epsilon, at most 1 % above, and mutants are noticed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import ParameterError
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss import delta_for_mu, epsilon_for_mu, mu_for_epsilon
from protocols.privacy.loss.accounting import (
    Event,
    GaussianEvent,
    LaplaceEvent,
    compose,
    epsilon_for,
    library_epsilon,
    sigma_for,
)
from protocols.privacy.loss.budget import Budget

EPSILONS = [0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0]


def _delta(mu: float, epsilon: float) -> mpmath.mpf:
    """The definition, in 50 digits."""
    with mpmath.workdps(50):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_against_fifty_digits(epsilon: float, delta: float) -> None:
    mu = mu_for_epsilon(epsilon=epsilon, delta=delta)
    assert _delta(mu, epsilon) <= delta
    assert _delta(mu * (1 + 1e-7), epsilon) > delta
    claimed = epsilon_for_mu(mu=mu, delta=delta)
    assert _delta(mu, claimed) <= delta
    assert claimed <= epsilon * (1 + 1e-7)
    assert delta_for_mu(mu=mu, epsilon=epsilon) >= _delta(mu, epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_against_dp_accounting(epsilon: float) -> None:
    sigma = sigma_for(epsilon=epsilon, delta=1e-5, rounds=400, sensitivity=11.2, rows=27_001)
    event = GaussianEvent(noise_multiplier=27_001 * sigma / 11.2, count=400)
    exact = compose([event], delta=1e-5)
    assert exact == pytest.approx(epsilon, rel=1e-6)
    assert -1e-8 <= library_epsilon([event], delta=1e-5) / exact - 1 <= 0.01


@given(
    epsilon=st.floats(0.05, 10),
    delta=st.floats(1e-12, 0.1),
    rounds=st.integers(1, 2000),
    rows=st.integers(1, 10**6),
)
@settings(max_examples=60, deadline=None)
def test_sigma_and_epsilon_are_inverse(
    epsilon: float, delta: float, rounds: int, rows: int
) -> None:
    sigma = sigma_for(epsilon=epsilon, delta=delta, rounds=rounds, sensitivity=3.0, rows=rows)
    back = epsilon_for(sigma=sigma, delta=delta, rounds=rounds, sensitivity=3.0, rows=rows)
    assert back == pytest.approx(epsilon, rel=1e-6)


def test_the_papers_closed_form() -> None:
    sigma = 2 * 8.06913 * math.sqrt(400 * math.log(3e5)) / 34_189  # arXiv:2605.27782, Algorithm 3
    assert sigma == pytest.approx(0.03353, abs=5e-6)
    exact = sigma_for(epsilon=1.0, delta=1e-5 / 3, rounds=400, sensitivity=8.06913, rows=34_189)
    assert sigma / exact == pytest.approx(1.788, abs=0.001)
    spent = epsilon_for(sigma=sigma, delta=1e-5 / 3, rounds=400, sensitivity=8.06913, rows=34_189)
    assert spent == pytest.approx(0.53, abs=0.005)


def by_coalition(split: NoiseSplit, *, delta: float, **query: Any) -> list[float]:
    budget = Budget(epsilon=1.0, delta=2 * delta, split=split, mechanism_share=0.5)
    return list(budget.by_coalition(**query))


def test_coalitions() -> None:
    split = NoiseSplit(parties=10, colluders=3)
    query = {"delta": 1e-5, "rounds": 400, "sensitivity": 2.2, "rows": 30_000}
    sigma = sigma_for(epsilon=1.0, **query)  # type: ignore[arg-type]
    seen = by_coalition(split, sigma=sigma, **query)  # type: ignore[arg-type]
    assert len(seen) == 10
    assert seen == sorted(seen)
    assert seen[3] == pytest.approx(1.0, rel=1e-6)
    assert seen[4] > 1.0


def test_a_split_by_p_shows_the_published_leak() -> None:
    query = {"delta": 1e-5, "rounds": 400, "sensitivity": 1.0, "rows": 1}
    sigma = sigma_for(epsilon=1.0, **query)  # type: ignore[arg-type]
    by_p = NoiseSplit(parties=10, colluders=0)
    seen = by_coalition(by_p, sigma=sigma, **query)  # type: ignore[arg-type]
    assert seen[9] == pytest.approx(3.62, abs=0.005)


def test_composition_adds_mu_squared() -> None:
    once = [GaussianEvent(noise_multiplier=5.0, count=8)]
    parts = [GaussianEvent(noise_multiplier=5.0, count=3), GaussianEvent(noise_multiplier=5.0)]
    parts.append(GaussianEvent(noise_multiplier=5.0, count=4))
    assert compose(parts, delta=1e-5) == pytest.approx(compose(once, delta=1e-5), rel=1e-12)
    assert compose([], delta=1e-5) == 0.0


def test_laplace_composes_through_the_library() -> None:
    pure: list[Event] = [LaplaceEvent(noise_multiplier=2.0, count=2)]
    assert 0.8 < compose(pure, delta=1e-9) <= 1.0 + 1e-3
    mixed: list[Event] = [*pure, GaussianEvent(noise_multiplier=5.0, count=4)]
    assert compose(mixed, delta=1e-5) > compose(mixed[1:], delta=1e-5)


def test_what_is_left_for_the_rounds_composes_to_the_promise() -> None:
    split = NoiseSplit(parties=5, colluders=2)
    plain = Budget(epsilon=1.0, delta=1e-5, split=split)
    paid = replace(plain, spent_mu=plain.mu / 2)
    call: dict[str, Any] = {"rounds": 30, "sensitivity": 2.0, "rows": 20_000}
    sigma = paid.sigma(**call)
    assert sigma == pytest.approx(plain.sigma(**call) / math.sqrt(0.75), rel=1e-12)
    mu = math.hypot(paid.spent_mu, math.sqrt(30) * 2 / (20_000 * sigma))
    assert mu == pytest.approx(plain.mu, rel=1e-12)
    assert paid.spent(sigma=sigma, **call) == epsilon_for_mu(mu=mu, delta=paid.delta_mechanism)
    assert paid.spent(sigma=sigma, **call) <= 1 + 1e-8
    with pytest.raises(ParameterError, match="uses up mu"):
        replace(plain, spent_mu=plain.mu).sigma(**call)


def test_degenerate_noise() -> None:
    query = {"delta": 1e-5, "rounds": 4, "rows": 10}
    assert epsilon_for(sigma=0.0, sensitivity=1.0, **query) == math.inf  # type: ignore[arg-type]
    assert epsilon_for(sigma=0.0, sensitivity=0.0, **query) == 0.0  # type: ignore[arg-type]
    assert epsilon_for_mu(mu=math.inf, delta=0.1) == math.inf


@pytest.mark.parametrize(
    ("field", "value"),
    [("epsilon", 0.0), ("epsilon", math.nan), ("delta", 0.0), ("delta", 1.0), ("rows", 0)],
)
def test_impossible_arguments_are_refused(field: str, value: float) -> None:
    query = {"epsilon": 1.0, "delta": 1e-5, "rounds": 1, "sensitivity": 1.0, "rows": 10}
    with pytest.raises(ParameterError, match=field):
        sigma_for(**{**query, field: value})  # type: ignore[arg-type]
