"""What enhanced Nesterov promises beyond the contract of `test_contract`, in the clear."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from protocols.errors import ParameterError
from protocols.numerics.approximation import sigmoid_approximation
from protocols.plan.kinds import plan_from_dict
from protocols.rows.curvature import Curvature, largest_row_sum
from protocols.rows.training import PlainGradient, train_plain
from protocols.updates.momentum import GradientDescent, Nesterov
from protocols.updates.quadratic import QuadraticNesterov
from protocols.updates.quadratic_descent import QuadraticDescent
from tests.protocols.updates import cases
from tests.protocols.updates.cases import FEATURES, fields_of
from tests.protocols.updates.test_contract import check_the_same
from tests.support.helpers import NOISE, make_plan

D, N = 6, 60
LINK = sigmoid_approximation(5, 8.0).polynomial
CURVATURE = Curvature.for_rows(largest_row_sum(D, columns=[1.0] * D), offset=0.01)


def data(seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows with negative entries and a zero column, labels, noise of 8 rounds)."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (N, D))
    x[:, 2], x[:, -1] = 0.0, 1.0
    y = (x @ rng.normal(0, 2, D) + rng.logistic(size=N) > 0).astype(float)
    return x, y, rng.normal(0, 0.05, (8, D))


def train(rule: Any, noise: bool = True, preconditioner: Any = 1.0) -> np.ndarray:
    x, y, chi = data()
    gradient = PlainGradient(x, y, chi if noise else np.zeros_like(chi), LINK, preconditioner)
    return train_plain(rule, gradient, D)


def quadratic(**changes: Any) -> QuadraticNesterov:
    return QuadraticNesterov(**({"rounds": 4, "curvature": CURVATURE} | changes))


@pytest.mark.parametrize("kind", ["quadratic-nag", "quadratic-gd"])
def test_a_preconditioner_and_privacy_are_no_plan(kind: str) -> None:
    """Whoever makes it, from Python or from a message; the cure is in the words."""
    plan = make_plan(features=FEATURES, update=fields_of(kind))
    with pytest.raises(ParameterError, match=f"with update={kind!r}.*--update quadratic-gd"):
        replace(plan, privacy=NOISE)
    stated = replace(plan, update=fields_of("gd"), privacy=NOISE).to_dict()
    with pytest.raises(ParameterError, match="not noised"):
        plan_from_dict({**stated, "update": fields_of(kind)})


# -- enhanced Nesterov ---------------------------------------------------------------------------


def test_the_polynomial_inverse_moves_the_model_by_its_error() -> None:
    """Weights with the exact and the certified inverse, for errors 1e-1 … 1e-6."""
    x, _, _ = data()
    exact = train(quadratic(), preconditioner=1 / CURVATURE.bound(x))
    for error in (1e-1, 1e-3, 1e-6):
        rough = replace(CURVATURE, error=error)
        weights = train(quadratic(), preconditioner=rough.preconditioner(x))
        assert np.abs(weights - exact).max() <= 20 * rough.inverse.relative_error


def test_a_constant_rate_and_momenta_of_fista_are_nesterovs() -> None:
    rates = {"learning_rate": 1.5, "decay": 1.0, "first_alpha": 1.0}
    rule = QuadraticNesterov(rounds=8, curvature=cases.CURVATURE, **rates)
    check_the_same(rule, Nesterov(rounds=8, learning_rate=1.5))


def test_an_identity_preconditioner_is_none() -> None:
    rule = QuadraticDescent(rounds=9, curvature=cases.CURVATURE, learning_rate=1.5)
    check_the_same(rule, GradientDescent(rounds=9, learning_rate=1.5))


def loss(z: np.ndarray, y: np.ndarray) -> float:
    return float(np.logaddexp(0, np.where(y > 0, -z, z)).mean())


@pytest.mark.parametrize("rounds", [4, 10])
def test_faster_than_nesterov_on_columns_of_unequal_size(rounds: int) -> None:
    """Breast cancer, most columns a fifth of the others; plain steps at their largest, 1 / L."""
    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.min(axis=0)) / np.ptp(x, axis=0) * np.repeat([0.2, 1.0], [20, 10])
    x = np.c_[x, np.ones(len(x))]
    curvature = Curvature.for_rows(largest_row_sum(31, columns=[1.0] * 31), offset=0.002)
    largest = 0.25 * np.linalg.eigvalsh(x.T @ x / len(x)).max()

    def trained(rule: Any, preconditioner: Any) -> float:
        gradient = PlainGradient(x, y, np.zeros((rounds, 31)), LINK, preconditioner)
        return loss(x @ train_plain(rule, gradient, 31), y)

    enhanced = trained(quadratic(rounds=rounds, curvature=curvature), curvature.preconditioner(x))
    plain = trained(Nesterov(rounds=rounds, learning_rate=1 / largest), 1.0)
    assert enhanced < plain - 0.01 < math.log(2) - 0.01


def test_no_error_is_amplified() -> None:
    """Errors of W between iterations reach w_T by less than themselves, though 1 / (1 + m_0) = 99.

    v's reach it by the momentum's response.
    """
    rule = quadratic(rounds=8)
    x, _, _ = data()

    def outcome(position: int, when: int) -> np.ndarray:
        gradient = PlainGradient(x, np.zeros(N), np.zeros((8, D)), lambda z: 0.0 * z)
        state = rule.start(np.zeros(D))
        for t in range(8):
            move = gradient(rule.point(state), rule.gradient_factor(t))
            state = rule.step(move, state, t)
            if len(state) == 1:
                state = state * 2  # v and W are one vector: tell their errors apart
            if t == when:
                state = tuple(s + (k == position) for k, s in enumerate(state))
        return rule.weights(state)

    assert 1 / (1 + rule.momenta[0]) == pytest.approx(99, rel=0.02)
    for when in range(7):
        # With a zero gradient w_T is linear in the error; 3.1 is FISTA's sum of velocities.
        assert np.abs(outcome(1, when)).max() <= 1.5
        assert np.abs(outcome(0, when)).max() <= 3.1
    assert np.abs(outcome(1, 0)).max() <= 0.02


@pytest.mark.parametrize("size", [0.3, 1.0, 3.0])
def test_the_inverse_gain_is_attained(size: float) -> None:
    """A column as small as the bound's worst, and residuals of 1: its weight moves, no further."""
    low, high = 0.01, 1.01
    curvature = Curvature(offset=low, high=high)
    rule = quadratic(rounds=1, curvature=curvature)
    x = np.full((50, 1), size * math.sqrt(4 * low))

    def outcome(error: float) -> float:
        b = curvature.bound(x) / (1 + error)
        gradient = PlainGradient(x, np.ones(50), np.zeros((1, 1)), lambda z: 0.0 * z, 1 / b)
        return float(train_plain(rule, gradient, 1)[0])

    moved = abs(outcome(1e-9) - outcome(0.0)) / 1e-9
    assert moved <= rule.inverse_gain * (1 + 1e-6)
    if size == 1.0:
        assert moved > 0.99 * rule.inverse_gain


def test_the_path_bounds_a_constant_error_of_any_curvature() -> None:
    """Of B^-1 H between 0 and 1: the recursion's own responses."""
    for alpha, rate in ((0.01, 2.0), (1.0, 1.0)):
        rule = quadratic(rounds=6, first_alpha=alpha, learning_rate=rate)
        for curvature in np.linspace(0, 1, 33):
            pairs = zip(rule.rates, rule.responses(float(curvature)), strict=True)
            assert sum(rate * abs(r) for rate, r in pairs) <= rule.path * (1 + 1e-12)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            {"schedule": "harmonic", "learning_rate": 11.0},
            r"rates above 3 diverge \(1 \+ 10/\(1 \+ t\)",
        ),
        ({"learning_rate": 3.1}, "rates above 3 diverge"),
        ({"learning_rate": 2.2, "decay": 1.0}, r"2.2.*constant rate is outside \[1, 2\]"),
        ({"learning_rate": 0.9}, "below 1"),
    ],
)
def test_refusals(change: dict[str, Any], match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        quadratic(**change)
