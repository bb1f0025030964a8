"""Improved LFFR: linear regression on logits of the targets (multi-output LFFR, section 3.3).

    encode: t -> logit(gamma t + 1/2 - gamma / 2)     decode: z -> (sigmoid(z) - 1/2) / gamma + 1/2

gamma < 1 keeps the logit finite on [0, 1], and lets predictions leave it by (1 / gamma - 1) / 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from scipy.special import logit

from parties.kernel.sums.links import GAMMA, decoded
from protocols.errors import ParameterError
from protocols.models.linear import Linear
from protocols.models.model import Array, TargetModel
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS
from protocols.numerics.approximation import Approximation, Polynomial
from protocols.words import Fact, number


@dataclass(frozen=True, slots=True)
class ImprovedLffr(TargetModel):
    """gamma: the part of (0, 1), around 1/2, that the range of the targets is mapped to.

    Raises:
        ParameterError: gamma is outside (0, 1).
    """

    name = "improved-lffr"
    title = "regression with a sigmoid link, fitted on logits (improved LFFR)"
    link = (
        "score z = intercept + coef . x; t = (1 / (1 + exp(-z)) - 1/2) / gamma + 1/2; value = low "
        "+ t * (high - low), with low and high of the target in the schema"
    )
    curvature = 2.0
    protocols = (ENCRYPTED_ROWS, ENCRYPTED_MODEL)

    gamma: float = GAMMA

    def __post_init__(self) -> None:
        if not 0 < self.gamma < 1:
            raise ParameterError(f"gamma={self.gamma} is outside (0, 1)")

    def facts(self) -> Iterator[Fact]:
        """gamma."""
        yield (
            "γ (gamma)",
            number(self.gamma),
            "targets take up this part of the sigmoid's range before their logits are fitted",
        )

    def approximation(self, degree: int = 1, radius: float = 1.0) -> Approximation:
        """The score itself, as of `Linear`."""
        return Linear().approximation(degree, radius)

    def link_error(self, link: Polynomial) -> float:
        """None."""
        return 0.0

    def encode(self, targets: Array) -> Array:
        """What is fitted, from targets in [0, 1], shape (rows, c)."""
        encoded: Array = logit(self.gamma * targets + (1 - self.gamma) / 2)
        return encoded

    def decode(self, scores: Array) -> Array:
        """Targets from X W, shape (rows, c); values outside [0, 1] are possible and wanted."""
        return decoded(self.name, scores, gamma=self.gamma)

    def loss(self, scores: Array, y: Array) -> Array:
        """(z - encode(y))^2."""
        return (scores - self.encode(y)) ** 2

    def bound(self, outputs: int) -> float:
        """Bound on the Euclidean norm of a row's encoded targets."""
        return math.sqrt(outputs) * math.log((1 + self.gamma) / (1 - self.gamma))
