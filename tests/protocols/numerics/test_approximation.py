"""Approximations against published figures, the theory of best approximation, exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import ParameterError
from protocols.exchange.serialise import from_plain, to_plain
from protocols.models.lffr import PAPER_LINK
from protocols.numerics import approximation as ap
from protocols.numerics.approximation import Polynomial, error_bound, is_decreasing, range_bound
from protocols.numerics.remez import FloatArray, dyadic_rule, odd_part

METHODS: tuple[ap.Method, ...] = ("minimax", "least-squares", "least-push")
DEGREES = st.sampled_from(ap.SIGMOID_DEGREES)
sigmoid, reciprocal = ap.sigmoid_approximation, ap.reciprocal_approximation
POLYNOMIALS = st.builds(
    Polynomial,
    coefficients=st.lists(st.floats(-10, 10), min_size=1, max_size=9).map(tuple),
    center=st.floats(-5, 5),
    radius=st.floats(0.1, 10),
)
examples = settings(max_examples=60, deadline=None)


def in_x(*coefficients: float) -> Polynomial:
    return Polynomial(coefficients=coefficients, center=0.0, radius=1.0)


def powers_of(p: Polynomial) -> FloatArray:
    """Coefficients of x^0, x^1, …"""
    form = np.polynomial.Polynomial(p.coefficients, domain=[p.low, p.high])
    return np.asarray(form.convert().coef)


def rms_error(p: Polynomial) -> float:
    """Of a stand-in for the sigmoid, x uniform on its interval."""
    nodes, weights = dyadic_rule(0.0, 4.0, p.radius)
    return math.sqrt(np.average(residual(p, nodes) ** 2, weights=weights))


def line(low: float, high: float, points: int = 20_001) -> FloatArray:
    return np.asarray(np.clip(np.linspace(low, high, points), low, high), dtype=np.float64)


def residual(polynomial: Polynomial, x: FloatArray) -> FloatArray:
    return np.asarray(polynomial(x) - 0.5 - odd_part(x))


def peaks(error: FloatArray) -> FloatArray:
    """Largest |error| of each run of equal sign."""
    runs = np.split(np.abs(error), np.flatnonzero(np.diff(np.signbit(error))) + 1)
    return np.array([run.max() for run in runs])


def exact_error(polynomial: Polynomial, x: float) -> Decimal:
    """|p(x) - sigmoid(x)| to 60 digits: no rounding of float64 is involved."""
    with localcontext() as context:
        context.prec = 60
        t = (Decimal(x) - Decimal(polynomial.center)) / Decimal(polynomial.radius)
        value = Decimal(0)
        for coefficient in reversed(polynomial.coefficients):
            value = value * t + Decimal(coefficient)
        return abs(value - 1 / (1 + (-Decimal(x)).exp()))


KIM = {  # on [-8, 8]: coefficients of x, x^3, …; relative agreement; excess of rms over ours
    3: ([0.15012, -0.001593], 1.2e-5, 0.0),
    5: ([0.19131, -0.0045963, 0.0000412332], 6e-5, 0.0636),
    7: ([0.216884, -0.00819276, 0.000165861, -0.00000119581], 7e-4, 0.0),
}


@pytest.mark.parametrize("degree", KIM)
def test_kim_is_continuous_least_squares(degree: int) -> None:
    """All but degree 5's leading coefficient: printed 2.4 % too small, at the price of rms."""
    printed, rtol, excess = KIM[degree]
    ours = sigmoid(degree, 8, "least-squares").polynomial
    found = powers_of(ours)[1::2]
    ratio = np.array(printed) / found
    known = ratio[: ratio.size - (degree == 5)]
    np.testing.assert_allclose(known, 1.0, rtol=rtol)
    assert degree != 5 or ratio[-1] == pytest.approx(0.9764, abs=1e-4)
    powers = np.zeros(degree + 1)
    powers[0], powers[1::2] = 0.5, printed
    rms = np.sqrt(np.mean(residual(in_x(*powers), line(-8, 8)) ** 2))
    assert rms == pytest.approx(rms_error(ours) * (1 + excess), rel=1e-3)


def test_lffr_cubic_is_polyfit_at_step_one_hundredth() -> None:
    x = line(-5, 5, 1001)
    fit = np.polynomial.Polynomial.fit(x, 0.5 + odd_part(x), 3).convert().coef
    np.testing.assert_allclose(powers_of(PAPER_LINK), fit, atol=5e-6)
    assert powers_of(PAPER_LINK)[3] == pytest.approx(fit[3], abs=1e-7)
    continuous = sigmoid(3, 5, "least-squares").polynomial
    assert powers_of(continuous)[1] == pytest.approx(0.19833, abs=5e-6)


# Radius: error of the best polynomial of degree 7.
MINIMAX = {7: 0.01263, 10: 0.03340, 15: 0.07213, 20: 0.10692, 25: 0.13633, 30: 0.16117}


@pytest.mark.parametrize("radius", MINIMAX)
def test_least_errors_of_degree_7(radius: int) -> None:
    assert sigmoid(7, radius).max_error == pytest.approx(MINIMAX[radius], abs=6e-6)


BARRIER = [  # low, high, R; P's coefficients; e_B; m_P, M_P
    (0.014, 14.0, 4.23055, [38.00877, -5.102041], 33.49123, [37.93734, 57.89445]),
    (0.432, 24.0, 5.22046, [1.488806, -0.096451], 0.86768, [1.44714, 1.80258]),
]


@pytest.mark.parametrize(("low", "high", "reach", "powers", "error", "extremes"), BARRIER)
def test_barrier_table(
    low: float, high: float, reach: float, powers: Any, error: float, extremes: Any
) -> None:
    fit = reciprocal(1, low, high)
    np.testing.assert_allclose(powers_of(fit.polynomial), powers, rtol=4e-6)
    assert fit.max_error == pytest.approx(error, rel=5e-6)
    assert fit.max_slope == pytest.approx(1 / (low * high), rel=1e-9)
    assert is_decreasing(fit.polynomial, high - reach**2, low)
    found = range_bound(fit.polynomial, high - reach**2, low)
    np.testing.assert_allclose(found, extremes, rtol=5e-6)


@pytest.mark.parametrize("degree", ap.SIGMOID_DEGREES)
@pytest.mark.parametrize("radius", [4.0, 8.568127214899482, 64.0, 1000.0])
def test_sigmoid_minimax_equioscillates(degree: int, radius: float) -> None:
    fit = sigmoid(degree, radius)
    # resolve both the bend near 0 and the oscillations near the end
    x = np.unique([*line(0, min(30, radius), 60_001), *line(0, radius, 60_001)])[1:]
    found = peaks(residual(fit.polynomial, x))
    assert found.size == (degree + 1) // 2 + 1
    assert np.ptp(found) <= 1e-6 * fit.max_error + 1e-12
    np.testing.assert_allclose(found, fit.max_error, rtol=3e-6 + 1e-12 / fit.max_error)


@pytest.mark.parametrize("degree", ap.EXPONENTIAL_DEGREES)
@pytest.mark.parametrize("radius", [0.3, 3.0, 10.0])
def test_exponential_minimax_equioscillates(degree: int, radius: float) -> None:
    """Of exp(x - radius), and certified: degree + 2 peaks of the stated height, no higher slope."""
    fit, x = ap.exponential_approximation(degree, radius), line(-radius, radius, 60_001)
    error = fit.polynomial(x) - np.exp(x - radius)
    assert np.abs(error).max() <= fit.max_error == ap.exponential_error(fit.polynomial)
    assert np.abs(fit.polynomial.derivative()(x)).max() <= fit.max_slope
    if fit.max_error > 1e-9:
        assert peaks(error).size == degree + 2
        np.testing.assert_allclose(peaks(error), fit.max_error, rtol=3e-6, atol=2e-13)


@pytest.mark.parametrize("degree", ap.RECIPROCAL_DEGREES)
@pytest.mark.parametrize("ratio", [1.5, 55.6, 1e3, 1e5])
def test_reciprocal_minimax_equioscillates(degree: int, ratio: float) -> None:
    low, high = 14 / ratio, 14.0
    fit = reciprocal(degree, low, high)
    x = np.unique([*np.geomspace(low, high, 60_001), *line(low, high, 60_001)])
    found = peaks(fit.polynomial(x) - 1 / x)
    assert found.size == degree + 2
    np.testing.assert_allclose(found, fit.max_error, rtol=2e-6)
    # Chebyshev: E = a^n (high - low) / (2 low high); linear: (sqrt high - sqrt low)^2 / (2 …)
    a = (math.sqrt(high) - math.sqrt(low)) / (math.sqrt(high) + math.sqrt(low))
    assert fit.max_error == pytest.approx(a**degree * (high - low) / (2 * low * high), rel=2e-6)


@given(st.floats(0.01, 1000), DEGREES)
@examples
def test_every_method(radius: float, degree: int) -> None:
    """Each wins its own norm; bounds are above every sample and within 1.001 of the largest."""
    fits = {m: sigmoid(degree, radius, m) for m in METHODS}
    for fit in fits.values():
        p = fit.polynomial
        assert (p.coefficients[0], any(p.coefficients[2::2])) == (0.5, False)
        assert (p.low, p.high, p.degree) == (-radius, radius, degree)
        assert fits["minimax"].max_error <= fit.max_error * (1 + 3e-6) + 1e-11
        rms = rms_error(p)
        assert rms_error(fits["least-squares"].polynomial) <= rms * (1 + 1e-9) + 1e-12
        x = line(-radius, radius, 40_001)
        error, slope = np.abs(residual(p, x)), np.abs(p.derivative()(x))
        assert error.max() <= fit.max_error <= 1.001 * error.max() + 1e-11
        assert slope.max() <= fit.max_slope <= 1.001 * slope.max() + 1e-11 / radius
        assert rms <= fit.max_error


@given(st.floats(-1, 1), st.one_of(st.floats(0.01, 0.5), st.floats(0.5, 64)), DEGREES)
@settings(max_examples=200, deadline=None)
def test_error_bound_holds_in_exact_arithmetic(place: float, radius: float, degree: int) -> None:
    fit, x = sigmoid(degree, radius), place * radius
    assert exact_error(fit.polynomial, x) <= Decimal(fit.max_error)
    assert abs(residual(fit.polynomial, np.array(x))) <= fit.max_error


@given(POLYNOMIALS, st.floats(-20, 20), st.floats(0, 20))
@examples
def test_bounds_of_any_polynomial(p: Polynomial, low: float, width: float) -> None:
    x = line(low, low + width)
    values, (least, most) = p(x), range_bound(p, low, low + width)
    terms = np.abs(p.coefficients) @ np.abs((x - p.center) / p.radius) ** np.c_[: p.degree + 1]
    slack = 1e-5 * np.max(np.abs(values)) + 1e-12 * (1 + np.max(terms))
    assert least <= values.min() <= least + slack
    assert most - slack <= values.max() <= most
    sampled = np.max(np.abs(residual(p, x)))
    assert sampled <= error_bound(p, "sigmoid", low, low + width) <= 1.001 * sampled + slack
    assert not is_decreasing(p, low, low + width) or np.all(np.diff(values) <= slack)


@given(st.sampled_from(ap.RECIPROCAL_DEGREES), st.floats(1e-3, 1e3), st.floats(0.1, 5))
@examples
def test_reciprocal_bounds(degree: int, high: float, log_ratio: float) -> None:
    low = high * 10.0**-log_ratio
    fit = reciprocal(degree, low, high)
    x = np.clip(np.geomspace(low, high, 40_001), low, high)
    error, slope = np.abs(fit.polynomial(x) - 1 / x), np.abs(fit.polynomial.derivative()(x))
    assert error.max() <= fit.max_error <= 1.001 * error.max() + 1e-13 / low
    assert slope.max() <= fit.max_slope <= 1.001 * slope.max()


def test_a_spike_between_samples_is_found() -> None:
    """(1 - T_20)/2 vanishes on a grid of 11 points and is 1 between them."""
    spikes = np.polynomial.chebyshev.cheb2poly([0.5] + [0.0] * 19 + [-0.5])
    assert np.max(in_x(*spikes)(np.cos(np.pi * np.arange(11) / 10))) < 1e-6
    assert range_bound(in_x(*spikes), -1, 1)[1] == pytest.approx(1.0, abs=1e-6)


def test_decreasing_is_proven_or_denied() -> None:
    assert is_decreasing(in_x(1.0, -1e-9), -10, 10)
    assert is_decreasing(in_x(3.0), -1, 1)
    bump = in_x(0.0, -1.0, 0.0, 1 / 3)  # p' = x^2 - 1
    assert is_decreasing(bump, -1 + 1e-9, 1 - 1e-9)
    assert not is_decreasing(bump, -1, 1 + 1e-9)
    # a wide fit of 1/x of degree 5 turns up inside its interval; a linear one never
    assert not is_decreasing(reciprocal(5, 0.5, 24.0).polynomial, 0.5, 24.0)


@given(POLYNOMIALS, st.floats(-5, 5))
@examples
def test_forms_of_a_polynomial_agree(p: Polynomial, x: float) -> None:
    t, powers = (x - p.center) / p.radius, in_x(*powers_of(p))
    slack = 1e-12 * (1 + sum(abs(c) * 5**k for k, c in enumerate(powers.coefficients)))
    slack += 1e-12 * sum(abs(c * t**k) for k, c in enumerate(p.coefficients))
    assert p(x) == pytest.approx(powers(x), abs=slack)
    assert p.derivative()(x) == pytest.approx(powers.derivative()(x), abs=100 * slack)
    assert p(np.array([[x]])).shape == (1, 1)
    assert from_plain(Polynomial, to_plain(p)) == p


REFUSALS: list[tuple[Callable[..., object], tuple[Any, ...], str]] = [
    *((sigmoid, (degree, 8.0), f"degree={degree}") for degree in (1, 4, 17)),
    *((sigmoid, (7, radius), f"radius={radius}") for radius in (0.0, -8.0, 1000.1, math.nan)),
    (sigmoid, (7, 8.0, "taylor"), "method='taylor'"),
    *((ap.exponential_approximation, (n, 3.0), f"degree={n}") for n in (2, 16)),
    *((ap.exponential_approximation, (7, r), f"radius={r}") for r in (0.0, 10.1, math.nan)),
    *((reciprocal, (degree, 0.1, 1.0), f"degree={degree}") for degree in (0, 7)),
    *((reciprocal, (2, low, 1.0), f"low={low}") for low in (0.0, -1.0, 2.0, math.nan)),
    *((reciprocal, (2, low, 1.0), "high=1.0") for low in (1.0, 1e-13)),
    (reciprocal, (2, 1.0, math.inf), "low=1.0, high=inf"),
    (error_bound, (in_x(1.0), "tanh", 0.0, 1.0), "function='tanh'"),
    (error_bound, (in_x(1.0), "reciprocal", 0.0, 1.0), "low=0.0"),
    *((check, (in_x(1.0), 1.0, 0.0), "low=1.0") for check in (range_bound, is_decreasing)),
    *(
        (lambda change: replace(in_x(1.0, 2.0), **change), ({key: value},), message)
        for key, value, message in [
            ("coefficients", (), "coefficients"),
            ("coefficients", (math.inf,), "coefficients"),
            ("center", math.nan, "center=nan"),
            ("radius", 0.0, "radius=0.0"),
        ]
    ),
]


@pytest.mark.parametrize(("call", "arguments", "message"), REFUSALS)
def test_refusals(call: Callable[..., object], arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ParameterError, match=f"^{message}"):
        call(*arguments)


def test_overflow_gives_infinity_never_a_small_bound() -> None:
    huge = in_x(0.0, 0.0, 1e300)
    assert error_bound(huge, "sigmoid", -1e10, 1e10) == math.inf
    assert range_bound(huge, -1e10, 1e10) == (-math.inf, math.inf)
