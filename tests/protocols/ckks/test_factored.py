"""Factored polynomials: the same values as their coefficients, at the least depth."""

from __future__ import annotations

from functools import reduce
from operator import mul

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.ckks.circuits.factors import degree as degree_of
from protocols.ckks.circuits.factors import depth, last_operands
from protocols.ckks.circuits.rows import gradient_levels, link_factors
from protocols.ckks.factored import FactoredPolynomial
from protocols.errors import ParameterError
from protocols.numerics.approximation import (
    EXPONENTIAL_DEGREES,
    RECIPROCAL_DEGREES,
    SIGMOID_DEGREES,
    Polynomial,
    exponential_approximation,
    reciprocal_approximation,
    sigmoid_approximation,
)
from protocols.updates.barrier import Barrier, pull_factors

GRID = np.linspace(-1, 1, 20001)


class Leveled:
    """A number that counts its multiplications in sequence, as a ciphertext does."""

    def __init__(self, value: np.ndarray, level: int) -> None:
        self.value, self.level = value, level

    def __mul__(self, other: Leveled) -> Leveled:
        return Leveled(self.value * other.value, max(self.level, other.level) + 1)

    def __add__(self, other: float) -> Leveled:
        return Leveled(self.value + other, self.level)


def evaluated(factors: FactoredPolynomial, u: np.ndarray) -> Leveled:
    """vector * r(u) / leading for a vector of ones, by the circuit's own order."""
    operands = last_operands(factors, Leveled(u, 0), Leveled(np.ones_like(u), 0))
    return reduce(mul, operands)


# -- the polynomials of this project -------------------------------------------------------------


@pytest.mark.parametrize("method", ["minimax", "least-squares"])
@pytest.mark.parametrize("radius", [2.0, 8.0, 20.0])
@pytest.mark.parametrize("degree", SIGMOID_DEGREES)
def test_sigmoid_factors(degree: int, radius: float, method: str) -> None:
    """1/2 + t leading prod factors(t^2) is p, to 2^-40 of its largest term."""
    p = sigmoid_approximation(degree, radius, method).polynomial  # type: ignore[arg-type]
    factors = link_factors(p)
    product = evaluated(factors, GRID**2).value * GRID * factors.leading + 0.5
    scale = max(map(abs, p.coefficients))
    error = np.log2(np.abs(product - p(GRID * radius)).max() / scale)
    assert error <= -40, f"log2 error {error:.1f}"


@pytest.mark.parametrize("kappa", [0.01, 0.04, 0.5])
@pytest.mark.parametrize("degree", RECIPROCAL_DEGREES)
def test_reciprocal_factors(degree: int, kappa: float) -> None:
    """2 eta lambda P(Theta - s) for s in [0, (1 - kappa) Theta], to 2^-38 of the scale."""
    theta = 10.0
    reciprocal = reciprocal_approximation(degree, kappa * theta, theta).polynomial
    rule = Barrier(rounds=1, learning_rate=0.5, theta=theta, weight=0.1, reciprocal=reciprocal)
    s = np.linspace(0, (1 - kappa) * theta, 20001)
    factors = pull_factors(rule)
    product = evaluated(factors, s).value * factors.leading
    wanted = 2 * 0.5 * 0.1 * reciprocal(theta - s)
    error = np.log2(np.abs(product - wanted).max() / np.abs(wanted).max())
    assert error <= -38, f"log2 error {error:.1f}"


@pytest.mark.parametrize("radius", [0.5, 3.0, 10.0])
@pytest.mark.parametrize("degree", EXPONENTIAL_DEGREES)
def test_factors_of_any_link(degree: int, radius: float) -> None:
    """p(0) + leading prod factors(t) is p, to 2^-34 of its largest term, in a sigmoid's levels."""
    p = exponential_approximation(degree, radius).polynomial
    found = evaluated(link_factors(p), GRID)
    product = found.value * link_factors(p).leading + p.coefficients[0]
    scale = max(map(abs, p.coefficients))
    error = np.log2(np.abs(product - p(GRID * radius)).max() / scale)
    assert error <= -34, f"log2 error {error:.1f}"
    # z' at 1, the product, then the mask.
    sigmoid = sigmoid_approximation(degree + 1 - degree % 2, 8.0).polynomial
    assert 1 + found.level + 1 == gradient_levels(p) <= gradient_levels(sigmoid)


def test_a_symmetric_link_is_no_general_one() -> None:
    """Half as many factors, in t^2: masks and digests hang on its leading coefficient."""
    p = sigmoid_approximation(7, 8.0).polynomial
    assert link_factors(p) == FactoredPolynomial.from_coefficients(p.coefficients[1::2])


@pytest.mark.parametrize(
    ("degree", "levels"), [(3, 4), (5, 5), (7, 5), (9, 6), (11, 6), (13, 6), (15, 6)]
)
def test_gradient_levels(degree: int, levels: int) -> None:
    """4, 5, 5, 6, 6, 6, 6: inner product, square, factors, mask."""
    link = sigmoid_approximation(degree, 8.0).polynomial
    assert gradient_levels(link) == levels
    # z' at 1, u and x' z' at 2, then the product, then the mask.
    assert 2 + evaluated(link_factors(link), GRID).level + 1 == levels


@pytest.mark.parametrize(("degree", "levels"), [(1, 2), (2, 3), (3, 3), (4, 4)])
def test_barrier_levels(degree: int, levels: int) -> None:
    """|w|^2 beside c w, then the factors."""
    reciprocal = reciprocal_approximation(degree, 0.4, 10.0).polynomial
    rule = Barrier(rounds=1, learning_rate=0.5, theta=10.0, weight=0.1, reciprocal=reciprocal)
    assert rule.levels() == levels
    assert 1 + evaluated(pull_factors(rule), GRID).level == levels


# -- any polynomial ------------------------------------------------------------------------------

ROOTS = st.floats(-2, 2).map(lambda x: round(x, 2))


@given(
    st.lists(ROOTS, max_size=3),
    st.lists(st.tuples(ROOTS, st.floats(0.1, 2)), max_size=2),
    st.floats(0.1, 10),
)
def test_any_real_polynomial(
    real: list[float], pairs: list[tuple[float, float]], leading: float
) -> None:
    """Real and complex roots, simple or close, in any number; leading kept exactly."""
    roots = [*real, *(r for a, b in pairs for r in (complex(a, b), complex(a, -b)))]
    coefficients = leading * np.atleast_1d(np.poly(roots))[::-1].real
    factors = FactoredPolynomial.from_coefficients(coefficients.tolist())
    assert factors.leading == coefficients[-1]
    assert degree_of(factors) == len(roots)
    assert len(factors.roots) == len(roots) % 2
    exact = np.polynomial.polynomial.polyval(GRID, coefficients)
    # A root of multiplicity 3 is found to 2^-53/3 only.
    scale = np.abs(coefficients).sum()
    found = factors.leading * evaluated(factors, GRID).value
    np.testing.assert_allclose(found, exact, atol=1e-9 * scale)


@pytest.mark.parametrize(
    "roots",
    [(0.5, 0.5), (0.0, 0.0), (1.0, 1.0, 1.0), (0.3, 0.3, -0.7, -0.7), (1j, -1j, 1j, -1j)],
)
def test_multiple_roots(roots: tuple[complex, ...]) -> None:
    """Repeated real and repeated complex roots keep degree and values."""
    coefficients = np.poly(roots)[::-1].real
    factors = FactoredPolynomial.from_coefficients(coefficients.tolist())
    exact = np.polynomial.polynomial.polyval(GRID, coefficients)
    assert degree_of(factors) == len(roots)
    np.testing.assert_allclose(evaluated(factors, GRID).value, exact, atol=1e-8)


@pytest.mark.parametrize("degree", range(0, 12))
def test_depth_is_what_the_products_take(degree: int) -> None:
    """depth() is the level of vector * r(u), and the least possible for real factors."""
    rng = np.random.default_rng(degree)
    coefficients = rng.normal(size=degree + 1)
    factors = FactoredPolynomial.from_coefficients(coefficients.tolist())
    result = evaluated(factors, GRID)
    assert result.level == depth(factors)
    # A product of degree + 1 operands in u and vector cannot take fewer levels.
    assert depth(factors) == int(np.ceil(np.log2(degree + 1)))
    wanted = np.polynomial.polynomial.polyval(GRID, coefficients) / factors.leading
    np.testing.assert_allclose(result.value, wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max())


@pytest.mark.parametrize("coefficients", [(), (0.0,), (1.0, 2.0, 0.0)])
def test_a_zero_leading_coefficient(coefficients: tuple[float, ...]) -> None:
    """The degree must be what it says."""
    with pytest.raises(ParameterError, match="leading coefficient"):
        FactoredPolynomial.from_coefficients(coefficients)


@pytest.mark.parametrize(
    ("coefficients", "center"),
    [
        ((0.5,), 0.0),  # a constant
        ((0.4, 0.2, 0.1, 0.0), 0.0),  # leading coefficient zero
        ((0.5, 0.2, 0.0, -0.1), 1.0),  # not around 0
        ((0.5, 0.2, 0.0, 0.0), 0.0),  # leading coefficient zero
    ],
)
def test_a_link_that_the_circuit_cannot_evaluate(
    coefficients: tuple[float, ...], center: float
) -> None:
    """A polynomial of degree >= 1 around 0, or ParameterError."""
    link = Polynomial(coefficients=coefficients, center=center, radius=8.0)
    with pytest.raises(ParameterError):
        link_factors(link)
