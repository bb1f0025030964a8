"""How far a model is from the maximum likelihood of its rows, in standard errors.

With I the information of the rows at the maximum w*, standard errors are the roots of the diagonal
of I^-1, of least squares times the residual variance: those of statsmodels' Logit, OLS and Poisson.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from protocols.models.poisson import Poisson

Array = NDArray[np.float64]
MOST_ERRORS = 1.0
"""Of a coefficient, before a reader is told."""


class Farthest(NamedTuple):
    """The coefficient that is farthest off: its place, output and distance [standard errors]."""

    place: int
    output: int
    errors: float

    def words(self, names: Sequence[str], weights: Array, best: Array) -> str:
        """In a sentence; names: of the features, without the intercept."""
        own, due = (
            each.reshape(len(each), -1)[self.place, self.output] for each in (weights, best)
        )
        name = [*names, "the intercept"][self.place]
        sign = ", of the other sign" if own * due < 0 else ""
        return (
            f"the coefficient of {name} is {self.errors:.3g} standard errors from the maximum "
            f"likelihood of these rows ({own:.4g} for {due:.4g}, scaled units{sign})"
        )


def information(
    model: str, x: Array, y: Array, best: Array, weight: Array, high: float = 1.0
) -> Array | None:
    """Of each output's coefficients, shape (outputs, d, d); None: not known of such models.

    high: of counts, the end of their range.
    """
    scores = (x @ best).reshape(len(x), -1)
    if model == "logistic":
        means = expit(scores)
        curved = means * (1 - means)
    elif model == "poisson":
        curved = high * np.exp(scores - Poisson().radius)
    elif model == "linear":
        freedom = max(len(x) - x.shape[1], 1)
        residuals = (scores - y.reshape(scores.shape)) ** 2 * weight[:, None]
        curved = np.ones_like(scores) * freedom / np.maximum(residuals.sum(axis=0), 1e-300)
    else:
        return None
    curved = curved * weight[:, None]
    return np.stack([x.T @ (x * column[:, None]) for column in curved.T])


def farthest(
    model: str,
    x: Array,
    y: Array,
    weights: Array,
    best: Array,
    weight: Array,
    high: float = 1.0,
) -> Farthest | None:
    """x: encoded rows, bias last, without offsets; weights, best: shape (d,) or (d, outputs).

    Columns that others determine are not told apart: distances are along what the rows can tell.
    """
    found = information(model, x, y, best, weight, high)
    if found is None or not np.isfinite(weights).all():
        return None
    apart = (weights - best).reshape(len(weights), -1)
    errors = np.empty_like(apart)
    for k, matrix in enumerate(found):
        inverse = np.linalg.pinv(matrix, rcond=1e-10, hermitian=True)
        # The part of the difference that moves a score.
        told = inverse @ (matrix @ apart[:, k])
        errors[:, k] = np.abs(told) / np.sqrt(np.maximum(np.diag(inverse), 1e-300))
    place, output = np.unravel_index(int(np.argmax(errors)), errors.shape)
    return Farthest(int(place), int(output), float(errors[place, output]))
