"""Every coordinate update minimises what it says, found by brute force; clipping bounds it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from parties.kernel.sums.dual_steps import EDGE, STEPS, Loss, clipped, dual_step


def conjugate(loss: Loss, alpha: float, y: float) -> float:
    """l*(-alpha), from the definition of each loss."""
    if loss == "ridge":
        return 0.5 * alpha**2 - y * alpha
    b = y * alpha
    if loss == "svm":
        return -b if -1e-12 <= b <= 1 + 1e-12 else np.inf
    return float(b * np.log(b) + (1 - b) * np.log(1 - b)) if 0 < b < 1 else np.inf


def best_zeta(loss: Loss, alpha: float, margin: float, y: float, c: float) -> float:
    """The minimiser of l*(-alpha - zeta) + m zeta + (c/2) zeta^2 by golden section."""

    def objective(zeta: float) -> float:
        return conjugate(loss, alpha + zeta, y) + margin * zeta + 0.5 * c * zeta**2

    ends = (-50.0, 50.0) if loss == "ridge" else sorted((-alpha, y - alpha))
    found = minimize_scalar(objective, bounds=ends, method="bounded", options={"xatol": 1e-12})
    return float(found.x)


@pytest.mark.parametrize("loss", ["ridge", "svm"])
def test_exact_steps_minimise(loss: Loss) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        y = float(rng.normal()) if loss == "ridge" else float(rng.choice([-1.0, 1.0]))
        alpha = float(rng.normal()) if loss == "ridge" else y * float(rng.random())
        margin, c = float(rng.normal()), float(10 ** rng.uniform(-2, 2))
        step = STEPS[loss](np.array([alpha]), np.array([margin]), np.array([y]), c)[0]
        assert step == pytest.approx(best_zeta(loss, alpha, margin, y, c), abs=2e-5)


def test_newton_steps_settle_at_the_minimum() -> None:
    """One step is Newton's; repeated with the margin updated, it ends at the 1-D minimiser."""
    rng = np.random.default_rng(1)
    for _ in range(100):
        y, c = float(rng.choice([-1.0, 1.0])), float(10 ** rng.uniform(-2, 2))
        start, m0 = np.array([y * rng.random()]), rng.normal(size=1)
        label, alpha, margin = np.array([y]), start.copy(), m0.copy()
        for _ in range(60):
            zeta = STEPS["logistic"](alpha, margin, label, c)
            alpha, margin = alpha + zeta, margin + c * zeta
        want = best_zeta("logistic", float(start[0]), float(m0[0]), y, c)
        assert alpha[0] - start[0] == pytest.approx(want, abs=1e-5)


def test_one_newton_step_by_finite_differences() -> None:
    y, alpha, margin, c, h = 1.0, 0.3, -0.4, 2.0, 1e-4

    def objective(zeta: float) -> float:
        return conjugate("logistic", alpha + zeta, y) + margin * zeta + 0.5 * c * zeta**2

    first = (objective(h) - objective(-h)) / (2 * h)
    second = (objective(h) - 2 * objective(0.0) + objective(-h)) / h**2
    step = STEPS["logistic"](np.array([alpha]), np.array([margin]), np.array([y]), c)[0]
    assert step == pytest.approx(-first / second, rel=1e-5)


@pytest.mark.parametrize("outside", [-0.5, 0.0, 1.0, 1.7])
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_logistic_constraint_holds_after_the_step(outside: float, y: float) -> None:
    """From any alpha, whatever the margin; the step carries alpha all the way back."""
    for margin in (-1e6, -1.0, 0.0, 1.0, 1e6):
        alpha = np.array([y * outside])
        zeta = STEPS["logistic"](alpha, np.array([margin]), np.array([y]), 0.5)
        assert EDGE - 1e-15 <= (y * (alpha + zeta))[0] <= 1 - EDGE + 1e-15


def test_clipping_is_the_papers_formula() -> None:
    zeta, c = np.random.default_rng(2).normal(size=1000), 0.7
    expected = zeta / np.maximum(1.0, np.abs(zeta) / c)
    np.testing.assert_allclose(clipped(zeta, c), expected, rtol=1e-15)
    step = dual_step(
        "ridge",
        alpha=np.zeros(2),
        margin=np.zeros(2),
        label=np.array([1e9, -1e9]),
        curvature=1.0,
        clip=0.25,
    )
    assert step.tolist() == [0.25, -0.25]
