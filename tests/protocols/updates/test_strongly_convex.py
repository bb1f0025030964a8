"""Nesterov with constant momentum against its textbook form, its rate, and its responses."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from protocols.errors import ParameterError
from protocols.fields import from_fields
from protocols.privacy.schedule import optimal_bound
from protocols.updates.strongly_convex import StronglyConvexNesterov
from tests.protocols.updates.textbook import levels_used, nesterov, response, run

RNG = np.random.default_rng(6)
SPECTRUM = np.array([0.05, 0.3, 2.0])
CENTRE = RNG.standard_normal(3)
START = RNG.standard_normal(3)
RULE = StronglyConvexNesterov(rounds=40, mu=0.05, smoothness=2.0)
BUDGET = {"sensitivity": 1e-4, "budget": 1.0, "dim": 20, "initial_error": 10.0}


def _gradient(w: np.ndarray) -> np.ndarray:
    return SPECTRUM * (w - CENTRE)


@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_equals_the_textbook_in_every_iteration(scale: float) -> None:
    rule = replace(RULE, step_scale=scale)
    expected = nesterov(_gradient, START, [scale / 2.0] * 40, [1] * 40, 0.05)
    found = [w / rule.scale(t) for t, w in enumerate(run(rule, _gradient, START))]
    assert np.allclose(found, expected, rtol=0, atol=1e-12)
    assert rule.scale(39) == 1.0


def test_the_ridge_is_the_rule_s_or_the_oracle_s() -> None:
    own = run(replace(RULE, ridge=0.04), lambda w: _gradient(w) - 0.04 * w, START)[-1]
    assert np.allclose(own, run(RULE, _gradient, START)[-1], rtol=0, atol=1e-12)


def test_converges_at_the_predicted_rate_and_not_faster() -> None:
    """Double root at mu: x_T = z^T (1 + T (1 - z)) x_0 along it."""
    rule = replace(RULE, rounds=120)
    found = run(rule, lambda w: 0.05 * w, np.ones(1))[-1]
    z = 1 - math.sqrt(0.5 * 0.05)
    assert math.isclose(float(found[0]), z**120 * (1 + 120 * (1 - z)), rel_tol=1e-5)


@pytest.mark.parametrize("ridge", [0.0, 0.02, 0.05])
def test_noise_gain_is_the_response_at_the_ridge_and_the_largest(ridge: float) -> None:
    rule = replace(RULE, ridge=ridge, rounds=30)
    flat = np.array([response(rule, 0.0, t) for t in range(30)])
    assert math.isclose(rule.noise_gain(), float(np.linalg.norm(flat)), rel_tol=1e-12)
    for curvature in np.linspace(0.0, 2.0 - ridge, 25):
        bent = [response(rule, float(curvature), t) for t in range(30)]
        assert np.linalg.norm(bent) <= rule.noise_gain() * (1 + 1e-9)


def test_levels_are_what_a_step_uses() -> None:
    assert RULE.levels() == levels_used(RULE) == levels_used(replace(RULE, ridge=0.05))


def test_uniform_and_divided_budgets() -> None:
    """a_t grows by 1 / (1 - sqrt(mu alpha)) per iteration: shares by its third or second root."""
    assert RULE.noise_shares() == (1 / 40,) * 40
    growth = 1 / (1 - math.sqrt(0.5 * 0.05))
    for division, root in (("laplace", 3), ("gaussian", 2)):
        shares = np.array(replace(RULE, division=division).noise_shares())
        assert math.isclose(shares.sum(), 1.0, rel_tol=1e-12)
        assert np.allclose(shares[1:] / shares[:-1], growth ** (1 / root), rtol=1e-12)


@pytest.mark.parametrize("division", ["laplace", "gaussian"])
def test_shortened_takes_the_smallest_bound(division: str) -> None:
    rule = replace(RULE, rounds=300, division=division)
    best = rule.shortened(**BUDGET)
    bounds = [
        optimal_bound(replace(rule, rounds=t).log_error_weights(), mechanism=division, **BUDGET)
        for t in range(1, 301)
    ]
    assert 1 < best.rounds < 300
    assert best == replace(rule, rounds=int(np.argmin(bounds)) + 1)


def test_a_uniform_division_has_no_best_length() -> None:
    with pytest.raises(ParameterError, match="mechanism='uniform'"):
        RULE.shortened(**BUDGET)


def test_plan() -> None:
    rule = replace(RULE, ridge=0.05, division="laplace")
    fields = json.loads(json.dumps(rule.to_dict()))
    assert fields.pop("kind") == "nag-sc"
    assert from_fields(StronglyConvexNesterov, fields) == rule
    assert rule.in_units(8.0) is rule


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rounds", 0),
        ("mu", 0.0),
        ("mu", 2.0),
        ("smoothness", math.inf),
        ("step_scale", 1.5),
        ("step_scale", 0.0),
        ("ridge", 0.06),
        ("ridge", -0.01),
        ("division", "gamma"),
    ],
)
def test_wrong_fields_are_refused(field: str, value: object) -> None:
    with pytest.raises(ParameterError, match=field):
        replace(RULE, **{field: value})
