"""The polynomial inverse: its certificate against exact rationals and against dense sampling."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import ParameterError
from protocols.numerics.inverse import MAX_RATIO, WOBBLE, InversePlan, plan_inverse

RATIOS = (1.01, 1.5, 10.0, 250.0, 2500.0, 4000.0)


def dense(plan: InversePlan) -> np.ndarray:
    """|b invert(b) - 1| on 400,001 points, log and linear, both ends included."""
    b = np.concatenate(
        [np.geomspace(plan.low, plan.high, 200_001), np.linspace(plan.low, plan.high, 200_000)]
    ).clip(plan.low, plan.high)
    return np.abs(b * plan.invert(b) - 1)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("error", [1e-1, 1e-3, 1e-5])
def test_the_certified_error_holds_and_is_tight(ratio: float, error: float) -> None:
    """On the whole range, and exceeds what is attained by the wobble's allowance only.

    So it does in exact arithmetic, with no widening at all: condition after each step kappa <-
    (1 + kappa)^2 / (4 kappa). No b gives more than `largest`, about 1 / low.
    """
    plan = plan_inverse(0.37, 0.37 * ratio, error)
    attained = float(dense(plan).max())
    assert attained <= plan.relative_error <= error
    assert plan.relative_error <= attained + 1e-7
    kappa = Fraction(ratio)
    for _ in plan.steps:
        kappa = Fraction(math.nextafter(float((1 + kappa) ** 2 / (4 * kappa)), 0))
    ideal = float((kappa - 1) / (kappa + 1))
    assert ideal <= plan.relative_error <= ideal + 1e-7
    results = plan.invert(np.linspace(plan.low, plan.high, 100_001))
    assert results.min() > 0 and results.max() <= plan.largest
    assert error > 1e-2 or plan.largest <= 1.01 / plan.low
    assert plan.largest / plan.factor <= 1.1 * (1 + error) * ratio


@given(st.floats(1.001, 4e3), st.floats(0, 1), st.floats(1e-5, 0.5))
def test_any_number_of_any_range(ratio: float, where: float, error: float) -> None:
    """Against rationals: the same steps in exact arithmetic on one point."""
    plan = plan_inverse(2.0, 2.0 * ratio, error)
    b = Fraction(min(plan.low * ratio**where, plan.high))
    beta = b / Fraction(plan.high)
    y = Fraction(1)
    for step in plan.steps:
        y *= 2**step.doublings * (Fraction(step.shift) - beta * y)
    exact = b * y * Fraction(plan.factor)
    assert abs(exact - 1) <= Fraction(plan.relative_error)
    assert abs(float(b) * plan.invert(float(b)) - float(exact)) < 1e-10


@pytest.mark.parametrize("seed", range(3))
def test_errors_of_every_product_are_covered(seed: int) -> None:
    """Errors of WOBBLE in every product and in b, signs at random, stay within the certificate.

    They exceed what exact arithmetic attains: the allowance is needed.
    """
    plan = plan_inverse(1.0, 4000.0, 1e-6)
    rng = np.random.default_rng(seed)
    b = np.geomspace(1.0, 4000.0, 100_001)

    def wrong() -> np.ndarray:
        return WOBBLE * rng.choice([-1.0, 1.0], b.shape)

    beta = b / plan.high + wrong()
    y, u = np.ones_like(b), beta
    for k, step in enumerate(plan.steps):
        if k + 1 == len(plan.steps):
            u = beta * y + wrong()
        w = 2**step.doublings * (step.shift - u)
        y, u = y * w + wrong(), u * w + wrong()
    attained = np.abs(b * y * plan.factor - 1).max()
    assert dense(plan).max() + 1e-9 < attained <= plan.relative_error


@pytest.mark.parametrize("budget", range(4, 12))
@pytest.mark.parametrize("ratio", RATIOS)
def test_refreshes_come_when_levels_run_out(budget: int, ratio: float) -> None:
    """Replayed by hand: never below the budget, never while a level is left."""
    plan = plan_inverse(1.0, ratio, 1e-3)
    level, pauses, last = 1, plan.pauses(budget), len(plan.steps) - 1
    for k in range(last):
        assert (k in pauses) == (level == budget)
        level = 1 if k in pauses else level + 1
    assert (last in pauses) == (level + 2 > budget)
    sizes = plan.refreshes(budget)
    assert len(sizes) == len(pauses) + 1 and sizes[-1] == 1 and set(sizes) <= {1, 2}


@pytest.mark.parametrize(
    ("low", "high", "error", "match"),
    [
        (0.0, 1.0, 1e-3, "low=0.0"),
        (2.0, 1.0, 1e-3, "need 0 < low < high"),
        (1.0, 2 * MAX_RATIO, 1e-3, "larger offset"),
        (1.0, math.inf, 1e-3, "high=inf"),
        (1.0, math.nan, 1e-3, "high=nan"),
        (1.0, 10.0, 0.0, "error=0.0 is outside"),
        (1.0, 10.0, 1e-13, "out of reach"),
    ],
)
def test_refusals(low: float, high: float, error: float, match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        plan_inverse(low, high, error)
    with pytest.raises(ParameterError, match="levels=3"):
        plan_inverse(1.0, 10.0, 1e-3).pauses(3)
