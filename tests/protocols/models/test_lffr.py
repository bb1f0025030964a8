"""LFFR's loss: its derivative, its curvature, and certain bounds of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from protocols.errors import ParameterError
from protocols.models.lffr import (
    CURVATURE,
    PAPER_LINK,
    Lffr,
    curvature,
    largest_slope,
    push_bound,
    slope_of_loss,
)
from protocols.numerics.approximation import Polynomial, sigmoid_approximation

LINKS = [PAPER_LINK, *(sigmoid_approximation(3, r).polynomial for r in (2.0, 5.0, 8.0))]
Z = np.linspace(-1, 1, 20_001)
SIGMOID: Any = expit


def test_for_the_sigmoid_it_is_the_derivative_of_the_squared_error() -> None:
    h = 1e-6
    for y in (0.0, 0.3, 1.0):
        z = 6 * Z
        numeric = ((expit(z + h) - y) ** 2 - (expit(z - h) - y) ** 2) / (2 * h)
        np.testing.assert_allclose(slope_of_loss(SIGMOID, z, np.array(y)), numeric, atol=1e-9)


def test_the_papers_curvature_constant() -> None:
    """The largest (4s - 6s^2 - 2y + 4ys) s (1 - s) is 0.15406, the slope of g in z."""
    s = expit(10 * Z)
    values = [(4 * s - 6 * s**2 - 2 * y + 4 * y * s) * s * (1 - s) for y in (0.0, 1.0)]
    assert max(v.max() for v in values) == pytest.approx(0.15406, abs=5e-6)
    for y, expected in zip((0.0, 1.0), values, strict=True):
        found = np.gradient(slope_of_loss(SIGMOID, 10 * Z, np.array(y)), 10 * Z)
        np.testing.assert_allclose(found[1:-1], expected[1:-1], atol=1e-6)
    assert max(v.max() for v in values) < CURVATURE


@pytest.mark.parametrize("link", LINKS)
def test_bounds_hold_and_are_attained(link: Polynomial) -> None:
    """Sampled extremes over z and y; each bound is within 1e-4 of what is attained."""
    z = link.radius * Z
    slopes = np.stack([slope_of_loss(link, z, np.array(y)) for y in (0.0, 0.25, 0.5, 1.0)])
    numeric = np.gradient(slopes, z, axis=1)[:, 1:-1]
    for sampled, bound in (
        (np.abs(slopes).max(), largest_slope(link, link.radius)),
        (numeric.max(), curvature(link)),
    ):
        assert sampled <= bound * (1 + 1e-6)
        assert bound <= sampled * (1 + 1e-3)


def test_steps_by_the_papers_constant_descend() -> None:
    """Up to twice the constant: the paper's polynomial is steeper than the sigmoid, not so much."""
    assert CURVATURE < curvature(PAPER_LINK) < 2 * CURVATURE
    assert curvature(PAPER_LINK) == pytest.approx(0.2038, abs=1e-4)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("fraction", [0.3, 1.0])
def test_the_push_bounds_one_step(link: Polynomial, fraction: float) -> None:
    """|v|^2 <= shrink^2 |w|^2 + 2 eta M for one row x with |x| = B, any y; attained to 1e-3."""
    norm, eta, shrink = 2.0, 0.7, 0.9
    radius = fraction * link.radius / norm
    push = push_bound(link, shrink=shrink, learning_rate=eta, norm_bound=norm, radius=radius)
    z = norm * radius * Z
    best = -np.inf
    for y in (0.0, 0.5, 1.0):
        slope = slope_of_loss(link, z, np.array(y))
        # w along x, so z = |w| B: |v|^2 - shrink^2 |w|^2 = -2 eta shrink z g + eta^2 B^2 g^2.
        gain = (-2 * eta * shrink * z * slope + (eta * norm * slope) ** 2) / (2 * eta)
        best = max(best, float(gain.max()))
    assert best <= push <= best * (1 + 1e-3)


def test_the_push_needs_a_symmetric_link() -> None:
    lopsided = Polynomial(coefficients=(0.4, 1.0), center=0.0, radius=5.0)
    with pytest.raises(ParameterError, match="must be 1"):
        push_bound(lopsided, shrink=1.0, learning_rate=1.0, norm_bound=1.0, radius=1.0)


def test_predictions_lie_in_the_range() -> None:
    model, targets = Lffr(), np.array([[0.0, 0.5], [1.0, 0.25]])
    np.testing.assert_array_equal(model.encode(targets), targets)
    assert np.linalg.norm(model.encode(np.ones((1, 3)))) == pytest.approx(model.bound(3))
    scores = np.array([[-20.0, 0.0, np.log(3.0)]])
    np.testing.assert_allclose(model.decode(scores), [[0.0, 0.5, 0.75]], atol=1e-8)
