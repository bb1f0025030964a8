"""Plaintext baselines: optimum without noise, sensitivity over neighbours, stated noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from protocols.errors import ParameterError
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss import mu_for_epsilon
from protocols.updates.coordinate import DualParty, DualPlan
from sims.lab import baselines
from sims.lab.baselines import DpSgd, SmoothLoss, clipped_sum, dp_sgd, optimum, slope
from sims.lab.papers import coordinate_baselines
from tests.protocols.updates.test_coordinate import problem, sklearn_optimum, unit

Array = NDArray[np.float64]
LOSSES: tuple[SmoothLoss, ...] = ("ridge", "logistic")
LAM = 0.05
PAIRS = 10_000


def gradient_plan(loss: SmoothLoss, **changes: float) -> DpSgd:
    base = DpSgd(loss=loss, lam=LAM, batches=1, rounds=2000, clip=1e6, rate=1.0)
    return replace(base, **changes)  # type: ignore[arg-type]


def dual(loss: SmoothLoss, **changes: float) -> DualPlan:
    base = DualPlan(
        loss=loss, lam=LAM, rows=60, batches=6, rounds=1200, clip=1e6, schedule="cyclic"
    )
    return replace(base, **changes)  # type: ignore[arg-type]


# --- without noise: the optimum -------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_without_noise_everything_reaches_the_optimum(loss: SmoothLoss) -> None:
    x, y = problem(loss)
    rng = np.random.default_rng(1)
    found = {
        "newton": optimum(loss, LAM, x, y),
        "gd": dp_sgd(gradient_plan(loss), x, y, 0.0, rng),
        "dual": coordinate_baselines.train_dual(dual(loss), x, y, 0.0, rng),
        "published": coordinate_baselines.train_published(dual(loss), x, y, 0.0, rng),
    }
    for name, theta in found.items():
        # Batches in an order of coins end a little off; full batches do not.
        within = 2e-3 if name in ("dual", "published") else 1e-4
        wanted = sklearn_optimum(loss, LAM, x, y)
        np.testing.assert_allclose(theta, wanted, rtol=0, atol=within, err_msg=name)


@pytest.mark.parametrize("loss", LOSSES)
def test_slope_is_the_derivative(loss: SmoothLoss) -> None:
    z, y, h = np.linspace(-5, 5, 41), np.where(np.arange(41) % 2, 1.0, -1.0), 1e-5

    def value(z: Array) -> Array:
        return 0.5 * (z - y) ** 2 if loss == "ridge" else np.logaddexp(0.0, -y * z)

    numeric = (value(z + h) - value(z - h)) / (2 * h)
    np.testing.assert_allclose(slope(loss, z, y), numeric, atol=1e-8)
    assert np.isfinite(slope(loss, 1e6 * z, y)).all()


def test_the_central_twin_is_the_federation() -> None:
    """Same order of rows, no noise: the party's own arithmetic."""
    x, y = problem("logistic")
    plan = dual("logistic", rounds=21, clip=0.02)
    order = np.random.default_rng(5).permutation(60)
    party = DualParty(
        plan,
        x[order],
        y[order],
        sigma=0.0,
        split=NoiseSplit(parties=1, colluders=0),
        randomness=SeededRandomness(0),
    )
    v = np.zeros(5)
    for t in range(21):
        v = v + party.answer(t, v)
    twin = coordinate_baselines.train_dual(plan, x, y, 0.0, np.random.default_rng(5))
    np.testing.assert_allclose(twin, plan.theta(v), atol=1e-13)


# --- sensitivity ----------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_neighbours_stay_within_two_clips(loss: SmoothLoss) -> None:
    """2 C on the sum, and a mutant without the factor 2 is caught."""
    rng = np.random.default_rng(6)
    worst = 0.0
    for _ in range(PAIRS):
        plan = gradient_plan(loss, clip=float(10 ** rng.uniform(-2, 0.5)))
        x = unit(rng.normal(size=(3, 2))) * rng.uniform(0.2, 1.0, size=(3, 1))
        y = rng.normal(size=3) if loss == "ridge" else rng.choice([-1.0, 1.0], size=3)
        theta = rng.normal(size=2) * 10 ** rng.uniform(-1, 2)
        other_x, other_y = x.copy(), y.copy()
        other_x[0], other_y[0] = unit(rng.normal(size=2)), -y[0]
        sums = [
            clipped_sum(plan, a, b, np.linalg.norm(a, axis=1), theta)
            for a, b in ((x, y), (other_x, other_y))
        ]
        worst = max(worst, float(np.linalg.norm(sums[0] - sums[1])) / plan.clip)
    assert worst <= 2.0 * (1 + 1e-12)
    assert worst > 1.9


@pytest.mark.parametrize("loss", LOSSES)
def test_output_neighbours_stay_within_the_bound(loss: SmoothLoss) -> None:
    rng = np.random.default_rng(7)
    worst = 0.0
    for _ in range(2000):
        lam = float(10 ** rng.uniform(-2, 0))
        x, other = unit(rng.normal(size=(4, 2))), unit(rng.normal(size=2))
        y = rng.choice([-1.0, 1.0], size=4)
        other_x, other_y = x.copy(), y.copy()
        other_x[1], other_y[1] = other, -y[1]
        change = optimum(loss, lam, x, y) - optimum(loss, lam, other_x, other_y)
        bound = baselines.output_sensitivity(loss, lam, 4)
        worst = max(worst, float(np.linalg.norm(change)) / bound)
    assert 0.3 < worst <= 1.0


# --- noise ----------------------------------------------------------------------------------


def test_full_batch_noise_is_the_closed_form() -> None:
    plan = gradient_plan("ridge", rounds=25, clip=0.3)
    mu = mu_for_epsilon(epsilon=1.0, delta=1e-5)
    assert plan.noise_std(epsilon=1.0, delta=1e-5) == pytest.approx(2 * 0.3 * 5 / mu, rel=1e-12)


def test_sampling_needs_less_noise() -> None:
    full, sampled = (gradient_plan("ridge", rounds=40, clip=1.0, batches=k) for k in (1, 10))
    figures = [plan.noise_std(epsilon=1.0, delta=1e-5) for plan in (full, sampled)]
    assert figures[0] > 5 * figures[1]


def test_noise_enters_as_stated() -> None:
    """One GD round from 0 on rows of zeros: rate std / N; 4000 values, 5 % off is seen."""
    plan = gradient_plan("ridge", rounds=1, rate=0.5)
    theta = dp_sgd(plan, np.zeros((10, 4000)), np.zeros(10), 3.0, np.random.default_rng(10))
    assert abs(theta.std() / (0.5 * 3.0 / 10) - 1) < 0.05
    dual_plan = dual("ridge", rows=10, batches=1, rounds=1)
    zeros, labels = np.zeros((10, 4000)), np.zeros(10)
    rng = np.random.default_rng(11)
    for trainer in (coordinate_baselines.train_dual, coordinate_baselines.train_published):
        found = trainer(dual_plan, zeros, labels, 3.0, rng) * LAM * 10
        assert abs(found.std() / 3.0 - 1) < 0.05


def test_output_noise_has_the_stated_std() -> None:
    x = np.zeros((10, 4000))
    args = {"epsilon": 1.0, "delta": 1e-5, "rng": np.random.default_rng(12)}
    x[:, 0] = 1.0
    theta = baselines.output_perturbation("logistic", 0.5, x[:, :40], np.ones(10), **args)
    many = [
        baselines.output_perturbation("logistic", 0.5, x[:, :40], np.ones(10), **args)[1:]
        for _ in range(100)
    ]
    expected = baselines.output_sensitivity("logistic", 0.5, 10) / mu_for_epsilon(
        epsilon=1.0, delta=1e-5
    )
    assert theta.shape == (40,)
    assert abs(np.std(many) / expected - 1) < 0.05


def test_refusals() -> None:
    for change in ({"loss": "huber"}, {"batches": 0}, {"rounds": 0}, {"clip": 0.0}, {"rate": -1.0}):
        with pytest.raises(ParameterError, match=next(iter(change))):
            replace(gradient_plan("ridge"), **change)
    with pytest.raises(ParameterError, match="lam=0"):
        optimum("ridge", 0.0, *problem("ridge"))
