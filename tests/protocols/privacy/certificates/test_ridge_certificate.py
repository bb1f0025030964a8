"""The descent bound: formulas, mutants, and worst-case runs that stay inside."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from protocols.errors import ParameterError
from protocols.numerics.approximation import Approximation, is_symmetric, sigmoid_approximation
from protocols.privacy.certificates.descent_bound import push_bound
from protocols.privacy.certificates.problem import Problem, Steps
from protocols.privacy.certificates.ridge import RidgeSetting, check
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss.budget import Budget
from protocols.privacy.search.ridge import drafts
from protocols.privacy.search.ridge import setting as from_draft
from tests.protocols.privacy.checks import worst_walk

SPLIT = NoiseSplit(parties=10, colluders=3)


@lru_cache
def _setting(
    *,
    rows: int = 30_000,
    features: int = 24,
    norm_bound: float = 1.0,
    rounds: int = 100,
    learning_rate: float = 2.0,
    epsilon: float | None = 1.0,
    delta: float = 1e-5,
    split: NoiseSplit = SPLIT,
    spectrum: float | None = None,
    least: float = 10.0,
    steps: Steps | None = None,
) -> RidgeSetting:
    """The first draft of degree 7 whose ball has a radius of about 10 (least)."""
    budget = Budget(epsilon=epsilon, delta=delta, split=split, mechanism_share=0.5)
    problem = Problem(
        method="ridge",
        rows=rows,
        features=features,
        norm_bound=norm_bound,
        budget=budget,
        rounds=rounds,
        degree=7,
        spectrum=spectrum,
        steps=steps,
    )
    found = drafts(problem)
    wide = (d for d in found if d.approximation.polynomial.radius > least)
    draft = next(d for d in wide if epsilon is None or d.learning_rate == learning_rate)
    return from_draft(draft, problem)


def test_mutants_are_refused() -> None:
    good = _setting()

    def violated(setting: RidgeSetting) -> set[str]:
        return {c.name for c in check(setting).conditions if not c.satisfied}

    assert violated(good) == set()
    assert "privacy_noise" in violated(replace(good, sigma=good.sigma / 2)), "sigma halved"
    assert "privacy_noise" in violated(replace(good, norm_bound=good.norm_bound * 1.02))
    assert "descent_bound" in violated(replace(good, learning_rate=4 * good.learning_rate)), (
        "too fast"
    )
    assert "descent_bound" in violated(replace(good, lam=0.0, rounds=4 * good.rounds)), (
        "unregularised"
    )
    assert "privacy_noise" in violated(replace(good, encryption_error=0.01)), "CKKS error unpaid"


def test_noise_of_all_parties_bounds_the_iterates() -> None:
    tight = _setting(rows=600, rounds=25)
    assert check(tight).satisfied
    everyone = replace(
        tight, budget=replace(tight.budget, split=NoiseSplit(parties=40, colluders=39))
    )
    assert check(everyone).figures["sigma_total"] == pytest.approx(
        tight.sigma * math.sqrt(40), rel=1e-5
    )
    assert not check(everyone).satisfied, "one party's noise would have passed"


def test_scaling_the_rows_changes_nothing() -> None:
    one, root = check(_setting()), check(_setting(norm_bound=math.sqrt(24)))
    assert root.satisfied
    for name in ("interval", "e_f", "epsilon_exact"):
        assert root.figures[name] == pytest.approx(one.figures[name], rel=1e-9)
    assert root.figures["R"] * math.sqrt(24) == pytest.approx(one.figures["R"])
    assert root.figures["D2"] == pytest.approx(one.figures["D2"] * math.sqrt(24), rel=1e-6)


@given(
    degree=st.sampled_from([3, 5, 7]),
    interval=st.floats(1.0, 20.0),
    learning_rate=st.floats(0.1, 8.0),
    alpha=st.floats(0.0, 1.0),
)
@settings(max_examples=40, deadline=None)
def test_the_push_bound_is_the_maximum(
    degree: int, interval: float, learning_rate: float, alpha: float
) -> None:
    p = sigmoid_approximation(degree, round(interval, 1)).polynomial
    bound = push_bound(
        p, shrink=1 - alpha, learning_rate=learning_rate, norm_bound=1.0, radius=p.radius
    )
    z: NDArray[np.float64] = np.linspace(-1, 1, 4001).astype(np.float64) * p.radius
    sampled = float(np.max((1 - alpha) * z * (1 - p(z)) + 0.5 * learning_rate * (1 - p(z)) ** 2))
    assert sampled <= bound
    assert bound == pytest.approx(sampled, rel=1e-3)


def _worst_run(setting: RidgeSetting, noise: float, trials: int) -> NDArray[np.float64]:
    """The mean of the rows has the squared length Lambda."""
    shrink, bound = 1 - setting.learning_rate * setting.lam, math.sqrt(setting.largest_eigenvalue)
    return worst_walk(setting, lambda norm: shrink, bound=bound, noise=noise, trials=trials)


def test_iterates_stay_within_the_ball_on_the_worst_data() -> None:
    """delta_norm is large, so that failures could be seen; without noise the bound is close."""
    quiet = _setting(epsilon=None, features=5)
    largest = _worst_run(quiet, 0.0, 200)
    reached = check(quiet).figures["reached"]
    assert 0.9 * reached < largest.max() <= reached
    loud = _setting(rows=250, features=5, delta=0.6, rounds=25)
    certificate = check(loud).require()
    noise = certificate.figures["sigma_total"]
    largest = _worst_run(loud, noise, 4000)
    assert np.mean(largest > certificate.figures["R"]) <= loud.budget.delta_norm
    assert np.mean(largest > 0.6 * certificate.figures["R"]) > 0.01, "the noise matters"


@pytest.mark.parametrize(("rounds", "spectrum", "rate"), [(6, 0.05, 6.0), (10, 0.2, 4.0)])
def test_lambda_bounds_the_worst_data_and_its_half_does_not(
    rounds: int, spectrum: float, rate: float
) -> None:
    """Rates of several times 1 / Lambda; the bound is attained to three digits without noise."""
    loud = _setting(rounds=rounds, spectrum=spectrum, learning_rate=rate / spectrum, least=5.0)
    assert check(loud).satisfied
    quiet = replace(loud, sigma=0.0, budget=replace(loud.budget, epsilon=None))
    # one more round: the last iterate is within the ball as well
    far = _worst_run(replace(quiet, rounds=rounds + 1), 0.0, 20).max()
    reached = check(quiet).figures["reached"]
    assert 0.998 * reached < far <= reached
    half = check(replace(quiet, spectrum=spectrum / 2)).figures["reached"]
    assert far > 1.04 * half, "half of Lambda claims a smaller ball"


def test_lambda_with_noise_that_can_be_seen_to_fail() -> None:
    loud = _setting(
        rows=2000, features=5, delta=0.6, rounds=10, spectrum=0.05, learning_rate=40.0, least=6.0
    )
    certificate = check(loud).require()
    largest = _worst_run(loud, certificate.figures["sigma_total"], 4000)
    assert np.mean(largest > certificate.figures["R"]) <= loud.budget.delta_norm
    half = check(replace(loud, spectrum=0.025)).figures["reached"]
    assert np.mean(largest > half) > loud.budget.delta_norm


@pytest.mark.parametrize("rows", [20_000, 2000])
def test_the_ball_of_signed_rows_on_the_worst_data(rows: int) -> None:
    """A saturating link: reached to 1 % without noise, and half of it is left."""
    steps = Steps(rounds=10, rate=6.0, wander=math.inf, saturates=True)
    loud = _setting(
        rows=rows, features=5, rounds=10, spectrum=0.2, learning_rate=30.0, least=5.0, steps=steps
    )
    assert not is_symmetric(loud.sigmoid.polynomial)
    certificate = check(loud).require()
    assert certificate.figures["D2"] < 1.2
    largest = _worst_run(loud, certificate.figures["sigma_total"], 400)
    assert largest.max() <= certificate.figures["R"]
    quiet = replace(loud, sigma=0.0, budget=replace(loud.budget, epsilon=None))
    far = _worst_run(replace(quiet, rounds=11), 0.0, 20).max()
    reached = check(quiet).figures["reached"]
    assert 0.99 * reached < far <= reached
    narrow = replace(loud.sigmoid.polynomial, radius=loud.sigmoid.polynomial.radius / 2)
    assert not check(replace(loud, sigmoid=Approximation.unchecked(narrow))).satisfied


@pytest.mark.parametrize(("field", "value"), [("lam", -1.0), ("lam", 0.6), ("rows", 0)])
def test_impossible_fields_are_refused(field: str, value: float) -> None:
    with pytest.raises(ParameterError, match=field):
        replace(_setting(), **{field: value})  # type: ignore[arg-type]
