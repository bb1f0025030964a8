"""Faulty formulas of differentially private training, each put in place of the true one.

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
from protocols.privacy.certificate import Certificate
from protocols.privacy.search import Method, find_setting

METHODS: tuple[Method, ...] = ("barrier", "ridge")
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
true_sigma = Budget.sigma


@lru_cache
def _certificate(method: Method) -> Certificate:
    return find_setting(**QUERY, method=method)


def _violated(method: Method, setting: Any) -> set[str]:
    module: Any = barrier_certificate if method == "barrier" else ridge_certificate
    return {c.name for c in module.check(setting).conditions if not c.satisfied}


# --- sigma halved (split by P: `tests/test_mutants.py`, `tests/sims/test_audit_privacy.py`) ------


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
