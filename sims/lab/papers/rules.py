r"""Ascent rules of the quadratic-gradient paper in plain float64, on the sum gradient.

    g = sum_i (1 - s(y_i b.x_i)) y_i x_i,   B_kk = eps + sum_j |(X^T X / 4)_kj|,   G = g / B.

rows: X, shape (n, d), entries in [0, 1], a column of ones first; signs: y in {-1, 1}. Every rule
yields b after step 1, 2, …. These are the paper's own, with its slips mended; what runs under
encryption is in `protocols.updates`, whose steps the tests compare with these.

    enhanced NAG  w+ = v + N_t G(v),  v+ = (1 - e_t) w+ + e_t w,  e_t = (1 - a_t) / a_{t+1},
                  a_0 = 0.01,  a_{t+1} = (1 + sqrt(1 + 4 a_t^2)) / 2,  N_t = 1 + 0.9^t
    NAG           the same with (10 / (t + 1)) g / n in place of N_t G (Kim et al.)
    Adagrad       b + r g / (eps + sqrt(sum g^2))
    Adam          b + r m' / (eps + sqrt(s')), m', s' the unbiased means of g and g^2
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import repeat

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

Array = NDArray[np.float64]
Link = Callable[[Array], Array]
EPSILON = 1e-8


def gradient(weights: Array, rows: Array, signs: Array, link: Link = expit) -> Array:
    """g, of the log-likelihood's sum; link: in place of the sigmoid."""
    slope: Array = rows.T @ (signs * link(-signs * (rows @ weights)))
    return slope


def mean_likelihood(weights: Array, rows: Array, signs: Array) -> float:
    """Log-likelihood per row [nats]; -inf where the weights have left all bounds."""
    with np.errstate(all="ignore"):
        found = -float(np.mean(np.logaddexp(0.0, -signs * (rows @ weights))))
    return found if math.isfinite(found) else -math.inf


def curvature(rows: Array) -> Array:
    """B_kk."""
    bound: Array = EPSILON + np.abs(rows.T @ rows / 4).sum(axis=1)
    return bound


def optimum(rows: Array, signs: Array) -> Array:
    """Maximum of the likelihood; a ridge of 1e-9 keeps it finite."""

    def loss(weights: Array) -> tuple[float, Array]:
        slope = 1e-9 * weights - gradient(weights, rows, signs) / len(rows)
        return 5e-10 * float(weights @ weights) - mean_likelihood(weights, rows, signs), slope

    found: Array = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B").x
    return found


def momenta(steps: int, first: float = 0.01) -> list[float]:
    """-e_t."""
    found, a = [], first
    for _ in repeat(None, steps):
        following = (1 + math.sqrt(1 + 4 * a * a)) / 2
        found.append((a - 1) / following)
        a = following
    return found


def enhanced(
    rows: Array,
    signs: Array,
    steps: int,
    rates: Callable[[int], float] = lambda t: 1 + 0.9**t,
    link: Link = expit,
) -> Iterator[Array]:
    """Enhanced Nesterov: w after every step; rates: N_t; link: in place of the sigmoid."""
    bound = curvature(rows)
    return _accelerated(rows, signs, steps, lambda t: rates(t) / bound, link, 0.01)


def nesterov(
    rows: Array,
    signs: Array,
    steps: int,
    rates: Callable[[int], float] = lambda t: 10 / (t + 1),
    first: float = 0.01,
) -> Iterator[Array]:
    """Nesterov on the mean gradient; rates: of step t = 0, 1, …; first: a_0, 1 for FISTA's."""
    return _accelerated(rows, signs, steps, lambda t: rates(t) / len(rows), expit, first)


def _accelerated(
    rows: Array,
    signs: Array,
    steps: int,
    factor: Callable[[int], Array | float],
    link: Link,
    first: float,
) -> Iterator[Array]:
    w: Array = np.zeros(rows.shape[1])
    v = w
    for t, momentum in enumerate(momenta(steps, first)):
        before, w = w, v + factor(t) * gradient(v, rows, signs, link)
        v = w + momentum * (w - before)
        yield w


def adagrad(
    rows: Array, signs: Array, steps: int, rate: float, bound: Array | float = 1.0
) -> Iterator[Array]:
    """Adagrad on g / bound."""
    weights: Array = np.zeros(rows.shape[1])
    squares: Array = np.zeros(rows.shape[1])
    for _ in repeat(None, steps):
        slope = gradient(weights, rows, signs) / bound
        squares = squares + slope**2
        weights = weights + rate * slope / (EPSILON + np.sqrt(squares))
        yield weights


def adam(
    rows: Array, signs: Array, steps: int, rate: float, bound: Array | float = 1.0
) -> Iterator[Array]:
    """Adam on g / bound, 0.9 and 0.999."""
    weights: Array = np.zeros(rows.shape[1])
    mean: Array = np.zeros(rows.shape[1])
    square: Array = np.zeros(rows.shape[1])
    for t in range(1, steps + 1):
        slope = gradient(weights, rows, signs) / bound
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        root = np.sqrt(square / (1 - 0.999**t))
        weights = weights + rate * mean / (1 - 0.9**t) / (EPSILON + root)
        yield weights


def ascent(
    rows: Array, signs: Array, steps: int, rate: float, bound: Array | float = 1.0
) -> Iterator[Array]:
    """Plain steps on g / bound."""
    weights: Array = np.zeros(rows.shape[1])
    for _ in repeat(None, steps):
        weights = weights + rate * gradient(weights, rows, signs) / bound
        yield weights
