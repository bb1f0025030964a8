"""A rule of every kind in the registry, and runs of it: all by the names of its fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.exchange.serialise import to_plain
from protocols.rows.curvature import Curvature, largest_row_sum
from protocols.updates.momentum import Momentum
from protocols.updates.registry import rule_from_dict, rule_named
from protocols.updates.update import Update

Floats = NDArray[np.float64]
FEATURES = 5
CURVATURE = Curvature.for_rows(largest_row_sum(FEATURES, columns=[1.0] * FEATURES), offset=0.02)
VALUES: dict[str, Any] = {
    "rounds": 4,
    "learning_rate": 0.4,
    "ridge": 0.02,
    "momentum": 0.6,
    "curvature": to_plain(CURVATURE),
    "schedule": "harmonic",
    "extra": 0.5,
    "decay": 0.8,
    "first_alpha": 0.02,
    "mu": 0.05,
    "smoothness": 2.0,
    "step_scale": 0.7,
    "division": "laplace",
    "first_stage": 2,
    "p": 2.0,
    "theta": 10.0,
    "weight": 0.05,
    "reciprocal": {"coefficients": [0.5, -1.2, 0.3], "center": 5.2, "radius": 4.8},
    "factor": 0.01,
    "beta1": 0.8,
    "beta2": 0.99,
}
"""A good value of every field that any rule has; none is a default."""


def names_of(kind: str) -> list[str]:
    return [field.name for field in dataclasses.fields(rule_named(kind))]  # type: ignore[arg-type]


def fields_of(kind: str, **changes: Any) -> dict[str, Any]:
    """As in a plan."""
    own = {name: VALUES[name] for name in names_of(kind)}
    if "curvature" in own and issubclass(rule_named(kind), Momentum):
        own["learning_rate"] = 1.5  # over what the curvature's bound allows
    return {"kind": kind, **own, **changes}


def example(kind: str, **changes: Any) -> Update:
    return rule_from_dict(fields_of(kind, **changes))


def suits_ciphertexts(kind: str) -> bool:
    try:
        example(kind).levels()
    except ValueError:
        return False
    return True


def course(rule: Update, gradient: Callable[[int, Floats], Floats], start: Floats) -> list[Floats]:
    """`weights` after every iteration."""
    state, found = rule.start(start), []
    for t in range(rule.rounds):
        move = rule.gradient_factor(t) * gradient(t, rule.point(state))
        state = rule.step(move, state, t)
        found.append(rule.weights(state, t))
    assert np.array_equal(rule.weights(state), found[-1])
    return found


def response(rule: Any, curvature: float, at: int) -> float:
    """Change of the released weight per unit error of iteration `at`'s weights, by running it."""
    state = rule.start(np.zeros(1))
    for t in range(rule.rounds):
        # A look-ahead's sum is its weights times 1 + m.
        error = (1.0 if rule.carries_point else 1 + rule.momenta[t]) if t == at else 0.0
        move = rule.gradient_factor(t) * curvature * rule.point(state)
        state = rule.step(move - error, state, t)
    return float(rule.weights(state)[0])


def responses(rule: Any, curvature: float) -> Floats:
    return np.array([response(rule, curvature, t) for t in range(rule.rounds)])


@dataclass
class Depth:
    """A vector that only counts levels: a product costs one."""

    used: int = 0

    def __mul__(self, other: Any) -> Depth:
        return Depth(max(self.used, getattr(other, "used", 0)) + 1)

    __rmul__ = __matmul__ = __mul__

    def __add__(self, other: Any) -> Depth:
        return Depth(max(self.used, getattr(other, "used", 0)))

    __radd__ = __sub__ = __rsub__ = __add__


def levels_used(rule: Update) -> int:
    """Most levels of any iteration's state, from fresh vectors and a gradient that costs none."""
    deepest, state = 0, rule.start(Depth())
    for t in range(rule.rounds):
        new = rule.step(Depth(), tuple(Depth() for _ in state), t)
        deepest, state = max(deepest, *(v.used for v in new)), new
    return deepest
