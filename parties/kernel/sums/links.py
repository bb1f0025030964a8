"""From scores to predictions, by the name of a model; what a model draws from them is its own."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, softmax, xlogy

from protocols.errors import ParameterError

Array = NDArray[np.float64]
RADIUS = 3.0
"""R of Poisson models: a mean is exp(z - R), z held on [-R, R]."""
GAMMA = 0.5
"""Of improved LFFR: the part of (0, 1) that the range of the targets is mapped to."""
CLASSES = ("softmax", "one-vs-rest")
TARGETS = ("linear", "improved-lffr", "lffr", "poisson")
MODELS = ("logistic", *CLASSES, *TARGETS)


def logits(model: str, scores: Array) -> Array:
    """Log-probabilities of K classes up to a constant of each row, shape (rows, K)."""
    found: Array = scores if model == "softmax" else log_expit(scores)
    return found


def decoded(model: str, scores: Array, radius: float = RADIUS, gamma: float = GAMMA) -> Array:
    """Targets on about [0, 1], the probability of a label, or those of classes; shape as scores.

    Raises:
        ParameterError: there is no such model.
    """
    if model in CLASSES:
        found: Array = softmax(logits(model, scores), axis=1)
    elif model in ("logistic", "lffr"):
        found = expit(scores)
    elif model == "improved-lffr":
        found = (expit(scores) - (1 - gamma) / 2) / gamma
    elif model == "poisson":
        found = np.exp(np.clip(scores, -radius, radius) - radius)
    elif model == "linear":
        found = scores
    else:
        raise ParameterError(f"model={model!r} is not one that this party knows")
    return found


def largest_deviance(radius: float = RADIUS) -> float:
    """Half of the deviance of a row of a Poisson model: y = 1 at the least mean."""
    return max(1.0, 2 * radius - 1 + math.exp(-2 * radius))


def deviances(y: Array, p: Array, radius: float = RADIUS) -> Array:
    """Half of the deviance over its bound, and -e y ln y, whose largest value is 1."""
    own = xlogy(y, y)
    half = own - xlogy(y, np.maximum(p, math.exp(-2 * radius))) - y + p
    return np.clip(np.stack([half / largest_deviance(radius), -math.e * own]), 0.0, 1.0)
