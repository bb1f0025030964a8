"""The barrier update: bounded iterates without clipping (arXiv:2605.27782, Algorithms 3 and 5).

    w <- w - eta (2 lambda P(Theta - |w|^2) w + grad(w) + noise)

P approximates 1/x on [kappa Theta, Theta], so the pull towards 0 is the gradient of the log
barrier -lambda ln(Theta - |w|^2). Under encryption P is evaluated in |w|^2 by its real factors,
beside the gradient: 2 levels for a linear P, 3 for degrees 2 and 3, 4 for degree 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul
from typing import Any

import numpy as np

from protocols.approximation import Polynomial
from protocols.ckks.factored import FactoredPolynomial
from protocols.errors import ParameterError
from protocols.serialise import to_plain
from protocols.updates.rule import ScaledGradient, UpdateRule, V


@dataclass(frozen=True, kw_only=True, slots=True)
class Barrier:
    """Gradient descent with a polynomial log-barrier.

    rounds: iterations T; learning_rate: eta; theta: squared radius Theta of the feasible ball;
    weight: lambda; reciprocal: P, an approximation of 1/x below Theta;
    unit: vectors hold w / unit.

    Raises:
        ParameterError: a field is out of range.
    """

    rounds: int
    learning_rate: float
    theta: float
    weight: float
    reciprocal: Polynomial
    unit: float = 1.0

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ParameterError(f"rounds={self.rounds} must be at least 1")
        for name in ("learning_rate", "theta", "weight", "unit"):
            if not getattr(self, name) > 0:
                raise ParameterError(f"{name}={getattr(self, name)} must be positive")
        if len(self.reciprocal.coefficients) < 2:
            raise ParameterError("reciprocal must have degree at least 1")

    def factors(self) -> FactoredPolynomial:
        """2 eta lambda P(Theta - |w|^2) as factors in s = |w / unit|^2."""
        # t = (Theta - unit^2 s - center) / radius, substituted into sum c_k t^k.
        center, radius = self.reciprocal.center, self.reciprocal.radius
        inner = np.polynomial.Polynomial([(self.theta - center) / radius, -(self.unit**2) / radius])
        outer = np.polynomial.Polynomial(self.reciprocal.coefficients)(inner)
        scale = 2 * self.learning_rate * self.weight
        return FactoredPolynomial.from_coefficients([float(c) * scale for c in outer.coef])

    def start(self, weights: V) -> tuple[V, ...]:
        """State (w,)."""
        return (weights,)

    def step(self, t: int, state: tuple[V, ...], gradient: ScaledGradient[V]) -> tuple[V, ...]:
        """One iteration."""
        w: Any = state[0]
        factors = self.factors()
        pull = reduce(mul, factors.last_operands(w @ w, w * factors.leading))
        return (w - gradient(w, self.learning_rate) - pull,)

    def weights(self, state: tuple[V, ...]) -> V:
        """w."""
        return state[0]

    def levels(self) -> int:
        """|w|^2 beside c w, then the factors: 2, 3, 3, 4 for degree 1 to 4."""
        return 1 + self.factors().depth()

    def noise_gain(self) -> float:
        """sqrt(T): no iteration expands distances."""
        return math.sqrt(self.rounds)

    def in_units(self, unit: float) -> UpdateRule:
        """P's argument is unit^2 times |w / unit|^2; the pull scales like w."""
        return replace(self, unit=self.unit * unit)

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {
            "kind": "barrier",
            "rounds": self.rounds,
            "learning_rate": self.learning_rate,
            "theta": self.theta,
            "weight": self.weight,
            "reciprocal": to_plain(self.reciprocal),
            "unit": self.unit,
        }
