"""The checker of Theorem 3 against the published test vectors, mutants and worst-case runs."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from protocols.errors import ParameterError, PrivacyError
from protocols.numerics.approximation import (
    Approximation,
    Polynomial,
    reciprocal_approximation,
    sigmoid_approximation,
)
from protocols.privacy.certificates.barrier import BarrierSetting, check, iterate_bound
from protocols.privacy.certificates.problem import Problem
from protocols.privacy.certificates.sensitivity import Sensitivity
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss.budget import Budget
from protocols.privacy.search import barrier as barrier_search
from protocols.privacy.search.barrier import settle
from protocols.privacy.search.search import find_setting
from tests.protocols.privacy.checks import worst_walk

ALONE = NoiseSplit(parties=1, colluders=0)


class PapersBudget(Budget):
    """sigma by the closed form of arXiv:2605.27782, Algorithm 3, with delta / 3."""

    def sigma(self, *, rounds: int, sensitivity: float, rows: int) -> float:
        if self.epsilon is None:
            return 0.0
        log = math.log(1 / self.delta_mechanism)
        return 2 * sensitivity * math.sqrt(rounds * log) / (self.epsilon * rows)


def papers_settle(start: BarrierSetting, degree: int) -> BarrierSetting:
    """The fixed point of interval and sigma for the paper's sensitivity, 2 (1 + e_f) B_x."""
    current, error = start, 0.0
    for _ in range(100):
        moved = Sensitivity(
            norm_bound=current.norm_bound, approximation_error=error, features=current.features
        ).total
        sigma = current.budget.sigma(rounds=current.rounds, sensitivity=moved, rows=current.rows)
        current = replace(current, sigma=sigma * (1 + 1e-6))
        bound = iterate_bound(
            current, sigmoid_error=error, reciprocal_error=current.reciprocal.max_error
        )
        interval = min(current.norm_bound * bound * (1 + 1e-6), 1000.0)
        current = replace(current, sigmoid=sigmoid_approximation(degree, interval))
        if abs(current.sigmoid.max_error - error) <= 1e-9 * error or error > 1:
            break
        error = current.sigmoid.max_error
    return current


@lru_cache
def _setting(
    rows: int,
    m: int,
    theta: float,
    lam: float,
    kappa: float,
    split: NoiseSplit = ALONE,
    epsilon: float | None = 1.0,
    delta: float = 1e-5,
    rounds: int = 400,
) -> BarrierSetting:
    """As in the test vectors: eta = 1/m, B_x = sqrt(m), linear P, degree 7, the paper's sigma."""
    start = BarrierSetting(
        rows=rows,
        features=m,
        norm_bound=math.sqrt(m),
        theta=theta,
        lam=lam,
        kappa=kappa,
        learning_rate=1 / m,
        rounds=rounds,
        sigmoid=sigmoid_approximation(7, 5.0),
        reciprocal=reciprocal_approximation(1, kappa * theta, theta),
        sigma=0.0,
        budget=PapersBudget(epsilon=epsilon, delta=delta, split=split, mechanism_share=1 / 3),
    )
    return papers_settle(start, 7)


FIRST = {"rows": 34189, "m": 14, "theta": 14.0, "lam": 0.01, "kappa": 0.001}
SECOND = {"rows": 27001, "m": 24, "theta": 24.0, "lam": 0.3, "kappa": 0.018}
THIRD = {"rows": 5049, "m": 9, "theta": 9.0, "lam": 0.03, "kappa": 0.004}


@pytest.mark.parametrize(
    ("row", "powers", "printed", "sides"),
    [
        (
            FIRST,
            (38.00877, -5.102041),
            "e_B=33.49123 R=4.23055 interval=15.8293 e_f=0.07828 D2_paper=8.0691 sigma=0.03353 "
            "m_P=37.93734 M_P=57.8945 eta_max=0.82751",
            (3.73979, 3.29777),
        ),
        (
            SECOND,
            (1.488806, -0.096451),
            "e_B=0.86768 R=5.2205 interval=25.5749 e_f=0.1394 D2_paper=11.164 sigma=0.05873 "
            "m_P=1.44714 M_P=1.8026 eta_max=0.81487",
            (4.85469, 4.15343),
        ),
    ],
)
def test_published_vectors(
    row: dict[str, float],
    powers: tuple[float, float],
    printed: str,
    sides: tuple[float, float],
) -> None:
    setting = _setting(**row)
    certificate = check(setting)
    assert certificate.satisfied
    p = setting.reciprocal.polynomial
    form = np.polynomial.Polynomial(p.coefficients, domain=[p.low, p.high])
    assert form.convert().coef == pytest.approx(powers, rel=1e-5)
    for name, text in (pair.split("=") for pair in printed.split()):
        value, digits = float(text), len(text.partition(".")[2])
        # certain bounds exceed the true errors by up to 1e-6 of themselves
        allowed = 1.1 * 10**-digits + 1e-6 * value
        assert certificate.figures[name] == pytest.approx(value, abs=allowed), name
    (norm,) = [c for c in certificate.conditions if c.name == "norm"]
    # the table's e_f exceeds the certified one by 2e-4 of itself, and shows here
    assert (norm.left, norm.right) == pytest.approx(sides, abs=2e-4)


def test_the_vector_that_must_be_refused() -> None:
    certificate = check(_setting(**THIRD))
    assert not certificate.satisfied
    assert certificate.binding.name == "norm"
    assert certificate.binding.left == pytest.approx(2.99399, abs=1e-5)
    assert certificate.binding.right == pytest.approx(3.16725, abs=4e-4)
    with pytest.raises(PrivacyError, match="norm"):
        certificate.require()


def _violated(setting: BarrierSetting) -> set[str]:
    return {c.name for c in check(setting).conditions if not c.satisfied}


def test_mutants_are_refused() -> None:
    good = settle(_setting(**FIRST), 7)
    assert _violated(good) == set()
    assert "privacy_noise" in _violated(replace(good, sigma=good.sigma / 2)), "sigma halved"
    fewer = replace(good, sigma=good.sigma * math.sqrt(13 / 14))
    assert "privacy_noise" in _violated(fewer), "bias column not counted"
    longer = replace(good, rounds=440)
    assert "privacy_noise" in _violated(longer), "more rounds than paid for"
    assert _violated(replace(good, learning_rate=0.9)) >= {"eta_overshoot"}
    assert _violated(replace(good, lam=0.3, learning_rate=0.1)) >= {"eta_barrier"}
    narrow = replace(good, sigmoid=sigmoid_approximation(7, 4.0))
    assert "sigmoid_error" in _violated(narrow), "an interval that the iterates leave"


def test_noise_of_all_parties_bounds_the_iterates() -> None:
    alone = check(_setting(**FIRST))
    split = NoiseSplit(parties=16, colluders=15)
    setting = _setting(**FIRST, split=split)
    together = check(setting)
    assert together.figures["sigma_total"] == pytest.approx(4 * setting.sigma, rel=1e-5)
    assert together.figures["sigma_share"] == pytest.approx(setting.sigma, rel=1e-12)
    assert alone.satisfied
    assert not together.satisfied, "one party's noise would have passed"
    assert together.binding.name == "norm"


def test_delta_is_spent_once() -> None:
    figures = check(_setting(**FIRST)).figures
    assert figures["delta_mechanism"] == pytest.approx(1e-5 / 3)
    assert figures["delta_norm_bound"] <= 2e-5 / 3
    assert figures["delta_total"] <= 1e-5
    certificate = check(_setting(**FIRST))
    assert certificate.additive_delta < 2e-5 / 3
    (event,) = certificate.events
    assert event.count == 400


@pytest.mark.parametrize(
    ("field", "value"), [("theta", 0.0), ("kappa", 1.0), ("sigma", -1.0), ("rows", 0)]
)
def test_impossible_fields_are_refused(field: str, value: float) -> None:
    with pytest.raises(ParameterError, match=field):
        replace(_setting(**FIRST), **{field: value})  # type: ignore[arg-type]


def test_iterates_stay_within_r_on_the_worst_data() -> None:
    """The failure rate is at most 2 delta / 3; delta is large so that failures could be seen.

    Worst-case data: every row has the full norm and points where it pushes hardest, chosen anew in
    every round (the proof allows that), and the noise is the total of all parties.
    """
    norm_bound = math.sqrt(5)
    budget = Budget(epsilon=1.0, delta=0.6, split=NoiseSplit(parties=4, colluders=2))
    problem = Problem(
        method="barrier",
        rows=400,
        features=5,
        norm_bound=norm_bound,
        budget=budget,
        rounds=40,
        degree=7,
    )
    drafts = [draft for draft in barrier_search.drafts(problem) if draft.learning_rate == 0.5]
    best = drafts[int(np.argmin(barrier_search.merits(drafts, 5, None)))]
    setting = barrier_search.setting(best, problem)
    certificate = check(setting).require()
    p, weight = setting.reciprocal.polynomial, 2 * setting.learning_rate * setting.lam
    largest = worst_walk(
        setting,
        lambda norm: 1 - weight * p(setting.theta - norm**2),
        bound=norm_bound,
        noise=certificate.figures["sigma_total"],
        trials=4000,
    )
    failures = float(np.mean(largest > certificate.figures["R"]))
    assert failures <= budget.delta_norm
    assert largest.max() > 0.4 * certificate.figures["R"], "the data do push"


# -- sensitivity ----------------------------------------------------------------------------------


def farthest_rows(p: Polynomial, norm_bound: float, radius: float) -> float:
    """Largest distance of two rows' gradients in the plane of w and of both, any w, any lengths."""
    angles = np.linspace(0, 2 * np.pi, 1440, endpoint=False)
    found = 0.0
    for share in (1.0, 0.7, 0.3):
        rows = norm_bound * np.concatenate(
            [s * np.column_stack([np.cos(angles), np.sin(angles)]) for s in (1.0, 0.5)]
        )
        # Label 1 is the mirror image of label 0: p(z) - 1 = -p(-z).
        gradients = p(rows[:, 0] * radius * share)[:, None] * rows
        square = np.sum(gradients**2, axis=1)
        apart = square[:, None] + square[None] - 2 * gradients @ gradients.T
        found = max(found, float(np.sqrt(apart.max())))
    return found


@pytest.mark.parametrize(("rows", "features", "degree"), [(27_001, 25, 7), (5_049, 10, 3)])
def test_the_sensitivity_is_that_of_the_farthest_rows(
    rows: int, features: int, degree: int
) -> None:
    """Reached within a percent, never exceeded; the noise pays for it and no more."""
    found = find_setting(
        method="barrier",
        rows=rows,
        features=features,
        norm_bound=1.0,
        epsilon=1.0,
        delta=1e-5,
        parties=10,
        colluders=3,
        rounds=40,
        degree=degree,
    )
    s, figures = found.setting, found.figures
    worst = farthest_rows(s.sigmoid.polynomial, 1.0, figures["R"])
    assert 0.99 * figures["D2"] <= worst <= figures["D2"]
    assert figures["D2"] < 0.97 * figures["D2_paper"]
    needed = s.budget.sigma(rounds=s.rounds, sensitivity=figures["D2"], rows=rows)
    assert needed <= s.sigma <= needed * (1 + 1e-5)
    # Noise for the worst pair of a smaller ball, or one percent less, is refused.
    for mutant in (
        replace(s, sigma=0.98 * s.sigma),
        replace(s, learning_rate=1.1 * s.learning_rate),
    ):
        with pytest.raises(PrivacyError):
            check(mutant).require()


def test_a_link_without_symmetry_has_no_barrier_certificate() -> None:
    lopsided = Polynomial(coefficients=(0.5, 0.2, 0.1), center=0.0, radius=5.0)
    with pytest.raises(ParameterError):
        replace(_setting(34189, 14, 14.0, 0.01, 0.001), sigmoid=Approximation.unchecked(lopsided))
