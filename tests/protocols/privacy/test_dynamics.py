"""Rates and noise by eigenvalues, discrete Lyapunov equations and the rules' own steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

from protocols.errors import ParameterError
from protocols.privacy.dynamics import (
    METHODS,
    Curvature,
    Method,
    amplification,
    companion,
    estimated_curvature,
    expected_error,
    logistic_curvature,
    rate,
    stationary_variance,
)
from protocols.updates.heavy_ball import HeavyBall
from protocols.updates.strongly_convex import StronglyConvexNesterov
from tests.protocols.updates.textbook import nesterov, run

BOUNDS = Curvature(mu=0.1, smoothness=2.0)
GRID = [(0.05, 0.0), (0.3, 0.4), (0.5, 0.8), (0.5, 0.97), (0.9, 0.6)]


def _spectrum(bounds: Curvature = BOUNDS) -> np.ndarray:
    return np.linspace(bounds.mu, bounds.smoothness, 201)


def _radius(matrix: np.ndarray) -> float:
    return float(np.abs(np.linalg.eigvals(matrix)).max())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("alpha", "beta"), GRID)
def test_rate_is_the_largest_radius_inside_too(method: Method, alpha: float, beta: float) -> None:
    found = [
        _radius(companion(method, alpha=alpha, beta=beta, curvature=float(c))) for c in _spectrum()
    ]
    assert math.isclose(
        rate(method, alpha=alpha, beta=beta, bounds=BOUNDS), max(found), rel_tol=1e-7
    )


def test_polyak_s_choice_gives_polyak_s_rate() -> None:
    root = math.sqrt(BOUNDS.condition)
    alpha = 4 / (math.sqrt(BOUNDS.mu) + math.sqrt(BOUNDS.smoothness)) ** 2
    best = (root - 1) / (root + 1)
    found = rate("hb", alpha=alpha, beta=best**2, bounds=BOUNDS)
    assert math.isclose(found, best, rel_tol=1e-7)
    assert rate("hb", alpha=4 / BOUNDS.smoothness, beta=0.9, bounds=BOUNDS) > 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("alpha", "beta"), GRID)
def test_variance_solves_the_lyapunov_equation(method: Method, alpha: float, beta: float) -> None:
    curvatures = np.array([0.1, 0.7, 1.3, 2.0])
    found = stationary_variance(method, alpha=alpha, beta=beta, curvatures=curvatures)
    source = np.diag([alpha**2, 0.0])
    for curvature, value in zip(curvatures, found, strict=True):
        m = companion(method, alpha=alpha, beta=beta, curvature=float(curvature))
        if _radius(m) < 1:
            expected = solve_discrete_lyapunov(m, source)[0, 0]
            assert math.isclose(value, expected, rel_tol=1e-9)
        else:
            assert math.isinf(value)
    l, q = curvatures, 1 - alpha * curvatures  # noqa: E741
    if method == "hb":
        printed = alpha * (1 + beta) / ((1 - beta) * l * (2 + 2 * beta - alpha * l))
    else:
        printed = alpha * (1 + beta * q) / (l * (1 - beta * q) * (1 + (1 + 2 * beta) * q))
    stable = np.isfinite(found)
    assert stable.any()
    assert np.allclose(found[stable], printed[stable], rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("alpha", "beta"), [*GRID, (0.62, 0.95)])
def test_amplification_is_the_worst_inside_too(method: Method, alpha: float, beta: float) -> None:
    values = _spectrum()
    inside = values / 2 * stationary_variance(method, alpha=alpha, beta=beta, curvatures=values)
    found = amplification(method, alpha=alpha, beta=beta, bounds=BOUNDS)
    assert found == pytest.approx(inside.max(), rel=1e-12)


def test_without_momentum_both_are_gradient_descent() -> None:
    for method in METHODS:
        found = stationary_variance(method, alpha=0.4, beta=0.0, curvatures=[0.5])
        assert math.isclose(found[0], 0.4 / (0.5 * (2 - 0.2)), rel_tol=1e-12)
        assert math.isclose(rate(method, alpha=0.4, beta=0.0, bounds=BOUNDS), 1 - 0.04)


@pytest.mark.parametrize("method", METHODS)
def test_expected_error_is_the_rules_own(method: Method) -> None:
    """Bias from a run without noise; noise from unit errors of single rounds; no formula shared."""
    spectrum, distances, rounds = np.array([0.1, 0.9, 2.0]), np.array([1.0, -2.0, 0.5]), 25
    variances = np.linspace(0.5, 0.1, rounds)
    alpha = 0.5
    root = math.sqrt(alpha * 0.1)
    beta = (1 - root) / (1 + root)
    rule = (
        HeavyBall(rounds=rounds, learning_rate=alpha, momentum=beta)
        if method == "hb"
        else StronglyConvexNesterov(rounds=rounds, mu=0.1, smoothness=2.0)
    )
    error = run(rule, lambda w: spectrum * w, distances)[-1] ** 2
    for t in range(rounds):
        calls = iter(range(rounds))
        kicked = run(rule, lambda w, c=calls, t=t: spectrum * w + (next(c) == t), np.zeros(3))[-1]
        error = error + variances[t] * kicked**2
    found = expected_error(
        method,
        alpha=alpha,
        beta=beta,
        curvatures=spectrum,
        distances=distances,
        variances=variances,
    )
    assert math.isclose(found, float(spectrum / 2 @ error), rel_tol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_the_error_settles_at_the_amplified_noise(method: Method) -> None:
    choice = {"alpha": 0.4, "beta": 0.7}
    variance = stationary_variance(method, **choice, curvatures=[0.1, 2.0])
    found = expected_error(
        method, **choice, curvatures=[0.1, 2.0], distances=[3.0, 3.0], variances=[0.3] * 2000
    )
    assert math.isclose(found, 0.3 * float(np.array([0.05, 1.0]) @ variance), rel_tol=1e-9)
    assert found <= 2 * 0.3 * amplification(method, **choice, bounds=BOUNDS)


def test_momentum_buys_speed_with_noise() -> None:
    """Up to the fastest momentum, (1 - sqrt(alpha mu))^2, the rate falls; the noise then rises."""
    betas = np.linspace(0.0, (1 - math.sqrt(0.05)) ** 2, 30)
    rates = [rate("hb", alpha=0.5, beta=float(b), bounds=BOUNDS) for b in betas]
    noise = [amplification("hb", alpha=0.5, beta=float(b), bounds=BOUNDS) for b in betas[10:]]
    assert (np.diff(rates) < 0).all()
    assert (np.diff(noise) > 0).all()


def test_the_public_curvature_covers_every_logistic_hessian() -> None:
    rng = np.random.default_rng(8)
    bounds = logistic_curvature(penalty=0.05, norm_bound=1.5)
    assert bounds.is_public
    for scale in (0.0, 1.0, 30.0):
        rows = rng.standard_normal((60, 4))
        rows *= 1.5 / np.linalg.norm(rows, axis=1, keepdims=True)
        p = 1 / (1 + np.exp(-rows @ (scale * rng.standard_normal(4))))
        hessian = (rows.T * (p * (1 - p))) @ rows / 60 + 0.1 * np.eye(4)
        values = np.linalg.eigvalsh(hessian)
        assert bounds.mu <= values[0] + 1e-12
        assert values[-1] <= bounds.smoothness
    same = np.tile([1.5, 0.0], (10, 1))  # attained at w = 0
    top = float(np.linalg.eigvalsh(same.T @ same / 40 + 0.1 * np.eye(2))[-1])
    assert math.isclose(top, bounds.smoothness, rel_tol=1e-12)


def test_the_estimate_says_that_it_is_not_private() -> None:
    rows = np.random.default_rng(9).random((500, 6))
    found = estimated_curvature(rows, penalty=0.01)
    assert not found.is_public
    top = np.linalg.svd(rows, compute_uv=False)[0] ** 2 / 500
    assert math.isclose(found.smoothness, top / 4 + 0.02, rel_tol=1e-12)
    assert math.isclose(
        estimated_curvature(rows, penalty=0.01, slope=1.0).smoothness, top + 0.02, rel_tol=1e-12
    )
    assert found.smoothness < logistic_curvature(penalty=0.01, norm_bound=math.sqrt(6)).smoothness


def test_textbook_nesterov_forgets_at_the_rate() -> None:
    alpha = 0.3
    root = math.sqrt(alpha * 0.1)
    beta = (1 - root) / (1 + root)
    path = nesterov(lambda w: 1.2 * w, np.ones(1), [alpha] * 60, [1] * 60, 0.1)
    radius = _radius(companion("nag", alpha=alpha, beta=beta, curvature=1.2))
    peaks = [max(abs(float(x[0])) for x in path[k : k + 20]) for k in (0, 20, 40)]
    assert math.isclose(peaks[2] / peaks[1], radius**20, rel_tol=0.3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Curvature(mu=0.0, smoothness=1.0), "mu=0.0"),
        (lambda: Curvature(mu=2.0, smoothness=1.0), "smoothness=1.0"),
        (lambda: logistic_curvature(penalty=0.0, norm_bound=1.0), "penalty=0.0"),
        (lambda: estimated_curvature(np.ones((2, 2)), penalty=-1.0), "penalty=-1.0"),
        (lambda: rate("hb", alpha=0.1, beta=1.0, bounds=BOUNDS), "beta=1.0"),
        (lambda: rate("adam", alpha=0.1, beta=0.5, bounds=BOUNDS), "method='adam'"),
    ],
)
def test_wrong_arguments_are_refused(call, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        call()
