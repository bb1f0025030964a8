"""The methods as the paper prints them, and quadratics to run them on: the rules' oracles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.updates.update import Update

Floats = NDArray[np.float64]
Gradient = Callable[[Floats], Floats]


def heavy_ball(
    gradient: Gradient, start: Floats, rounds: int, alpha: float, beta: float
) -> list[Floats]:
    """arXiv:2008.01989, equation (5)."""
    x, before, found = start, start, []
    for _ in range(rounds):
        x, before = x - alpha * gradient(x) + beta * (x - before), x
        found.append(x)
    return found


def nesterov(
    gradient: Gradient, start: Floats, rates: Sequence[float], stages: Sequence[int], mu: float
) -> list[Floats]:
    """Equation (6) with beta from alpha; x_prev = x where a new stage begins."""
    x, before, found = start, start, []
    for t, alpha in enumerate(rates):
        beta = (1 - np.sqrt(alpha * mu)) / (1 + np.sqrt(alpha * mu))
        if t and stages[t] != stages[t - 1]:
            before = x
        z = (1 + beta) * x - beta * before
        x, before = z - alpha * gradient(z), x
        found.append(x)
    return found


def run(rule: Update, gradient: Gradient, start: Floats) -> list[Floats]:
    """`weights` after every iteration."""
    state, found = rule.start(start), []
    for t in range(rule.rounds):
        state = rule.step(t, state, lambda w, step: step * gradient(w))
        found.append(rule.weights(state))
    return found


def response(rule: Update, curvature: float, at: int) -> float:
    """Change of the released weight per unit error of iteration `at`'s weights, by running it.

    The rule computes its weights up to a public factor, so the error is scaled by it.
    """
    factor = rule.scale(at) if hasattr(rule, "scale") else 1.0
    state = rule.start(np.zeros(1))
    for t in range(rule.rounds):
        error = factor if t == at else 0.0
        state = rule.step(t, state, lambda w, step, e=error: step * curvature * w - e)
    return float(rule.weights(state)[0])


@dataclass
class Depth:
    """A vector that only counts levels: a product with a public number costs one."""

    used: int = 0

    def __mul__(self, other: float) -> Depth:
        return Depth(self.used + 1)

    def __add__(self, other: Depth) -> Depth:
        return Depth(max(self.used, other.used))

    __sub__ = __add__


def levels_used(rule: Update) -> int:
    """Most levels of any iteration's state, from fresh vectors and a gradient that costs none."""
    deepest = 0
    for t in range(rule.rounds):
        state = tuple(Depth() for _ in rule.start(Depth()))
        new = rule.step(t, state, lambda w, step: Depth(w.used))
        deepest = max(deepest, *(v.used for v in new))
    return deepest
