"""Divisions of a budget: optimal by independent solvers, with a bound that holds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq

from protocols.errors import ParameterError
from protocols.privacy.loss.schedule import (
    best_rounds,
    log_error_weights,
    optimal_bound,
    optimal_shares,
)

Floats = NDArray[np.float64]
MU, L = 1.0, 20.0
# Three stages, as in a multistage run.
RATES = [1 / L] * 13 + [1 / (16 * L)] * 40 + [1 / (64 * L)] * 7
STAGES = [1] * 13 + [2] * 40 + [3] * 7
WEIGHTS = log_error_weights(RATES, STAGES, mu=MU, smoothness=L)
# Bound's noise term over D^2 is sum a_t VARIANCE(budget_t): 2 / eps^2, or 1 / (2 rho).
POWER = {"laplace": 2, "gaussian": 1}


def _variances(mechanism: str, shares: Floats, *, sensitivity: float, budget: float) -> Floats:
    """Var_t of the noise: 2 (D / eps_t)^2, or D^2 / (2 rho_t)."""
    if mechanism == "laplace":
        return 2 * (sensitivity / (budget * shares)) ** 2
    return sensitivity**2 / (2 * budget * shares)


def _by_lagrangian(weights: Floats, power: int) -> Floats:
    """Shares where the marginal gain a_t power x^-(power + 1) equals one price: nested brentq."""

    def demand(log_price: float) -> Floats:
        return np.array(
            [
                math.exp(
                    brentq(
                        lambda log_x, a=a: math.log(a * power) - (power + 1) * log_x - log_price,
                        -60,
                        60,
                        xtol=1e-14,
                        rtol=1e-15,
                    )
                )
                for a in weights
            ]
        )

    price = brentq(lambda x: math.log(demand(x).sum()), -60, 60, xtol=1e-14, rtol=1e-15)
    return demand(price)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_shares_solve_the_lagrangian_to_1e_9(mechanism: str) -> None:
    expected = _by_lagrangian(np.exp(WEIGHTS[1:]), POWER[mechanism])
    found = optimal_shares(WEIGHTS[1:], mechanism)
    assert np.abs(found / expected - 1).max() < 1e-9
    wrong = optimal_shares(WEIGHTS[1:], "gaussian" if mechanism == "laplace" else "laplace")
    assert np.abs(wrong / expected - 1).max() > 0.1


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_closed_bound_is_the_bound_at_the_optimum_and_below_uniform(mechanism: str) -> None:
    money, weights = {"sensitivity": 4e-4, "budget": 0.7}, np.exp(WEIGHTS)
    optimal, uniform = (
        weights[0] * 1e-7 + 20 / 2 * weights[1:] @ _variances(mechanism, shares, **money)
        for shares in (optimal_shares(WEIGHTS[1:], mechanism), np.full(60, 1 / 60))
    )
    closed = optimal_bound(WEIGHTS, mechanism=mechanism, dim=20, initial_error=1e-7, **money)
    assert math.isclose(optimal, closed, rel_tol=1e-12)
    assert uniform > 1.01 * optimal


def test_weights_are_the_recursion_s() -> None:
    """E <- (1 - sqrt(mu alpha)) E + alpha (1 + alpha L) d Var / 2, doubled where a stage begins."""
    rng = np.random.default_rng(3)
    variances, error = rng.random(60), 10.0
    for t, (alpha, variance) in enumerate(zip(RATES, variances, strict=True)):
        if t and STAGES[t] != STAGES[t - 1]:
            error *= 2
        error = (1 - math.sqrt(MU * alpha)) * error + alpha * (1 + alpha * L) * 4 * variance / 2
    weights = np.exp(WEIGHTS)
    assert math.isclose(weights[0] * 10 + 2 * weights[1:] @ variances, error, rel_tol=1e-12)


def test_best_rounds_is_the_smallest_bound() -> None:
    rest = {"mechanism": "laplace", "sensitivity": 0.02, "budget": 1.0, "dim": 20}
    found = best_rounds(RATES, STAGES, mu=MU, smoothness=L, initial_error=10.0, **rest)
    bounds = [
        optimal_bound(
            log_error_weights(RATES[:t], STAGES[:t], mu=MU, smoothness=L),
            initial_error=10.0,
            **rest,
        )
        for t in range(1, 61)
    ]
    assert found == 1 + int(np.argmin(bounds))
    assert 1 < found < 60


def _exact_error(alpha: float, curvature: float, variances: Floats) -> float:
    """E F(w_T) - F* of Nesterov's method along one curvature, from F(w_0) - F* = 1.

    w - w* follows x+ = s x - p x_prev - alpha noise; h is its impulse response, h_0 = 1, h_1 = s.
    """
    root = math.sqrt(alpha * MU)
    beta = (1 - root) / (1 + root)
    q = 1 - alpha * curvature
    s, p, h = (1 + beta) * q, beta * q, [0.0, 1.0]
    for _ in variances:
        h.append(s * h[-1] - p * h[-2])
    bias = math.sqrt(2 / curvature) * (h[-1] - p * h[-2])
    noise = alpha**2 * float(variances[::-1] @ np.array(h[1:-1]) ** 2)
    return curvature / 2 * (bias**2 + noise)


@pytest.mark.parametrize("scale", [0.1, 1.0])
@pytest.mark.parametrize("rounds", [5, 40, 150])
def test_the_bound_holds_on_quadratics(scale: float, rounds: int) -> None:
    """Exact errors stay below the bound with E_0 = 2 (F(w_0) - F*); with one, they need not."""
    alpha = scale / L
    money = {"sensitivity": 1e-2, "budget": 1.0}
    rest = {"mechanism": "laplace", "initial_error": 2.0, "dim": 1, **money}
    weights = log_error_weights([alpha] * rounds, [1] * rounds, mu=MU, smoothness=L)
    variances = _variances("laplace", optimal_shares(weights[1:], "laplace"), **money)
    for curvature in (MU, 1.1, 3.0, 10.0, L):
        exact = _exact_error(alpha, curvature, variances)
        assert exact <= optimal_bound(weights, **rest)


def test_the_paper_s_bound_can_be_exceeded() -> None:
    """Along curvature mu, after T = 1 / sqrt(mu alpha): 4 / e times a_{T,0} (F(w_0) - F*)."""
    alpha, rounds = 1e-4 / MU, 100
    weights = log_error_weights([alpha] * rounds, [1] * rounds, mu=MU, smoothness=L)
    exact = _exact_error(alpha, MU, np.zeros(rounds))
    assert math.isclose(exact / math.exp(weights[0]), 4 / math.e, rel_tol=0.02)


@pytest.mark.parametrize(
    ("rates", "stages", "mu", "message"),
    [
        ([], [], 1.0, "need one of each"),
        ([0.05], [1, 1], 1.0, "need one of each"),
        ([0.06], [1], 1.0, "outside"),
        ([0.0], [1], 1.0, "outside"),
        ([0.05, 0.05], [2, 1], 1.0, "decrease"),
        ([0.05], [1], 20.0, "mu=20.0"),
    ],
)
def test_wrong_weights_are_refused(
    rates: list[float], stages: list[int], mu: float, message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        log_error_weights(rates, stages, mu=mu, smoothness=L)
    with pytest.raises(ParameterError, match="mechanism='cauchy'"):
        optimal_shares(WEIGHTS, "cauchy")
