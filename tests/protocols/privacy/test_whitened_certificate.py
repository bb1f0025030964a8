"""Certificates of whitened runs: what a plan says of itself, by another accountant, and mutants."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest
from scipy.stats import norm as normal

from protocols.errors import ParameterError, PrivacyError
from protocols.numerics import arithmetic
from protocols.numerics.whitening import Whitening, moment_sensitivity, whiten
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.rows import RowsChoice, rows_plan
from protocols.privacy.certificates.certificate import Certificate
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.privacy.certificates.ridge import check
from protocols.privacy.search.search import find_setting
from protocols.rows import slots as row_slots
from protocols.updates.momentum import GradientDescent

NORM = 1.5
"""Of the rows before whitening."""
ROWS = 20_000
WANTED = Wanted(update="gd", epsilon=2.0, colluders=1, profile="fast-insecure", rounds=6, degree=7)
FIGURES = PublicFigures.even(rows=ROWS, features=7, parties=3)
SPLIT = WANTED.split(FIGURES)
MU = 0.15


@lru_cache
def whitening() -> Whitening:
    d = FIGURES.num_features
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, d)) / np.arange(1, d + 1)
    x *= NORM / np.maximum(NORM, np.linalg.norm(x, axis=1))[:, None]
    sigma = moment_sensitivity(ROWS, NORM) / MU
    total = SPLIT.total_std(sigma)
    upper = np.triu(rng.standard_normal((d, d)), 1) * total / math.sqrt(2)
    noise = upper + upper.T + np.diag(total * rng.standard_normal(d))
    moment = x.T @ x / ROWS
    moment = (moment + moment.T) / 2 + noise
    return whiten(moment, sigma=sigma, split=SPLIT, failure=WANTED.delta / 50)


def counted() -> dict[str, float]:
    allowances = arithmetic.allowances(1.0, FIGURES.num_features)
    found = whitening().charged(
        allowances, SPLIT, rows=ROWS, norm_bound=NORM, epsilon=WANTED.epsilon or 0.0
    )
    return dict(found)


def certified(method: str = "ridge", **changes: Any) -> Certificate:
    query: dict[str, Any] = {
        "rows": ROWS,
        "features": FIGURES.num_features,
        "norm_bound": 1.0,
        "epsilon": WANTED.epsilon,
        "delta": WANTED.delta,
        "parties": 3,
        "colluders": 1,
        "rounds": WANTED.rounds,
        "degree": WANTED.degree,
        "whitening": whitening(),
        **counted(),
    }
    return find_setting(method=method, **{**query, **changes})


class Planned:
    """A plan, and a whitening that it states."""

    def __init__(self, plan: Any, whitened: Whitening | None) -> None:
        self._plan, self.whitening = plan, whitened

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)


def planned(found: Certificate, whitened: Whitening | None = None, **promise: float) -> Any:
    """The plan of a certificate, whatever that certificate took for granted."""
    s = found.setting
    gd = isinstance(getattr(s, "learning_rate", None), float)
    rule = (
        GradientDescent(rounds=s.rounds, learning_rate=s.learning_rate, ridge=s.lam)
        if gd
        else s.rule
    )
    privacy = WANTED.promise(FIGURES, sigma=s.sigma, sensitivity=found.sensitivity)
    assert privacy is not None
    chosen = RowsChoice(rule=rule, link=s.sigmoid, privacy=replace(privacy, **promise))
    return Planned(rows_plan(FIGURES, WANTED, chosen), whitened or whitening())


@lru_cache
def gd() -> Certificate:
    return certified()


def test_both_releases_and_both_failures_are_paid_for() -> None:
    """epsilon and delta by formulas of this test: mu of C and of the rounds in quadrature."""
    f, s = gd().figures, gd().setting
    paid = whitening().spent(SPLIT, rows=ROWS, norm_bound=NORM)
    assert pytest.approx(paid, rel=1e-3) == MU
    beside = math.hypot(paid, arithmetic.FLOODING_MU)
    mu = math.hypot(beside, math.sqrt(s.rounds) * f["sensitivity"] / (ROWS * s.sigma))

    def delta(epsilon: float) -> float:
        upper = normal.cdf(mu / 2 - epsilon / mu)
        return float(upper - math.exp(epsilon) * normal.cdf(-mu / 2 - epsilon / mu))

    assert delta(f["epsilon_exact"]) == pytest.approx(f["delta_mechanism"], rel=1e-6)
    assert f["epsilon_exact"] == pytest.approx(2.0, rel=1e-6)
    assert f["delta_other"] >= arithmetic.OTHER_DELTA + whitening().failure
    assert f["delta_total"] <= WANTED.delta
    spent = sum(event.mu**2 for event in gd().events)
    # The run before was charged for C.
    assert math.hypot(math.sqrt(spent), paid) == pytest.approx(mu, rel=1e-9)


def test_the_ball_is_wider_with_lambda() -> None:
    """The same steps on rows of which only the norm is known go much further."""
    assert "whitening" in {condition.name for condition in gd().conditions}
    assert gd().setting.norm_bound == 1.0
    assert gd().figures["Lambda"] == gd().setting.spectrum == whitening().spectrum < 1
    blind = replace(gd().setting, spectrum=None, whitening=None)
    assert check(blind).figures["reached"] > 1.5 * gd().figures["reached"]
    assert not check(blind).satisfied


def believed(whitened: Whitening) -> Certificate:
    """What would be certified if nobody checked Lambda."""
    with patch.object(Whitening, "check", lambda self, split: ()):
        return certified(whitening=whitened)


def refused(plan: Any, what: str) -> None:
    with pytest.raises(PrivacyError, match=what):
        Mechanism.from_plan(plan, NORM).require()


def test_mutant_one_budget_for_two_uses() -> None:
    """Noise that pays for the rounds alone, C being free."""
    free = certified(paid_mu=0.0)
    refused(planned(free), r"epsilon=2 of the plan is below 2\.0.*: raise sigma")


def test_mutant_delta_of_the_tail_is_not_counted() -> None:
    """Nine tenths of delta for the mechanism leave no room for a tail that fails that often."""
    often = replace(whitening(), failure=WANTED.delta / 4)
    refused(planned(gd(), often), "epsilon=2 of the plan is below")


def test_mutant_lambda_halved() -> None:
    """A ball that holds for half of Lambda alone."""
    found = believed(replace(whitening(), spectrum=whitening().spectrum / 2))
    refused(planned(found), "condition descent_bound fails")


def test_another_width_is_refused() -> None:
    small = Whitening(moment=(1.0,), matrix=((1.0,),), spectrum=2.0, sigma=0.1, failure=1e-9)
    with pytest.raises(ParameterError, match="whitening of 1 columns"):
        Mechanism.from_plan(planned(gd(), small), NORM)


def test_slots_are_bounded_by_the_same_ball() -> None:
    """By the rows' norm alone, rates of several times 1 / Lambda have no bound at all."""
    plan = planned(gd())
    found, blind = row_slots.bounds(plan, 1.0), Planned(plan._plan, None)
    assert row_slots.bounds(cast(Any, blind), 1.0).largest is None
    assert found.largest is not None and found.largest < 1e3
    assert found.proof == "the ball of gradient descent with noise"
    bare = row_slots._course(plan, 1.0)
    assert bare.norm_bound == 1.0
    # each event of the ball, and the tail of C
    assert found.failure == pytest.approx(2 * bare.failure + whitening().failure, rel=1e-6)
    (by_ball, by_walk) = row_slots.norms(bare)
    assert max(by_ball.points) <= gd().figures["R"] * (1 + 1e-9) < max(by_walk.points)
    half = replace(bare, spectrum=(bare.spectrum or 0.0) / 2)
    assert max(row_slots.norms(half)[0].points) < max(by_ball.points)
