"""What a state holds of an iteration's gradient, against the rules run on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from protocols.curvature import Curvature, largest_row_sum
from protocols.updates.momentum import HeavyBall
from protocols.updates.quadratic import QuadraticNesterov
from protocols.updates.rule import distinct, gradient_factors
from tests.helpers import make_rule

CURVATURE = Curvature.for_rows(largest_row_sum(3, columns=[1.0] * 3), offset=0.02, error=1e-3)
RULES: dict[str, Any] = {
    **{name: make_rule(name, 5) for name in ("barrier-1", "barrier-4", "nag", "gd", "ridge")},
    "hb": HeavyBall(rounds=5, learning_rate=0.3, momentum=0.6, ridge=0.1),
    "hb at rest": HeavyBall(rounds=5, learning_rate=0.3, momentum=0.0),
    "quadratic": QuadraticNesterov(rounds=5, curvature=CURVATURE),
    "one round": make_rule("nag", 1),
}


@pytest.mark.parametrize("name", RULES)
def test_factors_are_the_derivatives_by_the_gradient(name: str) -> None:
    """Every vector of the next state, once: the change by a gradient of 1 instead of 0."""
    rule, rng = RULES[name], np.random.default_rng(1)
    found = gradient_factors(rule)
    assert len(found) == rule.rounds
    state: Any = rule.start(rng.normal(0, 0.1, 3))
    for t, factors in enumerate(found):
        ends = [rule.step(t, state, lambda w, step, g=g: step * g * np.ones(3)) for g in (0.0, 1.0)]
        if t + 1 == rule.rounds:
            ends = [(rule.weights(end),) for end in ends]
        moved = [one - zero for zero, one in zip(*ends, strict=True)]
        each = distinct(ends[1])
        assert len(each) == len(factors)
        for vector, factor in zip(each, factors, strict=True):
            at = next(k for k, other in enumerate(ends[1]) if other is vector)
            np.testing.assert_allclose(moved[at], factor or 0.0, rtol=1e-12, atol=1e-15)
        state = ends[0]


def test_a_sum_of_two_gradients_is_refused() -> None:
    """They would be two column sums: no refresh makes both."""

    class Greedy:
        rounds = 1

        def start(self, weights: Any) -> Any:
            return (weights,)

        def step(self, t: int, state: Any, gradient: Any) -> Any:
            return (gradient(state[0], 1.0) + gradient(state[0], 1.0),)

        def weights(self, state: Any) -> Any:
            return state[0]

    with pytest.raises(AssertionError, match="two gradients"):
        gradient_factors(Greedy())  # type: ignore[arg-type]
