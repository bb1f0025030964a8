"""Multinomial logistic regression: p_k = exp(z_k) / sum_j exp(z_j), z = x W, W of shape (d, K).

The loss ln(sum_j exp(z_j)) - z_y has the residual r = p - e_y and, in the scores, the Hessian
diag(p) - p p^T.

Residual. sum_k |r_k| = 2 (1 - p_y), and sum_k r_k^2 <= (1 - p_y)^2 + (1 - p_y)^2: so |r|_1 < 2 and
|r|_2 < sqrt(2), the binary model's 1 times 2^(1/q) in the q-norm. Both are approached where another
class is certain. Rows x and x' almost opposite, both with a large score of the same other class,
have residuals almost equal: their gradients x r^T are almost 2 |x| sqrt(2) apart, so that twice the
norm bound is the tight replace-one sensitivity where nothing bounds W.

Curvature. diag(p) - p p^T <= (I - 1 1^T / K) / 2 for every p (Böhning, "Multinomial logistic
regression algorithm", Ann. Inst. Statist. Math. 44, 1992), hence <= 1/2: the Hessian of the mean
loss is at most X^T X / (2 N) for each class, a fixed matrix as for two classes.

Scores may grow by the same number for all classes: noise moves W along these directions, to no
effect on any prediction. Coefficients are shown with sum 0 over the classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from protocols.models.classes import ClassModel
from protocols.models.model import Array


@dataclass(frozen=True, slots=True)
class Softmax(ClassModel):
    """The softmax of x W has the probabilities of the classes."""

    name = "softmax"
    title = "multinomial logistic regression"
    link = "score of a class = intercept + coef . x; probability = exp(score) / sum of exp(scores)"
    reference = "softmax"
    optimum = ("optimum without privacy", "best fit to all rows as they are, in clear")
    curvature = 0.5

    def loss(self, scores: Array, y: Array) -> Array:
        """ln(sum_j exp(z_j)) - z_y, shape (rows,)."""
        found: Array = logsumexp(scores, axis=1) - (y * scores).sum(axis=1)
        return found

    def residual_bound(self, outputs: int, norm: int) -> float:
        """2^(1/q)."""
        return math.pow(2, 1 / norm)

    def in_data_units(
        self, coef: Array, intercept: Array, low: Array, width: Array
    ) -> tuple[Array, Array]:
        """With sum 0 over the classes."""
        return coef - np.mean(coef, axis=0), intercept - np.mean(intercept)
