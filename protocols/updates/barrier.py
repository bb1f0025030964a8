"""The barrier update: bounded iterates without clipping (arXiv:2605.27782, Algorithms 3 and 5).

    w <- w - eta (2 lambda P(Theta - |w|^2) w + grad(w) + noise)

P approximates 1/x on [kappa Theta, Theta], so the pull towards 0 is the gradient of the log
barrier -lambda ln(Theta - |w|^2). Under encryption P is evaluated in |w|^2 by its real factors,
beside the gradient: 2 levels for a linear P, 3 for degrees 2 and 3, 4 for degree 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import mul
from typing import Any, ClassVar

import numpy as np

from protocols.ckks.circuits.factors import depth, last_operands
from protocols.ckks.factored import FactoredPolynomial
from protocols.errors import ParameterError
from protocols.numerics.approximation import Polynomial
from protocols.updates.update import Update, V, check_positive
from protocols.words import Fact, number


@dataclass(frozen=True, kw_only=True, slots=True)
class Barrier(Update):
    """Gradient descent with a polynomial log-barrier.

    rounds: iterations T; learning_rate: eta; theta: squared radius Theta of the feasible ball;
    weight: lambda; reciprocal: P, an approximation of 1/x below Theta.

    Raises:
        ParameterError: a field is out of range.
    """

    kind: ClassVar[str] = "barrier"
    words: ClassVar[str] = "gradient descent with a barrier that keeps the weights within a ball"
    rounds: int
    learning_rate: float
    theta: float
    weight: float
    reciprocal: Polynomial

    def __post_init__(self) -> None:
        """Check the fields."""
        Update.__post_init__(self)
        check_positive(self, "learning_rate", "theta", "weight")
        if len(self.reciprocal.coefficients) < 2:
            raise ParameterError("reciprocal must have degree at least 1")

    def facts(self) -> Iterator[Fact]:
        """The ball as well."""
        yield from Update.facts(self)
        yield (
            "Ball radius",
            number(math.sqrt(self.theta)),
            f"the barrier (weight {number(self.weight)}) keeps the norm of the scaled weights "
            "below it",
        )

    def step(self, gradient: V, state: tuple[V, ...], t: int, unit: float = 1.0) -> tuple[V, ...]:
        """One iteration."""
        w: Any = state[0]
        factors = pull_factors(self, unit)
        pull = reduce(mul, last_operands(factors, w @ w, w * factors.leading))
        return (w - gradient - pull,)

    def gradient_factor(self, t: int) -> float:
        """eta."""
        return self.learning_rate

    def levels(self) -> int:
        """|w|^2 beside c w, then the factors: 2, 3, 3, 4 for degree 1 to 4."""
        return 1 + depth(pull_factors(self))


@lru_cache(maxsize=64)
def pull_factors(rule: Barrier, unit: float = 1.0) -> FactoredPolynomial:
    """2 eta lambda P(Theta - |w|^2) as factors in s = |w / unit|^2."""
    # t = (Theta - unit^2 s - center) / radius, substituted into sum c_k t^k.
    center, radius = rule.reciprocal.center, rule.reciprocal.radius
    inner = np.polynomial.Polynomial([(rule.theta - center) / radius, -(unit**2) / radius])
    outer = np.polynomial.Polynomial(rule.reciprocal.coefficients)(inner)
    scale = 2 * rule.learning_rate * rule.weight
    return FactoredPolynomial.from_coefficients([float(c) * scale for c in outer.coef])
