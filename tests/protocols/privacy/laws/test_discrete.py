"""The integer sampler follows its law, and 5 % more or less would be noticed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from protocols.errors import ParameterError
from protocols.privacy.laws import SystemRandomness, discrete
from protocols.privacy.laws.rational import as_ratio, discrete_gaussian
from protocols.privacy.laws.seeded import SeededRandomness
from tests.protocols.privacy.checks import (
    gaussian_accepted,
    pmf_accepted,
)

SMALL = [Fraction(1, 3), 0.5, 1, 3.7, Fraction(22, 7), 11]
LARGE = [2.0**12 + 0.37, 2**20, 2.0**31 + 0.25, 2**40]
N = 60_000


@pytest.mark.parametrize("sigma", SMALL)
def test_small_gaussian_has_the_exact_pmf(sigma: Fraction | float) -> None:
    values = discrete_gaussian(sigma, N, SeededRandomness(11))
    k = np.arange(-80, 81)
    assert pmf_accepted(values, -(k**2) / (2 * float(sigma) ** 2), -80)
    for factor in (0.95, 1.05):
        assert not pmf_accepted(values, -(k**2) / (2 * (factor * float(sigma)) ** 2), -80)


@pytest.mark.parametrize("sigma", LARGE)
def test_large_gaussian_is_gaussian(sigma: float) -> None:
    values = discrete_gaussian(sigma, N, SeededRandomness(13)) / sigma
    assert gaussian_accepted(values, 1.0)
    assert not gaussian_accepted(values, 0.95)
    assert not gaussian_accepted(values, 1.05)


def test_low_order_bits_carry_nothing() -> None:
    values = discrete_gaussian(2**30, N, SeededRandomness(15))
    assert pmf_accepted(values & 15, np.zeros(16), 0)


def test_degenerate_scales() -> None:
    assert not discrete_gaussian(0, 100, SystemRandomness()).any()
    assert discrete_gaussian(5, 0, SystemRandomness()).size == 0
    assert np.abs(discrete_gaussian(1e-300, 100, SystemRandomness())).max() == 0


@pytest.mark.parametrize("scale", [-1, 2.0**41, float("nan"), float("inf")])
def test_impossible_scales_are_refused(scale: float) -> None:
    with pytest.raises(ParameterError, match="scale"):
        discrete_gaussian(scale, 1, SystemRandomness())


def test_rounding_of_a_scale_only_adds_noise() -> None:
    for value in (1e-9, 0.1, 1.1, 12345.678, 2.0**40 - 2.0**-12, Fraction(10**17 + 1, 10**17)):
        a, b = as_ratio(value)
        assert Fraction(a, b) >= Fraction(value)
        assert a < 1 << 54
        assert b <= 1 << 52
        assert a / b == pytest.approx(float(value), rel=1e-6)


def test_units_of_a_grid_are_drawn_as_any_number() -> None:
    """The kernel's sampler takes integers alone; of the same words both give the same."""
    for sigma in (1, 1 << 31):
        own = discrete.discrete_gaussian(sigma, 500, SeededRandomness(2))
        assert (own == discrete_gaussian(float(sigma), 500, SeededRandomness(2))).all()
    for sigma in (1.0, -1, (1 << 40) + 1):
        with pytest.raises(ParameterError, match="scale"):
            discrete.discrete_gaussian(sigma, 1, SeededRandomness(2))  # type: ignore[arg-type]
