"""Gradient descent on the quadratic gradient: w <- w - N B^-1 (grad(w) + noise).

Source: Chiang, "Privacy-Preserving Logistic Regression Training with a Faster Gradient Variant",
section III, a Newton step with the Hessian's diagonal bound B in its place (`rows.curvature`).
B lies above the Hessian, so that N in (0, 2) never climbs; N = 1 is what the bound suggests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from protocols.errors import ParameterError
from protocols.rows.curvature import Curvature
from protocols.updates.quadratic import Quadratic
from protocols.updates.update import Update


@dataclass(frozen=True, kw_only=True, slots=True)
class QuadraticDescent(Quadratic):
    """Full-batch descent on the quadratic gradient, without momentum.

    rounds: iterations; curvature: B; learning_rate: N in [1, 2).
    """

    kind: ClassVar[str] = "quadratic-gd"
    words: ClassVar[str] = "gradient descent, preconditioned by a diagonal bound of the curvature"
    usual_rate: ClassVar[float | None] = 1.0
    rounds: int
    curvature: Curvature = field()
    learning_rate: float = 1.0

    def __post_init__(self) -> None:
        """Check the fields."""
        Update.__post_init__(self)
        if not 1 <= self.learning_rate < 2:
            raise ParameterError(f"learning_rate={self.learning_rate} is outside [1, 2)")

    @property
    def rates(self) -> tuple[float, ...]:
        """N."""
        return (self.learning_rate,) * self.rounds
