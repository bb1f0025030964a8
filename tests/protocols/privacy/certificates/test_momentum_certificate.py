"""The certificate of momentum: its bounds against simulations, its budget, its mutants."""

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

from protocols.errors import ParameterError
from protocols.privacy.certificates.certificate import Certificate
from protocols.privacy.certificates.momentum import (
    MomentumSetting,
    check,
)
from protocols.privacy.certificates.momentum_bound import MomentumBound, responses
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss.accounting import sigma_for
from protocols.privacy.loss.budget import Budget
from protocols.privacy.search.search import find_setting
from protocols.updates.momentum import Nesterov
from protocols.updates.registry import RULES
from tests.protocols.updates.cases import example

Floats = NDArray[np.float64]
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
def certificate() -> Certificate:
    return find_setting(method="nag", **QUERY)


def violated(setting: MomentumSetting) -> set[str]:
    return {c.name for c in check(setting).conditions if not c.satisfied}


# -- the bound -------------------------------------------------------------------------------------


def outward(
    rule: Nesterov,
    bound: MomentumBound,
    residual: Callable[[float], float],
    noise: float,
    seed: int,
) -> float:
    """Largest |v_t|, t < T, of a walk whose every gradient pushes outwards as far as it may.

    The rule's own steps; noise: std, drawn anew.
    """
    rng = np.random.default_rng(seed)
    norms: list[float] = []
    # |g| <= sqrt(Lambda mean r^2)
    longest = bound.norm_bound if bound.spectrum is None else math.sqrt(bound.spectrum)

    def gradient(v: Floats) -> Floats:
        norm = float(np.linalg.norm(v))
        norms.append(norm)
        away = v / norm if norm > 0 else np.eye(bound.features)[0]
        push = longest * residual(bound.norm_bound * norm)
        chi = noise * rng.standard_normal(bound.features)
        return np.asarray(-push * away + chi)

    start: Floats = np.zeros(bound.features)
    state = rule.start(start)
    for t in range(rule.rounds):
        move = rule.gradient_factor(t) * gradient(rule.point(state))
        state = rule.step(move, state, t)
    return max(norms)


def residual_of(setting: MomentumSetting) -> Callable[[float], float]:
    """h on a grid, with no code of the certificate's."""
    p = setting.sigmoid.polynomial
    z: Floats = np.linspace(0.0, p.radius, 4001).astype(np.float64)
    values = np.maximum.accumulate(np.maximum(np.abs(p(z)), np.abs(p(-z))))
    return lambda at: float(np.interp(at, z, values))


@pytest.mark.parametrize("spectrum", [None, 0.3])
def test_the_straight_walk_attains_the_bound(spectrum: float | None) -> None:
    """Without noise nothing is given away: a walk straight out reaches U_t, of any Lambda."""
    setting = certificate().setting
    bound = replace(setting.bound, noise=0.0, spectrum=spectrum)
    wanted = float(bound.bounds(residual_of(setting)).max())
    found = outward(setting.rule, bound, residual_of(setting), 0.0, 0)
    assert found == pytest.approx(wanted, rel=1e-6)
    if spectrum is not None:
        half = replace(bound, spectrum=spectrum / 2)
        assert float(half.bounds(residual_of(setting)).max()) < found
        blind = replace(bound, spectrum=None)
        assert float(blind.bounds(residual_of(setting)).max()) > found


def test_responses_are_the_rules_own() -> None:
    """A unit gradient at iteration s, none at others, through the rule's code."""
    rule = Nesterov(rounds=5, learning_rate=0.3)
    table = responses(rule)
    for s in range(rule.rounds):
        seen: list[float] = []
        state: Any = rule.start(0.0)
        for t in range(rule.rounds):
            seen.append(rule.point(state))
            state = rule.step(rule.gradient_factor(t) if t == s else 0.0, state, t)
        np.testing.assert_allclose(np.abs(seen), table[:, s], atol=1e-12)


@pytest.mark.parametrize("kind", [k for k in ("hb", "nag-sc", "quadratic-nag") if k in RULES])
def test_other_rules_have_no_momentum_bound(kind: str) -> None:
    """Their responses are not the theorem's."""
    rule: Any = example(kind)
    with pytest.raises(ParameterError, match="look-aheads without a ridge"):
        responses(rule)


def noisy(parties: int) -> MomentumSetting:
    """A walk that is mostly noise, P parties, no colluders; delta is large enough to be seen."""
    split = NoiseSplit(parties=parties, colluders=0)
    return MomentumSetting(
        rows=100,
        features=3,
        norm_bound=1.0,
        rule=Nesterov(rounds=3, learning_rate=0.2),
        sigmoid=certificate().setting.sigmoid,
        sigma=2.0,
        budget=Budget(epsilon=1.0, delta=0.1, split=split, mechanism_share=0.5),
    )


def exits(setting: MomentumSetting, noise: float, runs: int = 1500) -> int:
    reached, residual = check(setting).figures["reached"], residual_of(setting)
    found = [outward(setting.rule, setting.bound, residual, noise, seed) for seed in range(runs)]
    return int(np.sum(np.array(found) > reached))


def test_walks_stay_below_and_the_mutant_with_one_partys_noise_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A delta of 0.05 allows 75 of 1500 exits; one party's sigma, a fifth, lets hundreds out."""
    setting = noisy(25)
    total = setting.budget.total_std(setting.sigma)
    assert setting.bound.failure == pytest.approx(0.05, rel=0.01)
    assert exits(setting, total) <= 75
    monkeypatch.setattr(
        Budget, "total_std", lambda self, sigma: self.split.share_std(sigma), raising=True
    )
    assert exits(setting, total) > 300


# -- the budget ------------------------------------------------------------------------------------


def library_epsilon(setting: MomentumSetting, delta: float) -> float:
    """T gradients, by dp-accounting."""
    gradient = setting.gradient_sensitivity / (setting.rows * setting.sigma)
    return dp_accounting_epsilon(math.sqrt(setting.rounds) * gradient, delta)


def test_the_promise_is_kept_by_another_accountant() -> None:
    found = certificate()
    assert found.satisfied
    spent = library_epsilon(found.setting, found.figures["delta_mechanism"])
    assert 0.97 * QUERY["epsilon"] < spent < 1.02 * QUERY["epsilon"]
    assert found.figures["delta_total"] <= QUERY["delta"]
    assert found.epsilon_by_coalition[QUERY["colluders"]] == pytest.approx(
        QUERY["epsilon"], rel=1e-4
    )
    assert found.epsilon_by_coalition[-1] > QUERY["epsilon"]


def bought(found: Certificate, sensitivity: float) -> MomentumSetting:
    """The setting with noise that pays for this sensitivity only."""
    s: MomentumSetting = found.setting
    sigma = sigma_for(
        epsilon=QUERY["epsilon"],
        delta=found.figures["delta_mechanism"],
        rounds=s.rounds,
        sensitivity=sensitivity,
        rows=s.rows,
    )
    return replace(s, sigma=sigma)


def test_mutant_sensitivity_without_factor_2() -> None:
    """Two rows either side of w move the gradient by more than (phi'max + e_f) B."""
    found = certificate()
    s, true = found.setting, found.figures["D2"]
    angles = np.linspace(0.0, math.pi / 2, 2001)
    p, reach = s.sigmoid.polynomial, s.norm_bound * s.radius
    worst = max(2 * s.norm_bound * abs(p(reach * math.cos(a))) * math.sin(a) for a in angles)
    assert true / 2 < worst <= true
    thin = bought(found, true / 2)
    assert {"privacy_noise", "privacy_cross_check"} <= violated(thin)
    assert library_epsilon(thin, found.figures["delta_mechanism"]) > 1.2 * QUERY["epsilon"]


def test_the_arithmetic_and_other_releases_are_paid_for() -> None:
    """e_ckks widens D2 by 2 e sqrt(d); spent_mu is one more Gaussian release."""
    found = find_setting(
        method="nag", **QUERY, encryption_error=0.01, other_delta=1e-9, spent_mu=0.1
    )
    s = found.setting
    gradient = found.figures["D2"] + 0.02 * math.sqrt(6)
    assert found.figures["sensitivity"] == pytest.approx(gradient, rel=1e-12)
    mu = math.hypot(0.1, math.sqrt(s.rounds) * gradient / (s.rows * s.sigma))
    spent = dp_accounting_epsilon(mu, found.figures["delta_mechanism"])
    assert spent == pytest.approx(QUERY["epsilon"], rel=0.01)
    assert found.figures["reached"] > check(replace(s, encryption_error=0.0)).figures["reached"]
    assert any("NOT counted" in text for text in certificate().assumptions)
    assert not any("NOT counted" in text for text in found.assumptions)


def dp_accounting_epsilon(mu: float, delta: float) -> float:
    accountant = pld_privacy_accountant.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_accounting.GaussianDpEvent(1 / mu))
    return float(accountant.get_epsilon(delta))


def test_longer_steps_are_refused_by_name() -> None:
    s = certificate().setting
    fast = replace(s.rule, learning_rate=20 * s.rule.learning_rate)
    assert violated(replace(s, rule=fast)) == {"momentum_bound"}
    assert violated(replace(s, rule=replace(s.rule, rounds=40))) >= {
        "momentum_bound",
        "privacy_noise",
    }
