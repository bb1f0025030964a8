"""No pair of neighbours moves the sum by more than Delta; wrong Deltas are noticed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from protocols.errors import ParameterError
from protocols.numerics.approximation import Polynomial, sigmoid_approximation
from protocols.privacy.certificates.sensitivity import Sensitivity, diameter
from tests.support.helpers import signed_plan

PAIRS = 120_000
M = 14


def _unit(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    directions = rng.standard_normal(shape)
    units: NDArray[np.float64] = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    return units


def _gradients(
    p: Polynomial, w: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]
) -> NDArray[np.float64]:
    z = np.einsum("ij,ij->i", w, x)
    residual: NDArray[np.float64] = p(z) - y
    gradient: NDArray[np.float64] = residual[:, None] * x
    return gradient


def _largest_move(
    p: Polynomial, bound: float, radius: float, seed: int, signed: bool = False
) -> float:
    """The largest change of the sum over PAIRS neighbours; the other rows and the noise cancel.

    Half of the pairs are drawn at random, half sit on the boundary: |w| = R, |x| = B, the two rows
    at opposite angles from w.
    """
    rng = np.random.default_rng(seed)
    half = PAIRS // 2
    w = _unit(rng, (PAIRS, M)) * radius
    w[:half] *= rng.random((half, 1))
    x, other = (_unit(rng, (PAIRS, M)) * bound for _ in range(2))
    x[:half] *= rng.random((half, 1)) ** (1 / M)
    y, other_y = (rng.integers(0, 2, PAIRS).astype(float) for _ in range(2))
    along = w[half:] / radius
    across = x[half:] - np.einsum("ij,ij->i", x[half:], along)[:, None] * along
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    angle = np.linspace(0, math.pi, PAIRS - half)[:, None]
    x[half:] = bound * (np.cos(angle) * along + np.sin(angle) * across)
    other[half:] = bound * (np.cos(angle) * along - np.sin(angle) * across)
    x[half:][y[half:] == 1] *= -1  # a row with label 1 is its mirror image with label 0
    other[half:][other_y[half:] == 1] *= -1
    if signed:
        plan = signed_plan(p, M)
        (x, y), (other, other_y) = plan.encode(x, y), plan.encode(other, other_y)
    # the same noise and the same other rows on both sides: they cancel exactly
    move = _gradients(p, w, x, y) - _gradients(p, w, other, other_y)
    return float(np.linalg.norm(move, axis=1).max())


@pytest.mark.parametrize("degree", [3, 7])
@pytest.mark.parametrize("radius", [1.0, 4.0])
def test_no_pair_exceeds_delta(degree: int, radius: float) -> None:
    bound = math.sqrt(M)
    approximation = sigmoid_approximation(degree, bound * radius)
    p = approximation.polynomial
    paper = Sensitivity(
        norm_bound=bound, approximation_error=approximation.max_error, features=M
    ).total
    tight = diameter(p, norm_bound=bound, radius=radius)
    worst = _largest_move(p, bound, radius, seed=degree)
    assert worst <= tight <= paper
    if radius == 4.0:
        assert worst >= 0.985 * tight


@pytest.mark.parametrize("degree", [7, 15])
@pytest.mark.parametrize("radius", [1.0, 4.0])
def test_no_pair_exceeds_delta_where_rows_are_signed(degree: int, radius: float) -> None:
    """Labels of both kinds, as a plan encodes them; unsigned ones would move twice as much."""
    bound = math.sqrt(M)
    p = sigmoid_approximation(degree, bound * radius, "saturating").polynomial
    tight = diameter(p, norm_bound=bound, radius=radius)
    worst = _largest_move(p, bound, radius, seed=degree, signed=True)
    assert 0.98 * tight <= worst <= tight < 1.3 * bound
    assert _largest_move(p, bound, radius, seed=degree) > 1.2 * tight


@pytest.mark.parametrize("coefficients", [(0.6, 0.1, 0.0, 3.0), (3.0, 0.1, 0.0, 0.1)])
def test_a_residual_that_changes_its_sign(coefficients: tuple[float, ...]) -> None:
    """p far above 1: a row pushes the other way, and both ends count."""
    p = Polynomial(coefficients=coefficients, center=0.0, radius=2.0)
    worst = _largest_move(p, 1.0, 2.0, seed=1, signed=True)
    tight = diameter(p, norm_bound=1.0, radius=2.0)
    largest = max(abs(1 - p(z)) for z in (-2.0, 2.0))
    assert worst <= tight <= 2 * largest + 1e-6
    with pytest.raises(ParameterError, match="around 0"):
        diameter(replace(p, center=1.0), norm_bound=1.0, radius=1.0)


def test_mutants_are_noticed() -> None:
    bound, radius = math.sqrt(M), 4.0
    approximation = sigmoid_approximation(7, bound * radius)
    p = approximation.polynomial
    worst = _largest_move(p, bound, radius, seed=1)
    delta = diameter(p, norm_bound=bound, radius=radius)
    assert worst * 1.185 > delta, "a gradient 1.185 times too large"
    one_sided = delta / 2
    assert worst > one_sided, "sensitivity without the factor 2"
    without_bias = diameter(p, norm_bound=math.sqrt(M - 1), radius=radius)
    assert worst > without_bias, "bias column not counted"
    e_f = approximation.max_error
    paper = Sensitivity(norm_bound=bound, approximation_error=e_f, features=M).exact
    assert paper == 2 * (1 + e_f) * math.sqrt(14)
    halved = Sensitivity(norm_bound=bound / 2, approximation_error=e_f, features=M).exact
    assert worst > halved, "paper's sensitivity without the factor 2"


def test_encryption_error_widens() -> None:
    plain = Sensitivity(norm_bound=1.0, approximation_error=0.1, features=9)
    widened = Sensitivity(
        norm_bound=1.0, approximation_error=0.1, features=9, encryption_error=0.01
    )
    assert plain.total == plain.exact
    assert widened.total == pytest.approx(plain.total + 2 * 0.01 * 3)


def test_the_diameter_between_its_limits() -> None:
    for radius in (0.01, 3.0, 10.0, 30.0):
        p = sigmoid_approximation(15, 2.0 * radius).polynomial
        e_f = sigmoid_approximation(15, 2.0 * radius).max_error
        value = diameter(p, norm_bound=2.0, radius=radius)
        assert 2.0 <= value <= 2 * (1 + e_f) * 2.0
        assert value == pytest.approx(
            2
            * diameter(
                sigmoid_approximation(15, 2.0 * radius).polynomial,
                norm_bound=1.0,
                radius=2 * radius,
            ),
            rel=1e-9,
        )


@pytest.mark.parametrize(
    ("field", "value"),
    [("norm_bound", -1.0), ("approximation_error", math.nan), ("encryption_error", -1e-9)],
)
def test_impossible_fields_are_refused(field: str, value: float) -> None:
    good = {"norm_bound": 1.0, "approximation_error": 0.0, "encryption_error": 0.0}
    with pytest.raises(ParameterError, match=field):
        Sensitivity(features=3, **{**good, field: value})
    with pytest.raises(ParameterError, match="features"):
        Sensitivity(features=0, **good)
