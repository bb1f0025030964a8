"""The methods as their sources print them, on arrays: the rules' outside truth.

Each gives the weights after every iteration, for a function (t, w) -> noisy gradient. Nothing here
calls a rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Gradient = Callable[[int, Floats], Floats]


def heavy_ball(
    g: Gradient, w: Floats, *, rounds: int, learning_rate: float, momentum: float, ridge: float
) -> list[Floats]:
    """arXiv:2008.01989, equation (5); gradient descent for momentum 0."""
    before, found = w, []
    for t in range(rounds):
        w, before = w - learning_rate * (g(t, w) + ridge * w) + momentum * (w - before), w
        found.append(w)
    return found


def gradient_descent(g: Gradient, w: Floats, **fields: Any) -> list[Floats]:
    """w <- w - eta (grad + ridge w)."""
    return heavy_ball(g, w, momentum=0.0, **fields)


def fista(g: Gradient, w: Floats, *, rounds: int, learning_rate: float) -> list[Floats]:
    """Beck and Teboulle 2009, (4.1) to (4.3)."""
    y, a, found = w, 1.0, []
    for t in range(rounds):
        new, after = y - learning_rate * g(t, y), (1 + math.sqrt(1 + 4 * a * a)) / 2
        y, a, w = new + (a - 1) / after * (new - w), after, new
        found.append(w)
    return found


def enhanced_nesterov(
    g: Gradient,
    w: Floats,
    *,
    rounds: int,
    schedule: str,
    learning_rate: float,
    decay: float,
    first_alpha: float,
) -> list[Floats]:
    """Chiang's Algorithm 1 with the inverted bound; g: B^-1 times the gradient."""
    v, alpha0, found = w, first_alpha, []
    alpha1 = 0.5 * (1 + math.sqrt(1 + 4 * alpha0**2))
    for t in range(rounds):
        eta = (1 - alpha0) / alpha1
        extra = learning_rate - 1
        gamma = extra / (t + 1) if schedule == "harmonic" else extra * decay**t
        new = v - (1 + gamma) * g(t, v)
        v, w = (1 - eta) * new + eta * w, new
        alpha0, alpha1 = alpha1, 0.5 * (1 + math.sqrt(1 + 4 * alpha1**2))
        found.append(w)
    return found


def staged_nesterov(
    g: Gradient,
    w: Floats,
    rates: Sequence[float],
    stages: Sequence[int],
    *,
    mu: float,
    ridge: float,
) -> list[Floats]:
    """arXiv:2008.01989, (6) with beta from alpha; x_prev = x where a new stage begins."""
    before, found = w, []
    for t, alpha in enumerate(rates):
        beta = (1 - math.sqrt(alpha * mu)) / (1 + math.sqrt(alpha * mu))
        if t and stages[t] != stages[t - 1]:
            before = w
        z = (1 + beta) * w - beta * before
        w, before = z - alpha * (g(t, z) + ridge * z), w
        found.append(w)
    return found


def strongly_convex(g: Gradient, w: Floats, **fields: Any) -> list[Floats]:
    """One stage, alpha = c / L."""
    rounds, alpha = fields["rounds"], fields["step_scale"] / fields["smoothness"]
    rest = {name: fields[name] for name in ("mu", "ridge")}
    return staged_nesterov(g, w, [alpha] * rounds, [1] * rounds, **rest)


def masg(g: Gradient, w: Floats, **fields: Any) -> list[Floats]:
    """(33): n_1 steps of c / L, then 2^k ceil(sqrt(kappa) ln 2^(p+2)) of c / (4^k L)."""
    rounds, scale = fields["rounds"], fields["step_scale"] / fields["smoothness"]
    length = math.ceil(
        math.sqrt(fields["smoothness"] / fields["mu"]) * math.log(2 ** (fields["p"] + 2))
    )
    stages = [1] * fields["first_stage"]
    while len(stages) < rounds:
        stages += [stages[-1] + 1] * (2 ** (stages[-1] + 1) * length)
    rates = [scale if k == 1 else scale / 4**k for k in stages[:rounds]]
    rest = {name: fields[name] for name in ("mu", "ridge")}
    return staged_nesterov(g, w, rates, stages[:rounds], **rest)


def barrier(
    g: Gradient,
    w: Floats,
    *,
    rounds: int,
    learning_rate: float,
    theta: float,
    weight: float,
    reciprocal: Any,
) -> list[Floats]:
    """arXiv:2605.27782, Algorithm 3."""
    found = []
    for t in range(rounds):
        x = (theta - w @ w - reciprocal["center"]) / reciprocal["radius"]
        pull = sum(c * x**k for k, c in enumerate(reciprocal["coefficients"]))
        w = w - learning_rate * (2 * weight * pull * w + g(t, w))
        found.append(w)
    return found


def adagrad(g: Gradient, w: Floats, *, rounds: int, learning_rate: float) -> list[Floats]:
    """The squares' sum written out over the history."""
    history, found = [], []
    for t in range(rounds):
        history.append(g(t, w))
        w = w - learning_rate * history[-1] / (1e-8 + np.sqrt(sum(h**2 for h in history)))
        found.append(w)
    return found


def adam(
    g: Gradient, w: Floats, *, rounds: int, learning_rate: float, beta1: float, beta2: float
) -> list[Floats]:
    """The means written out over the history."""
    history, found = [], []
    for t in range(1, rounds + 1):
        history.append(g(t - 1, w))
        ages = np.arange(t)[::-1, None]
        first = ((1 - beta1) * beta1**ages * history).sum(axis=0) / (1 - beta1**t)
        second = ((1 - beta2) * beta2**ages * np.square(history)).sum(axis=0) / (1 - beta2**t)
        w = w - learning_rate * first / (np.sqrt(second) + 1e-8)
        found.append(w)
    return found


def dual(g: Gradient, w: Floats, *, rounds: int, factor: float) -> list[Floats]:
    """theta after adding up all steps, each at the v before it."""
    found, v = [], w
    for t in range(rounds):
        v = v + g(t, v)
        found.append(v * factor)
    return found


TEXTBOOKS: dict[str, Callable[..., list[Floats]]] = {
    "gd": gradient_descent,
    "hb": heavy_ball,
    "nag": fista,
    "quadratic-nag": enhanced_nesterov,
    "rescaled-nag": lambda g, w, learning_rate, extra, **fields: enhanced_nesterov(
        lambda t, v: learning_rate * g(t, v),
        w,
        schedule="geometric",
        learning_rate=1 + extra,
        **fields,
    ),
    "quadratic-gd": lambda g, w, rounds, learning_rate: gradient_descent(
        g, w, rounds=rounds, learning_rate=learning_rate, ridge=0.0
    ),
    "nag-sc": strongly_convex,
    "masg": masg,
    "barrier": barrier,
    "adagrad": adagrad,
    "quadratic-adagrad": adagrad,
    "adam": adam,
    "quadratic-adam": adam,
    "scd": dual,
}


def textbook(kind: str) -> Callable[..., list[Floats]]:
    """The recursion of a rule's source."""
    assert kind in TEXTBOOKS, (
        f"update {kind!r} has no textbook: add to TEXTBOOKS, in {__file__}, its source's recursion "
        "on arrays, as a function (gradient, w, **fields of the rule) -> weights after every round"
    )
    return TEXTBOOKS[kind]
