"""Gradient descent with an optional ridge term: w <- (1 - eta lambda) w - eta (grad(w) + noise)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from protocols.errors import ParameterError
from protocols.updates.rule import ScaledGradient, UpdateRule, V


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientDescent:
    """Full-batch gradient descent.

    rounds: iterations; learning_rate: eta > 0; ridge: lambda >= 0 (0: none).

    Raises:
        ParameterError: a field is out of range.
    """

    rounds: int
    learning_rate: float
    ridge: float = 0.0

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ParameterError(f"rounds={self.rounds} must be at least 1")
        if not self.learning_rate > 0:
            raise ParameterError(f"learning_rate={self.learning_rate} must be positive")
        if not 0 <= self.ridge * self.learning_rate < 1:
            raise ParameterError(
                f"ridge={self.ridge} times learning_rate={self.learning_rate} is outside [0, 1)"
            )

    def start(self, weights: V) -> tuple[V, ...]:
        """State (w,)."""
        return (weights,)

    def step(self, t: int, state: tuple[V, ...], gradient: ScaledGradient[V]) -> tuple[V, ...]:
        """One iteration."""
        w: Any = state[0]
        move: Any = gradient(w, self.learning_rate)
        if self.ridge:
            w = w * (1 - self.learning_rate * self.ridge)
        return (w - move,)

    def weights(self, state: tuple[V, ...]) -> V:
        """w."""
        return state[0]

    def levels(self) -> int:
        """The ridge factor costs one level, beside the gradient."""
        return 1 if self.ridge else 0

    def noise_gain(self) -> float:
        """sqrt(T): no iteration expands distances."""
        return math.sqrt(self.rounds)

    def in_units(self, unit: float) -> UpdateRule:
        """Linear in the weights: nothing changes."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": "gd", **asdict(self)}
