"""Laplace noise with m of n rows: exact ratios of densities, dp-accounting, the best division."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.optimize import minimize
from scipy.stats import laplace

from protocols.errors import ParameterError
from protocols.privacy.loss.schedule import optimal_shares as shares_of_all_rows
from sims.lab.papers.fixed_batches import laplace_scale, optimal_shares


def amplified_epsilon(epsilon: np.ndarray | float, rate: float) -> np.ndarray:
    """What a round costs whose release alone, of known rows, would cost epsilon."""
    return np.log1p(rate * np.expm1(epsilon))


def _largest_ratio(values: list[float], other: float, batch: int, scale: float) -> float:
    """Largest |ln P / Q| of the mean of `batch` values with noise, where the last is replaced."""
    grid = np.linspace(-40, 40, 4001)

    def density(of: list[float]) -> np.ndarray:
        means = [np.mean(drawn) for drawn in itertools.combinations(of, batch)]
        return np.mean([laplace.pdf(grid, mean, scale) for mean in means], axis=0)

    return float(np.abs(np.log(density(values) / density([*values[:-1], other]))).max())


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_no_data_costs_more_and_the_worst_costs_as_much(batch: int) -> None:
    """Five values in [0, 1], every batch of them: exact densities."""
    rng = np.random.default_rng(0)
    (scale,) = laplace_scale(np.array([0.6]), sensitivity=1.0, batch=batch, rows=5)
    assert _largest_ratio([0, 0, 0, 0, 1], 0.0, batch, scale) == pytest.approx(0.6, rel=1e-6)
    for _ in range(40):
        values = list(rng.random(5).round(rng.integers(0, 3)))
        assert _largest_ratio(values, float(rng.random()), batch, scale) <= 0.6 * (1 + 1e-9)
    # with the scale of known rows it would cost too much, with a hundredth less noise as well
    known = 1 / (batch * 0.6)
    assert _largest_ratio([0, 0, 0, 0, 1], 0.0, batch, known) < 0.6
    assert _largest_ratio([0, 0, 0, 0, 1], 0.0, batch, 0.99 * scale) > 0.6 * 1.005


@pytest.mark.parametrize("rate", [0.01, 0.2])
def test_dp_accounting_finds_the_same_epsilon(rate: float) -> None:
    """Its sampled Laplace mechanism, at delta = 0."""
    found = pld.from_laplace_mechanism(
        0.5, sampling_prob=rate, value_discretization_interval=1e-5
    ).get_epsilon_for_delta(0.0)
    assert found == pytest.approx(float(amplified_epsilon(2.0, rate)), abs=2e-5)


def test_scale_and_epsilon_are_inverse() -> None:
    epsilons = np.array([1e-4, 0.01, 0.5, 3.0])
    scales = laplace_scale(epsilons, sensitivity=40.0, batch=1000, rows=100_000)
    np.testing.assert_allclose(
        amplified_epsilon(40.0 / (1000 * scales), 0.01), epsilons, rtol=1e-12
    )
    full = laplace_scale(epsilons, sensitivity=40.0, batch=1000, rows=1000)
    np.testing.assert_allclose(full, 40.0 / (1000 * epsilons), rtol=1e-12)


def test_the_division_is_the_least_and_that_of_all_rows_at_rate_1() -> None:
    weights = np.log(np.array([0.2, 1.0, 3.0, 0.5, 8.0]))
    np.testing.assert_allclose(
        optimal_shares(weights, epsilon=0.8, rate=1.0),
        shares_of_all_rows(weights, "laplace"),
        rtol=1e-9,
    )

    def cost(shares: np.ndarray) -> float:
        b = laplace_scale(0.8 * shares, sensitivity=1.0, batch=5, rows=100)
        return float(np.exp(weights) @ b**2)

    found = optimal_shares(weights, epsilon=0.8, rate=0.05)
    free = minimize(
        lambda z: math.log(cost(np.exp(z) / np.exp(z).sum())),
        np.zeros(5),
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-14, "maxiter": 20_000, "maxfev": 20_000},
    )
    assert math.log(cost(found)) <= free.fun + 1e-10
    np.testing.assert_allclose(found, np.exp(free.x) / np.exp(free.x).sum(), atol=1e-4)
    assert cost(found) < cost(shares_of_all_rows(weights, "laplace")) * (1 - 1e-3)


def test_rates_outside_are_refused() -> None:
    for batch in (0, 11):
        with pytest.raises(ParameterError, match=r"outside \(0, 1\]"):
            laplace_scale(np.ones(1), sensitivity=1.0, batch=batch, rows=10)
