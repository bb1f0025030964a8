"""How far descent without noise can get from the origin: two budgets, pushes and falls.

F(w) = (1/N) sum_i Phi(z_i, y_i) + (lam / 2) |w|^2, z_i = <w, x_i>, G its gradient, w' = w - eta G
from w = 0, in any inner product. -<w, G> <= M - lam |w|^2, M(R) the largest -z dPhi/dz over |z| <=
B R. F falls below F(0) by at most D(R), the largest fall of Phi over |z| <= B R; within the ball F
curves by at most beta < 2 / eta. No convexity is needed.

**Falls pay for the squared steps.** On the way, w_s = w - s G for s <= eta, F falls by at least
s (1 - s beta / 2) |G|^2, hence s^2 |G|^2 <= k s (F(w) - F(w_s)), k = 1 / (1 - eta beta / 2).

**The ball.** |w_s|^2 = |w|^2 - 2 s <w, G> + s^2 |G|^2 <= (1 - 2 s lam) |w|^2 + 2 s M + k s (F(w) -
F(w_s)). Unrolled over all steps, the falls add up to at most D, rho = max(0, 1 - 2 eta lam):

    |w_s|^2 <= 2 eta M A + k eta D =: G(R),   A = sum_{i<T} rho^i.

If G(R) < R^2, no iterate and no point between two of them leaves the ball: at the first exit the
inequality would still hold. `descent_bound` counts eta^2 |G|^2 in each of T steps instead, but
allows noise.

**Arithmetic** off by e in G: w' moves by eta e, |w'|^2 by at most eta e (2 R + eta e), F(w') by eta
e (S + beta eta e), S >= |G|; both, the latter times k eta, are added T times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.numerics.approximation import Polynomial, range_bound
from protocols.privacy.certificates.descent_bound import push_bound

Floats = NDArray[np.float64]
GROWTH = 1.02
"""By so much the search for a ball goes beyond what the last one needs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QuietDescent:
    """learning_rate: eta; lam; rounds: T; error: e."""

    learning_rate: float
    lam: float
    rounds: int
    error: float = 0.0

    def squared_bound(
        self, radius: float, *, push: float, fall: float, curvature: float, slope: float
    ) -> float:
        """G(R), to be below R^2; push: M; fall: D; curvature: beta; slope: S; inf if too steep."""
        left = 1 - self.learning_rate * curvature / 2
        if not left > 0:
            return math.inf
        rho, k, moved = (
            max(0.0, 1 - 2 * self.learning_rate * self.lam),
            1 / left,
            self.learning_rate * self.error,
        )
        weight = sum(rho**i for i in range(self.rounds)) if rho < 1 else self.rounds
        off = moved * (2 * radius + moved) + k * self.learning_rate * moved * (
            slope + curvature * moved
        )
        return (
            2 * self.learning_rate * push * weight
            + k * self.learning_rate * fall
            + self.rounds * off
        )


def logistic_ball(descent: QuietDescent, p: Polynomial, norm_bound: float, radius: float) -> float:
    """G(R) for dPhi/dz = p(z) - y, p(z) + p(-z) = 1, rows of norm at most B."""
    ends = norm_bound * radius
    steepest = max(0.0, range_bound(p.derivative(), -ends, ends)[1])
    slope = norm_bound * max(abs(bound) for bound in range_bound(p, -ends, ends))
    return descent.squared_bound(
        radius,
        push=push_bound(p, shrink=1.0, learning_rate=0.0, norm_bound=norm_bound, radius=radius),
        fall=largest_fall(p, ends),
        curvature=norm_bound**2 * steepest + descent.lam,
        slope=slope + descent.lam * radius,
    )


def largest_fall(p: Polynomial, ends: float) -> float:
    """Certain bound on the integral of 1 - p from 0 to z, |z| <= ends: D for y = 1, hence for 0."""
    rest = -np.array(p.coefficients)
    rest[0] += 1.0
    return largest_integral(rest, p.radius, ends)


def largest_integral(coefficients: Floats, radius: float, ends: float) -> float:
    """Certain bound on the integral from 0 to z, |z| <= ends, of a polynomial in t = z / radius."""
    powers = np.arange(1, coefficients.size + 1)
    integral = np.concatenate([[0.0], radius * coefficients / powers])
    scale = max(1.0, ends / radius) ** coefficients.size
    slack = 2.0**-45 * float(np.abs(integral).sum()) * scale
    whole = Polynomial(coefficients=tuple(integral), center=0.0, radius=radius)
    return range_bound(whole, -ends, ends)[1] + slack


def least_radius(squared_bound: Callable[[float], float], start: float, last: float) -> float:
    """Least bound on |w| found among balls of radius `start` … `last`; inf if none holds.

    squared_bound: G(R), which does not fall; a ball holds if G(R) < R^2, and then |w|^2 <= G(R).
    """
    radius = start
    while radius <= last:
        reached = math.sqrt(squared_bound(radius))
        if reached < radius:
            return reached
        radius = max(reached, radius) * GROWTH
    reached = math.sqrt(squared_bound(last))
    return reached if reached < last else math.inf
