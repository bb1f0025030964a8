"""The polynomial of least push: figures, its programme against another, what it costs."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from protocols.errors import ParameterError
from protocols.numerics.approximation import (
    PUSH_ERROR,
    SIGMOID_DEGREES,
    Method,
    Polynomial,
    error_bound,
    is_symmetric,
    sigmoid_approximation,
)
from protocols.numerics.push import odd_least_push, saturating_least_push
from protocols.numerics.remez import FloatArray
from protocols.privacy.certificates.descent_bound import push_bound
from protocols.privacy.certificates.sensitivity import diameter


def push(
    degree: int, radius: float, method: Method = "least-push", learning_rate: float = 0.0
) -> float:
    """Certain."""
    p = sigmoid_approximation(degree, radius, method).polynomial
    return push_bound(p, shrink=1.0, learning_rate=learning_rate, norm_bound=1.0, radius=radius)


@pytest.mark.parametrize(
    ("degree", "radius", "minimax", "least"),
    [(7, 20.0, 2.1499, 0.5253), (15, 20.0, 0.5969, 0.3805), (15, 30.0, 1.9957, 0.4484)],
)
def test_figures(degree: int, radius: float, minimax: float, least: float) -> None:
    """M at eta Lambda = 2, for 1 % of the diameter."""
    assert push(degree, radius, "minimax", 2.0) == pytest.approx(minimax, abs=1e-4)
    assert push(degree, radius, learning_rate=2.0) == pytest.approx(least, abs=1e-4)
    methods: tuple[Method, Method] = ("minimax", "least-push")
    before, after = (
        diameter(sigmoid_approximation(degree, radius, m).polynomial, norm_bound=1.0, radius=radius)
        for m in methods
    )
    assert before < after < 1.012 * before


@given(degree=st.sampled_from(SIGMOID_DEGREES), radius=st.floats(0.01, 1000.0))
@settings(max_examples=60, deadline=None)
def test_never_more_push_and_never_more_error_than_allowed(degree: int, radius: float) -> None:
    best, found = (
        sigmoid_approximation(degree, radius, m)
        for m in cast(tuple[Method, ...], ("minimax", "least-push"))
    )
    assert is_symmetric(found.polynomial) and found.polynomial.degree == degree
    assert found.max_error <= PUSH_ERROR * best.max_error * 1.005
    assert push(degree, radius) <= push(degree, radius, "minimax") + 1e-6


@pytest.mark.parametrize("radius", [6.0, 20.0])
def test_no_other_solver_finds_less(radius: float) -> None:
    """Sequential quadratic programming from the minimax fit, in other coordinates."""
    best = sigmoid_approximation(5, radius)
    allowed, z = PUSH_ERROR * best.max_error, np.linspace(0, radius, 300)[1:]
    powers = (z[:, None] / radius) ** np.array([1, 3, 5])
    start = np.append(best.polynomial.coefficients[1::2], 5.0)

    def slack(x: FloatArray) -> FloatArray:
        p = 0.5 + powers @ x[:3]
        gap = p - expit(z)
        return np.concatenate([x[3] - z * (1 - p), allowed - gap, allowed + gap])

    other = minimize(
        lambda x: x[3], start, constraints={"type": "ineq", "fun": slack}, method="SLSQP"
    )
    assert push(5, radius) <= other.fun * 1.003


def test_nothing_is_bought_where_nothing_is_allowed() -> None:
    with pytest.raises(ParameterError, match="allow more"):
        odd_least_push(7, 20.0, 0.9 * sigmoid_approximation(7, 20.0).max_error)
    short = sigmoid_approximation(15, 0.5, "least-push")
    assert short == sigmoid_approximation(15, 0.5)


def test_the_same_every_time() -> None:
    first = odd_least_push(15, 24.0, 0.06)
    np.testing.assert_array_equal(first, odd_least_push(15, 24.0, 0.06))
    p = Polynomial(
        coefficients=tuple(np.insert(first, np.arange(8), [0.5] + [0.0] * 7).tolist()),
        center=0.0,
        radius=24.0,
    )
    assert error_bound(p, "sigmoid", -24.0, 24.0) == pytest.approx(0.06, rel=2e-3)


# -- saturating -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("degree", "radius", "error", "sigmoid", "saturating"),
    [(7, 10.0, 0.0772, 1.897, 1.131), (15, 10.0, 0.0327, 1.823, 1.064)],
)
def test_a_row_that_says_no_more_than_one_half(
    degree: int, radius: float, error: float, sigmoid: float, saturating: float
) -> None:
    """Its certified error and diameter, beside the sigmoid's."""
    usual, found = (
        sigmoid_approximation(degree, radius, m)
        for m in cast(tuple[Method, ...], ("least-push", "saturating"))
    )
    moved = [diameter(each.polynomial, norm_bound=1.0, radius=radius) for each in (usual, found)]
    assert moved == pytest.approx([sigmoid, saturating], rel=2e-3)
    assert found.max_error == pytest.approx(error, rel=2e-3)
    assert push(degree, radius, "saturating") < 1.2 * push(degree, radius)


@given(degree=st.sampled_from(SIGMOID_DEGREES), radius=st.floats(0.5, 100.0))
@settings(max_examples=40, deadline=None)
def test_its_error_is_what_a_dense_grid_shows(degree: int, radius: float) -> None:
    found = sigmoid_approximation(degree, radius, "saturating")
    z = np.linspace(-radius, radius, 20_001).astype(np.float64)
    gap = np.abs(found.polynomial(z) - np.maximum(expit(z), 0.5)).max()
    assert gap <= found.max_error <= 1.01 * gap + 1e-9
    assert np.abs(found.polynomial.derivative()(z)).max() <= found.max_slope
    assert not is_symmetric(found.polynomial)
    assert error_bound(found.polynomial, "sigmoid", -radius, radius) > 0.4 * np.tanh(radius / 4)


def test_another_solver_finds_no_less_error() -> None:
    """Sequential quadratic programming, in powers; slack times its level is what is allowed."""
    t = np.linspace(-1, 1, 301)
    powers, target = t[:, None] ** np.arange(6), np.maximum(expit(8 * t), 0.5)

    def slack(x: FloatArray) -> FloatArray:
        gap = powers @ x[:6] - target
        return np.concatenate([x[6] - gap, x[6] + gap])

    start = np.append(np.linalg.lstsq(powers, target, rcond=None)[0], 1.0)
    least = minimize(
        lambda x: x[6], start, constraints={"type": "ineq", "fun": slack}, method="SLSQP"
    ).fun
    for factor in (1.0, 1.5):
        gap = np.abs(powers @ saturating_least_push(5, 8.0, factor) - target).max()
        assert gap == pytest.approx(factor * least, rel=5e-3)
    with pytest.raises(ParameterError, match="slack=0.99"):
        saturating_least_push(5, 8.0, 0.99)
