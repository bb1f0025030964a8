"""One logistic regression for each of K classes against the rest, all in one run.

Scores z = x W, W of shape (d, K); p_k is the sigmoid of z_k over the sum of all K sigmoids.

The loss is the sum of K logistic losses, its residual r = sigmoid(z) - e_y: every entry is below 1
in size, so |r|_q < K^(1/q). All K are approached together, for nothing ties one class's score to
another's: replacing a row changes two labels and yet moves all K columns. The K gradients of a row
are one vector of norm at most |x| sqrt(K), released by one mechanism; as rows almost opposite may
have residuals almost equal (see `softmax`), twice that is the tight replace-one sensitivity.

Softmax moves less, sqrt(2), whatever K: with privacy it is the better choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocols.models.classes import ClassModel
from protocols.models.model import Array


@dataclass(frozen=True, slots=True)
class OneVsRest(ClassModel):
    """The sigmoids of x W, divided by their sum, are the probabilities of the classes."""

    name = "one-vs-rest"
    title = "logistic regression of each class against the rest"
    link = (
        "score of a class = log-odds against the rest = intercept + coef . x; probability = "
        "sigmoid(score) / sum of sigmoid(scores)"
    )
    reference = "one-vs-rest"
    optimum = ("optimum without privacy", "best fit to all rows as they are, in clear")
    curvature = 0.25

    def loss(self, scores: Array, y: Array) -> Array:
        """sum_k ln(1 + exp(z_k)) - z_y, shape (rows,)."""
        found: Array = (np.logaddexp(0.0, scores) - y * scores).sum(axis=1)
        return found
