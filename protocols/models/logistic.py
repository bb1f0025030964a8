"""Logistic regression of a label in {0, 1}."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocols.models.model import Array, LabelModel
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.updates.registry import USUAL


@dataclass(frozen=True, slots=True)
class Logistic(LabelModel):
    """The sigmoid of x w is the probability of the positive label."""

    name = "logistic"
    title = "logistic regression"
    link = "log-odds of the positive label = intercept + coef . x"
    update = USUAL
    reference = "logistic"
    optimum = ("optimum without privacy", "best fit to all rows as they are, in clear")
    curvature = 0.25
    protocols = (ENCRYPTED_ROWS, ENCRYPTED_MODEL, SECURE_AGGREGATION)

    def loss(self, scores: Array, y: Array) -> Array:
        """ln(1 + exp(z)) - y z."""
        found: Array = np.logaddexp(0.0, scores) - y * scores
        return found
