"""Linear regression on targets scaled to [0, 1] (multi-output LFFR, section 3.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from protocols.models.model import Array, TargetModel
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.numerics.approximation import Approximation, Polynomial


@dataclass(frozen=True, slots=True)
class Linear(TargetModel):
    """Targets as they are: x w stands for the target on [0, 1] itself.

    On encrypted rows it is trained from sums (`gram`); where rows stay home, by gradients
    X^T (X w - y) / N, half those of the mean squared error, or, where sums are opened, by steps of
    dual coordinates.
    """

    name = "linear"
    title = "linear regression"
    link = "value = intercept + coef . x, in the target's own units"
    unit = "target’s unit per unit of the column"
    optimum = ("least squares", "linear, all rows in clear, no noise (scikit-learn)")
    curvature = 2.0
    protocols = (ENCRYPTED_ROWS, ENCRYPTED_MODEL, SECURE_AGGREGATION)

    def approximation(self, degree: int = 1, radius: float = 1.0) -> Approximation:
        """The score itself, whose polynomial is exact everywhere; radius: its unit."""
        p = Polynomial(coefficients=(0.0, radius), center=0.0, radius=radius)
        return Approximation(polynomial=p, max_error=0.0, max_slope=1.0)

    def link_error(self, link: Polynomial) -> float:
        """None."""
        return 0.0

    def encode(self, targets: Array) -> Array:
        """What is fitted, from targets in [0, 1], shape (rows, c)."""
        return targets

    def in_data_units(
        self, coef: Array, intercept: Array, low: Array, width: Array
    ) -> tuple[Array, Array]:
        """Of the targets themselves."""
        return coef * width[:, None], low + intercept * width

    def loss(self, scores: Array, y: Array) -> Array:
        """(z - encode(y))^2."""
        return (scores - self.encode(y)) ** 2

    def bound(self, outputs: int) -> float:
        """Bound on the Euclidean norm of a row's encoded targets."""
        return math.sqrt(outputs)
