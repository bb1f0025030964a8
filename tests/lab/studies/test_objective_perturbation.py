"""Objective perturbation: its price against densities integrated exactly, its fit, its noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from protocols.errors import ParameterError
from protocols.privacy.loss import mu_for_epsilon
from sims.lab.studies.objective_perturbation import noise_std, train

Array = NDArray[np.float64]


def log_density(rows: Array, ridge: float, std: float, at: Array) -> Array:
    """Of the released weights, for rows signed by their labels; at: shape (points, d)."""
    d = at.shape[1]
    p = expit(-at @ rows.T)  # |l'| of every row
    push = p @ rows - ridge * at  # b of these weights
    bend = np.einsum("pn,ni,nj->pij", p * (1 - p), rows, rows) + ridge * np.eye(d)
    size = np.linalg.slogdet(bend)[1]
    return np.asarray(norm.logpdf(push, scale=std).sum(axis=1) + size)


def spent(
    row: Array, other: Array, kept: Array, *, ridge: float, std: float, epsilon: float, reach: float
) -> tuple[float, float]:
    """delta at epsilon between two tables, by a sum over a grid; and the first density's mass."""
    steps = np.linspace(-reach, reach, 20_001 if kept.shape[1] == 1 else 301)
    mesh = np.meshgrid(*[steps] * kept.shape[1], indexing="ij")
    at = np.stack([axis.ravel() for axis in mesh], axis=1)
    tables = (np.vstack([row, kept]), np.vstack([other, kept]))
    first, second = (np.exp(log_density(t, ridge, std, at)) for t in tables)
    cell = (steps[1] - steps[0]) ** kept.shape[1]
    excess = np.maximum(first - math.exp(epsilon) * second, 0.0).sum() * cell
    return float(excess), float(first.sum() * cell)


@pytest.mark.parametrize("ridge", [0.5, 4.0])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-3), (2.0, 1e-2)])
def test_delta_holds_for_opposite_rows_and_a_quarter_of_the_noise_would_not_do(
    ridge: float, epsilon: float, delta: float
) -> None:
    std = noise_std(ridge, epsilon=epsilon, delta=delta)
    one, none = np.array([1.0]), np.zeros((0, 1))
    given = {"ridge": ridge, "epsilon": epsilon, "reach": 12 * (std + 2) / ridge}
    deltas = []
    for kept in (none, np.array([[1.0], [1.0], [-1.0]])):
        for row, other in ((one, -one), (-one, one)):
            found, mass = spent(row, other, kept, std=std, **given)
            assert mass == pytest.approx(1.0, abs=1e-6)
            deltas.append(found)
    assert max(deltas) <= delta
    # Of opposite rows |D| = 1 for all weights, half the worst case; the determinants hide some.
    assert spent(one, -one, none, std=std / 4, **given)[0] > delta


@pytest.mark.parametrize("angle", [0.0, 0.3, 0.6, 1.0])
def test_delta_holds_for_rows_at_any_angle(angle: float) -> None:
    epsilon, delta, ridge = 1.5, 1e-2, 1.0
    std = noise_std(ridge, epsilon=epsilon, delta=delta)
    row = np.array([1.0, 0.0])
    other = np.array([math.cos(math.pi * angle), math.sin(math.pi * angle)])
    kept = np.array([[0.6, 0.0], [0.0, -0.8]])
    found, mass = spent(
        row, other, kept, ridge=ridge, std=std, epsilon=epsilon, reach=7 * (std + 2) / ridge
    )
    assert mass == pytest.approx(1.0, abs=1e-3)
    assert found <= delta


def test_the_ridge_pays_for_the_curvature() -> None:
    """As Lambda grows the noise falls to that of a Gaussian sum of sensitivity 2."""
    stds = [noise_std(ridge, epsilon=1.0, delta=1e-5) for ridge in (0.5, 1.0, 8.0, 1e6)]
    assert stds == sorted(stds, reverse=True)
    gaussian = 2 / mu_for_epsilon(epsilon=1.0, delta=1e-5)
    assert gaussian <= stds[-1] <= gaussian * 1.0001
    exact = 1.0 - math.log1p(0.25 / 8.0)
    assert stds[2] == pytest.approx(2 / mu_for_epsilon(epsilon=exact, delta=1e-5), rel=1e-4)
    least = 0.25 / math.expm1(1.0)  # ln(1 + 1 / (4 Lambda)) = epsilon
    assert noise_std(0.99 * least, epsilon=1.0, delta=1e-5) == math.inf
    assert math.isfinite(noise_std(1.2 * least, epsilon=1.0, delta=1e-5))


@pytest.mark.parametrize(
    ("ridge", "epsilon", "delta"), [(0.0, 1.0, 1e-5), (1.0, 0.0, 1e-5), (1.0, 1.0, 0.0)]
)
def test_figures_out_of_range_are_refused(ridge: float, epsilon: float, delta: float) -> None:
    with pytest.raises(ParameterError):
        noise_std(ridge, epsilon=epsilon, delta=delta)


def problem() -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 4))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1))[:, None]
    return x, (rng.random(200) < expit(4 * x @ [1.0, -1.0, 0.5, 0.0])).astype(float)


@pytest.mark.parametrize("ridge", [0.5, 8.0])
def test_without_noise_it_is_scikit_learns_fit(ridge: float) -> None:
    x, y = problem()
    fit = LogisticRegression(C=1 / ridge, fit_intercept=False, tol=1e-12, max_iter=10_000)
    expected = fit.fit(x, y).coef_[0]
    assert train(x, y, ridge, 0.0, np.random.default_rng(0)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("std", [3.0, 300.0])
def test_the_noise_is_the_gradient_that_is_left(std: float) -> None:
    x, y = problem()
    w = train(x, y, 2.0, std, np.random.default_rng(7))
    b = std * np.random.default_rng(7).standard_normal(4)
    assert x.T @ (expit(x @ w) - y) + 2.0 * w == pytest.approx(-b, abs=1e-4)
