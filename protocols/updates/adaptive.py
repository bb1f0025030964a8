"""Adagrad and Adam, plain and on the quadratic gradient. NOT for the encrypted-rows protocol.

Both divide by a root of each entry, so they run where the coordinator sees the noisy gradient: in
the plaintext twin and in the secure-aggregation protocol. Their vectors are arrays.

    Adagrad   s <- s + g^2,                        w <- w - eta g / (tau + sqrt(s))
    Adam      m <- b1 m + (1 - b1) g,  s <- b2 s + (1 - b2) g^2,
              w <- w - eta m / (1 - b1^t) / (tau + sqrt(s / (1 - b2^t))),  t = 1, 2, …

The quadratic variants have g = B^-1 grad(w), which whoever drives the rule multiplies in.
Sources: Duchi et al., JMLR 12 (2011) 2121; Kingma and Ba, arXiv:1412.6980, Algorithm 1; rates:
Chiang, "Privacy-Preserving Logistic Regression Training with a Faster Gradient Variant".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from protocols.errors import ParameterError
from protocols.rows.curvature import Curvature
from protocols.updates.update import Update, check_fraction, check_positive

# tau: keeps the first divisions finite.
STABILITY = 1e-8


class Adaptive(Update):
    """rounds: iterations; learning_rate: eta > 0, usually that of the papers' figures."""

    __slots__ = ()
    learning_rate: float

    def __post_init__(self) -> None:
        Update.__post_init__(self)
        check_positive(self, "learning_rate")

    def levels(self) -> int:
        """Not a polynomial in its inputs.

        Raises:
            ParameterError: always.
        """
        raise ParameterError(
            f"update {self.kind!r} would divide by roots of encrypted numbers; under encrypted "
            "rows take quadratic-nag, or the secure-aggregation protocol"
        )

    def noise_gain(self) -> float:
        """As `levels`."""
        return float(self.levels())


@dataclass(frozen=True, kw_only=True, slots=True)
class Adagrad(Adaptive):
    """Steps divided by the root of the summed squares; state (w, s)."""

    kind: ClassVar[str] = "adagrad"
    words: ClassVar[str] = "Adagrad"
    usual_rate: ClassVar[float | None] = 0.01
    rounds: int
    learning_rate: float

    def start(self, weights: Any) -> tuple[Any, ...]:
        """No squares."""
        return (weights, np.zeros_like(weights))

    def step(
        self, gradient: Any, state: tuple[Any, ...], t: int, unit: float = 1.0
    ) -> tuple[Any, ...]:
        """One iteration."""
        w, squares = state
        squares = squares + gradient * gradient
        return (w - self.learning_rate * gradient / (STABILITY + np.sqrt(squares)), squares)


@dataclass(frozen=True, kw_only=True, slots=True)
class Adam(Adaptive):
    """Steps by the running mean over the root of the running mean square; state (w, m, s).

    beta1, beta2: in [0, 1), how slowly the two means forget; both are unbiased.
    """

    kind: ClassVar[str] = "adam"
    words: ClassVar[str] = "Adam"
    usual_rate: ClassVar[float | None] = 0.001
    rounds: int
    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999

    def __post_init__(self) -> None:
        """Check the fields."""
        Adaptive.__post_init__(self)
        check_fraction(self, "beta1", "beta2")

    def start(self, weights: Any) -> tuple[Any, ...]:
        """No means."""
        return (weights, np.zeros_like(weights), np.zeros_like(weights))

    def step(
        self, gradient: Any, state: tuple[Any, ...], t: int, unit: float = 1.0
    ) -> tuple[Any, ...]:
        """One iteration."""
        w, mean, square = state
        mean = self.beta1 * mean + (1 - self.beta1) * gradient
        square = self.beta2 * square + (1 - self.beta2) * gradient * gradient
        root = np.sqrt(square / (1 - self.beta2 ** (t + 1)))
        move = mean / (1 - self.beta1 ** (t + 1)) / (STABILITY + root)
        return (w - self.learning_rate * move, mean, square)


@dataclass(frozen=True, kw_only=True, slots=True)
class QuadraticAdagrad(Adagrad):
    """Adagrad on the quadratic gradient; curvature: B."""

    kind: ClassVar[str] = "quadratic-adagrad"
    words: ClassVar[str] = "Adagrad on the gradient preconditioned by the curvature"
    usual_rate: ClassVar[float | None] = 0.07
    curvature: Curvature = field()


@dataclass(frozen=True, kw_only=True, slots=True)
class QuadraticAdam(Adam):
    """Adam on the quadratic gradient; curvature: B."""

    kind: ClassVar[str] = "quadratic-adam"
    words: ClassVar[str] = "Adam on the gradient preconditioned by the curvature"
    usual_rate: ClassVar[float | None] = 0.011
    curvature: Curvature = field()
