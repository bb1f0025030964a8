"""The walk certificate: its bounds against simulations, its budget, its mutants."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import pld_privacy_accountant
from numpy.typing import NDArray

from protocols.curvature import Curvature, largest_row_sum
from protocols.errors import ParameterError, PrivacyError
from protocols.privacy.accounting import sigma_for
from protocols.privacy.budget import Budget
from protocols.privacy.certificate import Certificate
from protocols.privacy.search import Method, find_setting
from protocols.privacy.shares import NoiseSplit
from protocols.privacy.walk import AcceleratedRule, Walk, responses
from protocols.privacy.walk_certificate import (
    WalkSetting,
    check,
    largest_residual,
)
from protocols.updates.catalogue import QUADRATIC
from protocols.updates.momentum import HeavyBall, Nesterov
from protocols.updates.quadratic import QuadraticNesterov
from protocols.updates.strongly_convex import StronglyConvexNesterov

Floats = NDArray[np.float64]
KINDS = ("nag", *QUADRATIC)
QUERY: dict[str, Any] = {
    "rows": 5000,
    "features": 6,
    "norm_bound": 1.5,
    "epsilon": 2.0,
    "delta": 1e-5,
    "parties": 5,
    "colluders": 2,
    "rounds": 4,
    "degree": 5,
}


@lru_cache
def certificate(kind: Method) -> Certificate:
    return find_setting(method=kind, **QUERY)


def violated(setting: WalkSetting) -> set[str]:
    return {c.name for c in check(setting).conditions if not c.satisfied}


# -- the walk --------------------------------------------------------------------------------------


def outward(
    rule: AcceleratedRule, walk: Walk, residual: Callable[[float], float], noise: float, seed: int
) -> float:
    """Largest |v_t|, t < T, of a walk whose every gradient pushes outwards as far as it may.

    The rule's own steps; noise: std, drawn anew.
    """
    rng = np.random.default_rng(seed)
    norms: list[float] = []

    def gradient(v: Floats) -> Floats:
        norm = float(np.linalg.norm(v))
        norms.append(norm)
        away = v / norm if norm > 0 else np.eye(walk.features)[0]
        push = walk.norm_bound * residual(walk.norm_bound * norm)
        chi = noise * rng.standard_normal(walk.features)
        return np.asarray(walk.gain * (-push * away + chi))

    start: Floats = np.zeros(walk.features)
    state = rule.start(start)
    for t in range(rule.rounds):
        move = rule.gradient_factor(t) * gradient(rule.point(state))
        state = rule.step(move, state, t)
    return max(norms)


def residual_of(setting: WalkSetting) -> Callable[[float], float]:
    """h on a grid, with no code of the certificate's."""
    p = setting.sigmoid.polynomial
    z: Floats = np.linspace(0.0, p.radius, 4001).astype(np.float64)
    values = np.maximum.accumulate(np.maximum(np.abs(p(z)), np.abs(p(-z))))
    return lambda at: float(np.interp(at, z, values))


def test_the_largest_residual_is_found() -> None:
    setting = certificate("nag").setting
    for z in (0.0, 0.3, 1.0, setting.sigmoid.polynomial.radius):
        found = largest_residual(setting.sigmoid.polynomial, z)
        assert found == pytest.approx(residual_of(setting)(z), abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_straight_walk_attains_the_bound(kind: Method) -> None:
    """Without noise nothing is given away: a walk straight out reaches U_t."""
    setting = certificate(kind).setting
    walk = replace(setting.walk, noise=0.0)
    wanted = float(walk.bounds(residual_of(setting)).max())
    found = outward(setting.rule, walk, residual_of(setting), 0.0, 0)
    assert found == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    "rule",
    [
        Nesterov(rounds=5, learning_rate=0.3),
        QuadraticNesterov(
            rounds=5, curvature=Curvature(offset=1.0, low=0.5, high=9.0), first_alpha=0.01
        ),
    ],
)
def test_responses_are_the_rules_own(rule: AcceleratedRule) -> None:
    """A unit gradient at iteration s, none at others, through the rule's code."""
    table = responses(rule)
    for s in range(rule.rounds):
        seen: list[float] = []
        state: Any = rule.start(0.0)
        for t in range(rule.rounds):
            seen.append(rule.point(state))
            state = rule.step(rule.gradient_factor(t) if t == s else 0.0, state, t)
        np.testing.assert_allclose(np.abs(seen), table[:, s], atol=1e-12)


@pytest.mark.parametrize(
    "rule",
    [
        HeavyBall(rounds=3, learning_rate=0.3, momentum=0.5),
        StronglyConvexNesterov(rounds=3, mu=0.1, smoothness=1.0, ridge=0.1),
    ],
)
def test_other_rules_are_no_walks(rule: Any) -> None:
    """Their responses are not the theorem's."""
    with pytest.raises(ParameterError, match="look-aheads without a ridge"):
        responses(rule)


def noisy(parties: int) -> WalkSetting:
    """A walk that is mostly noise, P parties, no colluders; delta is large enough to be seen."""
    split = NoiseSplit(parties=parties, colluders=0)
    return WalkSetting(
        rows=100,
        features=3,
        norm_bound=1.0,
        rule=Nesterov(rounds=3, learning_rate=0.2),
        sigmoid=certificate("nag").setting.sigmoid,
        sigma=2.0,
        budget=Budget(epsilon=1.0, delta=0.1, split=split, mechanism_share=0.5),
    )


def exits(setting: WalkSetting, noise: float, runs: int = 1500) -> int:
    bound = check(setting).figures["reached"]
    walk, residual = setting.walk, residual_of(setting)
    found = [outward(setting.rule, walk, residual, noise, seed) for seed in range(runs)]
    return int(np.sum(np.array(found) > bound))


def test_walks_stay_below_and_the_mutant_with_one_partys_noise_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """delta_walk = 0.05 allows 75 of 1500 exits; one party's sigma, a fifth, lets hundreds out."""
    setting = noisy(25)
    total = setting.budget.total_std(setting.sigma)
    assert setting.walk.failure == pytest.approx(0.05, rel=0.01)
    assert exits(setting, total) <= 75
    monkeypatch.setattr(
        Budget, "total_std", lambda self, sigma: self.split.share_std(sigma), raising=True
    )
    assert exits(setting, total) > 300


# -- the preconditioner ----------------------------------------------------------------------------


def test_the_noisy_bound_stays_in_its_range() -> None:
    """Rows of zeros and rows at the bound, total noise: failures below delta_range, above 0."""
    found = find_setting(method="quadratic-nag", **{**QUERY, "delta": 0.4, "epsilon": 0.5})
    setting, c = found.setting, found.setting.curvature
    limit = found.figures["delta_range"]
    assert 0.01 < limit <= setting.allowance
    rng, runs = np.random.default_rng(5), 20_000
    noise = found.figures["sigma_b_total"] * rng.standard_normal((runs, setting.features))
    top = c.constant * largest_row_sum(setting.features, norm=setting.norm_bound)
    for b in (c.offset + noise, c.offset + top + noise):
        failures = float(np.mean(np.any((b < c.low) | (b > c.high), axis=1)))
        assert 0 < failures <= limit


def test_the_preconditioner_needs_room_and_noise() -> None:
    setting = certificate("quadratic-nag").setting
    c = setting.curvature
    for name in ("low", "high"):
        value = (c.offset + getattr(c, name)) / 2 if name == "low" else c.high - c.sigma
        tight = replace(setting.rule, curvature=replace(c, **{name: value}))
        assert "range" in violated(replace(setting, rule=tight))
    with pytest.raises(ParameterError, match="sigma=0 of the curvature"):
        silent = replace(setting.rule, curvature=replace(c, sigma=0.0))
        replace(setting, rule=silent)


# -- the budget ------------------------------------------------------------------------------------


def library_epsilon(setting: WalkSetting, delta: float) -> float:
    """b and T gradients as separate events, composed by dp-accounting."""
    accountant = pld_privacy_accountant.PLDAccountant(value_discretization_interval=1e-3)
    rows, c = setting.rows, setting.curvature
    gradient = rows * setting.sigma / setting.gradient_sensitivity
    accountant.compose(dp_accounting.GaussianDpEvent(gradient), setting.rounds)
    if c is not None:
        one = rows * c.sigma / setting.curvature_sensitivity
        accountant.compose(dp_accounting.GaussianDpEvent(one))
    return float(accountant.get_epsilon(delta))


@pytest.mark.parametrize("kind", KINDS)
def test_the_promise_is_kept_by_another_accountant(kind: Method) -> None:
    found = certificate(kind)
    assert found.satisfied
    spent = library_epsilon(found.setting, found.figures["delta_mechanism"])
    assert 0.97 * QUERY["epsilon"] < spent < 1.02 * QUERY["epsilon"]
    assert found.figures["delta_total"] <= QUERY["delta"]
    assert found.epsilon_by_coalition[QUERY["colluders"]] == pytest.approx(
        QUERY["epsilon"], rel=1e-4
    )
    assert found.epsilon_by_coalition[-1] > QUERY["epsilon"]


def bought(found: Certificate, sensitivity: float) -> WalkSetting:
    """The setting with noise that pays for this sensitivity only."""
    s: WalkSetting = found.setting
    sigma = sigma_for(
        epsilon=QUERY["epsilon"],
        delta=found.figures["delta_mechanism"],
        rounds=s.rounds,
        sensitivity=sensitivity,
        rows=s.rows,
    )
    return replace(s, sigma=sigma)


@pytest.mark.parametrize("kind", KINDS)
def test_mutant_sensitivity_without_factor_2(kind: Method) -> None:
    """Two rows either side of w move the gradient by more than (phi'max + e_f) B."""
    found = certificate(kind)
    s, true = found.setting, found.figures["D2"]
    angles = np.linspace(0.0, math.pi / 2, 2001)
    p, reach = s.sigmoid.polynomial, s.norm_bound * s.radius
    worst = max(2 * s.norm_bound * abs(p(reach * math.cos(a))) * math.sin(a) for a in angles)
    assert true / 2 < worst <= true
    thin = bought(found, true / 2)
    assert {"privacy_noise", "privacy_cross_check"} <= violated(thin)
    assert library_epsilon(thin, found.figures["delta_mechanism"]) > 1.2 * QUERY["epsilon"]


def test_mutant_the_curvature_is_not_charged() -> None:
    found = certificate("quadratic-nag")
    assert found.figures["sensitivity"] > found.figures["D2"]
    free = bought(found, found.figures["D2"])
    assert {"privacy_noise", "privacy_cross_check"} <= violated(free)
    plain = certificate("nag")
    assert plain.figures["sensitivity"] == plain.figures["D2"]
    assert "range" not in {c.name for c in plain.conditions}


def test_the_arithmetic_and_other_releases_are_paid_for() -> None:
    """e_ckks widens D2 by 2 e sqrt(d); spent_mu is one more Gaussian release."""
    found = find_setting(
        method="quadratic-nag", **QUERY, encryption_error=0.01, other_delta=1e-9, spent_mu=0.1
    )
    s, mu = found.setting, 0.1
    gradient = found.figures["D2"] + 0.02 * math.sqrt(6)
    for multiplier, count in (
        (s.rows * s.sigma / gradient, s.rounds),
        (s.rows * s.curvature.sigma / found.figures["D_b"], 1),
    ):
        mu = math.hypot(mu, math.sqrt(count) / multiplier)
    spent = dp_accounting_epsilon(mu, found.figures["delta_mechanism"])
    assert spent == pytest.approx(QUERY["epsilon"], rel=0.01)
    assert found.figures["reached"] > check(replace(s, encryption_error=0.0)).figures["reached"]
    assert any("NOT counted" in text for text in certificate("nag").assumptions)
    assert not any("NOT counted" in text for text in found.assumptions)


def dp_accounting_epsilon(mu: float, delta: float) -> float:
    accountant = pld_privacy_accountant.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_accounting.GaussianDpEvent(1 / mu))
    return float(accountant.get_epsilon(delta))


def test_longer_steps_are_refused_by_name() -> None:
    s = certificate("nag").setting
    fast = replace(s.rule, learning_rate=20 * s.rule.learning_rate)
    assert violated(replace(s, rule=fast)) == {"walk"}
    assert violated(replace(s, rule=replace(s.rule, rounds=40))) >= {"walk", "privacy_noise"}


def test_hopeless_cases_are_refused_with_what_binds() -> None:
    few = {**QUERY, "rows": 20, "epsilon": 0.01, "rounds": 2}
    with pytest.raises(PrivacyError, match="setting is certified for rows=20.*privacy_noise"):
        find_setting(method="quadratic-nag", **few)
