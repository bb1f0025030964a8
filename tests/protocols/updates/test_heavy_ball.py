"""The heavy ball against its textbook form, gradient descent, and the responses it claims."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from protocols.errors import ParameterError
from protocols.fields import from_fields
from protocols.updates.momentum import GradientDescent, HeavyBall
from tests.protocols.updates.textbook import heavy_ball, levels_used, response, run

RNG = np.random.default_rng(5)
HESSIAN = np.diag([0.1, 0.4, 1.0])
CENTRE = RNG.standard_normal(3)
START = RNG.standard_normal(3)


def _gradient(w: np.ndarray) -> np.ndarray:
    return HESSIAN @ (w - CENTRE) + np.sin(w) / 3


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_equals_the_textbook(beta: float, ridge: float) -> None:
    rule = HeavyBall(rounds=40, learning_rate=0.7, momentum=beta, ridge=ridge)
    expected = heavy_ball(lambda w: _gradient(w) + ridge * w, START, 40, 0.7, beta)
    assert np.allclose(run(rule, _gradient, START), expected, rtol=0, atol=1e-12)


def test_is_a_step_along_the_weighted_mean_of_gradients() -> None:
    """Equations (14) and (15)."""
    alpha, beta, w, mean, expected = 0.5, 0.8, START, np.zeros(3), []
    for _ in range(30):
        mean = beta * mean + (1 - beta) * _gradient(w)
        w = w - alpha / (1 - beta) * mean
        expected.append(w)
    rule = HeavyBall(rounds=30, learning_rate=alpha, momentum=beta)
    assert np.allclose(run(rule, _gradient, START), expected, rtol=0, atol=1e-12)


def test_without_momentum_it_is_gradient_descent() -> None:
    fields = {"rounds": 25, "learning_rate": 0.6, "ridge": 0.2}
    plain, rule = GradientDescent(**fields), HeavyBall(**fields, momentum=0.0)
    assert np.array_equal(run(rule, _gradient, START), run(plain, _gradient, START))
    assert rule.levels() == plain.levels()
    assert math.isclose(rule.noise_gain(), plain.noise_gain())


@pytest.mark.parametrize("beta", [0.0, 0.6, 0.93])
def test_noise_gain_is_the_flat_response_and_the_largest(beta: float) -> None:
    rule = HeavyBall(rounds=24, learning_rate=1.0, momentum=beta)
    flat = [response(rule, 0.0, t) for t in range(24)]
    assert math.isclose(rule.noise_gain(), math.hypot(*flat), rel_tol=1e-12)
    for curvature in np.linspace(0.0, 2 * (1 + beta), 25):
        bent = [abs(response(rule, float(curvature), t)) for t in range(24)]
        assert (np.array(bent) <= np.array(flat) + 1e-9).all()


@pytest.mark.parametrize(("beta", "ridge"), [(0.0, 0.0), (0.5, 0.0), (0.0, 0.2), (0.5, 0.2)])
def test_levels_are_what_a_step_uses(beta: float, ridge: float) -> None:
    rule = HeavyBall(rounds=4, learning_rate=0.5, momentum=beta, ridge=ridge)
    assert rule.levels() == levels_used(rule)


def test_budget_and_plan() -> None:
    rule = HeavyBall(rounds=7, learning_rate=0.5, momentum=0.9, ridge=0.1)
    assert rule.noise_shares() == (1 / 7,) * 7
    assert rule.in_units(8.0) is rule
    fields = json.loads(json.dumps(rule.to_dict()))
    assert fields.pop("kind") == "hb"
    assert from_fields(HeavyBall, fields) == rule


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rounds", 0),
        ("learning_rate", 0.0),
        ("learning_rate", math.nan),
        ("momentum", 1.0),
        ("momentum", -0.1),
        ("ridge", -0.1),
        ("ridge", 2.0),
    ],
)
def test_wrong_fields_are_refused(field: str, value: float) -> None:
    fields = {"rounds": 3, "learning_rate": 0.5, "momentum": 0.5, "ridge": 0.0, field: value}
    with pytest.raises(ParameterError, match=field):
        HeavyBall(**fields)
