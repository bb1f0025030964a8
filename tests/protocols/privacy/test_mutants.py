"""Five faulty formulas of differentially private training, each put in place of the true one.

Every test shows both sides: the true formula passes a check that does not share code with it, the
mutant fails. What owners or the coordinator can do wrong under encryption is tested elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from protocols.errors import PrivacyError
from protocols.privacy import barrier_certificate, ridge_certificate, search
from protocols.privacy.accounting import sigma_for
from protocols.privacy.budget import GRID_MARGIN, Budget
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.rows import RowsChoice, choose_rows
from protocols.privacy.certificate import Certificate
from protocols.privacy.randomness import SeededRandomness
from protocols.privacy.search import Method, find_setting
from protocols.privacy.sensitivity import diameter
from protocols.privacy.shares import NoiseSplit, gaussian_shares
from sims.audit_privacy import audit_privacy
from tests.protocols.privacy.checks import std_accepted

METHODS: tuple[Method, ...] = ("barrier", "ridge")
SPLIT = NoiseSplit(parties=10, colluders=3)
SIGMA = 0.02
QUERY: dict[str, Any] = {
    "rows": 30_000,
    "features": 9,
    "norm_bound": 1.0,
    "epsilon": 1.0,
    "delta": 1e-5,
    "parties": 10,
    "colluders": 3,
    "rounds": 50,
    "degree": 7,
}
Share = Callable[[NoiseSplit, float], float]
true_share: Share = NoiseSplit.share_std
true_sigma = Budget.sigma


@lru_cache
def _certificate(method: Method) -> Certificate:
    return find_setting(**QUERY, method=method)


def _violated(method: Method, setting: Any) -> set[str]:
    module: Any = barrier_certificate if method == "barrier" else ridge_certificate
    return {c.name for c in module.check(setting).conditions if not c.satisfied}


# --- sigma halved, sigma split by P ---------------------------------------------------------


def _samples_accepted(share_std: Share) -> bool:
    """Whether P - t owners' sampled noise has the promised std, with this formula in place."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoiseSplit, "share_std", share_std)
        honest = sum(
            gaussian_shares(SIGMA, SPLIT, 10, 600, SeededRandomness(7, f"owner {k}"))
            for k in range(SPLIT.honest)
        )
    return std_accepted(np.asarray(honest), SIGMA)


@lru_cache
def _small() -> RowsChoice:
    wanted = Wanted(colluders=4, epsilon=1.0, delta=1e-2, update="gd", rounds=10)
    return choose_rows(PublicFigures.even(rows=1000, features=3, parties=5), wanted)


def _audit_accepted(share_std: Share) -> bool:
    """Whether the empirical audit finds no contradiction to epsilon = 1, 4 of 5 colluding."""
    setting = _small()
    assert setting.certificate is not None
    found = audit_privacy(
        setting.certificate,
        setting.rule,
        coalition=4,
        runs=100_000,
        rng=np.random.default_rng(2),
        share_std=share_std(NoiseSplit(parties=5, colluders=4), setting.certificate.setting.sigma),
    )
    return not found.refuted


def test_the_true_share_passes() -> None:
    assert _samples_accepted(true_share)
    assert _audit_accepted(true_share)


def test_mutant_sigma_halved_is_caught() -> None:
    def halved(split: NoiseSplit, sigma: float) -> float:
        return true_share(split, sigma) / 2

    assert not _samples_accepted(halved)
    assert not _audit_accepted(halved)


def test_mutant_split_by_p_is_caught() -> None:
    """sigma / sqrt(P): what is left when t colluders subtract their own is too little."""

    def by_all(split: NoiseSplit, sigma: float) -> float:
        return sigma / math.sqrt(split.parties)

    assert not _samples_accepted(by_all)
    assert not _audit_accepted(by_all)


@pytest.mark.parametrize("method", METHODS)
def test_mutant_sigma_halved_is_refused(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the checker itself halves sigma: dp-accounting shares no code with it."""
    good = _certificate(method)
    assert good.satisfied
    thin = replace(good.setting, sigma=good.setting.sigma / 2)
    assert _violated(method, thin) == {"privacy_noise", "privacy_cross_check"}
    monkeypatch.setattr(search, "_ATTEMPTS", 2)
    monkeypatch.setattr(Budget, "sigma", lambda self, **query: true_sigma(self, **query) / 2)
    # As if it were asked for the first time: certificates are remembered by their query.
    with pytest.raises(PrivacyError, match="privacy_cross_check"):
        find_setting.__wrapped__(**QUERY, method=method)


# --- sensitivity without the factor 2 -------------------------------------------------------


def _worst_move(radius: float, link: Callable[[float], float]) -> float:
    """Largest distance of two rows' gradients found at |w| = R, |x| = 1, label 0."""
    angles = np.linspace(0.0, math.pi / 2, 2001)
    # u at +- phi from w: the gradients p(R cos phi) u differ across w only
    pushes = np.array([link(radius * math.cos(phi)) for phi in angles])
    return float(np.max(2 * pushes * np.sin(angles)))


@pytest.mark.parametrize("method", METHODS)
def test_mutant_sensitivity_without_factor_2_is_caught(method: Method) -> None:
    certificate = _certificate(method)
    link, radius = certificate.setting.sigmoid.polynomial, certificate.figures["R"]
    true = certificate.figures["D2"]
    omit_one = true / 2  # (phi'max + e_f) B_x
    worst = _worst_move(radius, link)
    assert omit_one < worst <= true
    sigma = sigma_for(
        epsilon=1.0,
        delta=certificate.figures["delta_mechanism"],
        rounds=certificate.setting.rounds,
        sensitivity=omit_one,
        rows=certificate.setting.rows,
    )
    bought = replace(certificate.setting, sigma=sigma)
    assert _violated(method, bought) == {"privacy_noise", "privacy_cross_check"}


# --- bias column not counted ----------------------------------------------------------------


def test_mutant_bias_column_not_counted_is_caught() -> None:
    """8 columns in [-1, 1] and the bias: two such rows, opposite labels, at w = 0."""
    row = np.ones(9)
    move = float(np.linalg.norm(0.5 * row - (-0.5) * row))
    true, mutant = math.sqrt(9), math.sqrt(8)
    assert mutant < np.linalg.norm(row) <= true
    link = _certificate("ridge").setting.sigmoid.polynomial
    at_zero = 1e-9  # radius
    assert diameter(link, norm_bound=mutant, radius=at_zero) < move
    assert move <= diameter(link, norm_bound=true, radius=at_zero)


@pytest.mark.parametrize("method", METHODS)
def test_mutant_bias_column_not_counted_is_refused(method: Method) -> None:
    """A setting that was made for sqrt(m - 1), checked with the rows' true norm sqrt(m)."""
    true, mutant = math.sqrt(9), math.sqrt(8)
    good = find_setting(**{**QUERY, "norm_bound": true}, method=method)
    assert _violated(method, good.setting) == set()
    bad = find_setting(**{**QUERY, "norm_bound": mutant}, method=method)
    assert "privacy_noise" in _violated(method, replace(bad.setting, norm_bound=true))


# --- one party's sigma in the iterate bound -------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_mutant_per_party_sigma_in_the_iterate_bound_is_caught(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """399 of 400 may collude: everyone adds all of sigma, and iterates feel 20 sigma."""
    query = {**QUERY, "features": 5, "parties": 400, "colluders": 399, "delta": 0.2}
    good = find_setting(**query, method=method)
    assert _violated(method, good.setting) == set()
    assert _escapes(good) <= good.figures["delta_norm_bound"]

    def per_party(budget: Budget, sigma: float) -> float:
        return budget.split.share_std(sigma) * GRID_MARGIN

    monkeypatch.setattr(Budget, "total_std", per_party)
    bad = find_setting(**{**query, "rows": 200}, method=method)
    assert bad.satisfied, "the mutant is content with itself"
    monkeypatch.undo()
    assert ("norm" if method == "barrier" else "descent_bound") in _violated(method, bad.setting)
    assert _escapes(bad) > 10 * bad.figures["delta_norm_bound"]


def _escapes(certificate: Certificate) -> float:
    """Share of 2000 runs on one-sided rows that leave the certified ball, with the total noise."""
    s = certificate.setting
    rng = np.random.default_rng(4)
    total = s.sigma * math.sqrt(s.budget.split.parties / s.budget.split.honest)
    w = np.zeros((2000, s.features))
    out = np.zeros(2000, dtype=bool)
    for _ in range(s.rounds):
        gradient = np.zeros_like(w)
        gradient[:, 0] = s.norm_bound * (s.sigmoid.polynomial(s.norm_bound * w[:, 0]) - 1)
        square = np.einsum("ij,ij->i", w, w)
        pull = s.lam * np.ones_like(square)
        if certificate.method == "barrier":
            pull = 2 * s.lam * s.reciprocal.polynomial(s.theta - square)
        noise = total * rng.standard_normal(w.shape)
        w = np.where(out[:, None], w, w - s.eta * (pull[:, None] * w + gradient + noise))
        out |= np.einsum("ij,ij->i", w, w) > certificate.figures["R"] ** 2
    return float(out.mean())
