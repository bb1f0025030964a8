r"""The multi-output regressions of the LFFR paper in plain float64; see `protocols.models`.

    linear    W <- W - B^-1 2 X^T (X W - Y),            b_k = eps + 2 sum_i |x_ik| sum_j |x_ij|
    LFFR      W <- W - B^-1 2 X^T ((s - y) s (1 - s)),  b_k = eps + 0.155 sum_i |x_ik| sum_j |x_ij|
    improved  linear on logit(gamma y + 1/2 - gamma / 2), gamma = 1/2
    enhanced mini-batch NAG  V for W in the gradient and in b of one batch after the other,
              W+ = V - N_t G,  V+ = W+ + m_t (W+ - W),  N_t and m_t of enhanced NAG (`rules`)

rows: X, shape (n, d), entries in [-1, 1], a column of ones last; targets: Y, shape (n, c), on
[0, 1] but for plain linear regression. Every rule yields X W as predictions after step 1, 2, ….
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from protocols.models.improved_lffr import ImprovedLffr
from protocols.models.lffr import CURVATURE, slope_of_loss
from sims.lab.papers.rules import momenta

Array = NDArray[np.float64]
Link = Callable[[Array], Array]
EPSILON = 1e-8


def signed_rows(frame: pd.DataFrame, labels: tuple[str, ...]) -> tuple[Array, Array]:
    """Columns scaled to [-1, 1] by their extremes and a column of ones; targets in their unit."""
    x = frame.drop(columns=list(labels)).to_numpy(dtype=np.float64)
    low, high = x.min(axis=0), x.max(axis=0)
    x = 2 * (x - low) / np.where(high > low, high - low, 1.0) - 1
    y: Array = frame[list(labels)].to_numpy(dtype=np.float64)
    return np.column_stack([x, np.ones(len(x))]), y


def unit_targets(targets: Array) -> Array:
    """On [0, 1] by their extremes."""
    low = targets.min(axis=0)
    scaled: Array = (targets - low) / (targets.max(axis=0) - low + EPSILON)
    return scaled


def row_sums(rows: Array) -> Array:
    """sum_i |x_ik| sum_j |x_ij|, shape (d, 1)."""
    size = np.abs(rows)
    sums: Array = size.T @ size.sum(axis=1)[:, None]
    return sums


def linear(rows: Array, targets: Array, steps: int, floor: float = EPSILON) -> Iterator[Array]:
    """Simplified fixed Hessian; floor: eps, added to b."""
    bound = floor + 2 * row_sums(rows)
    weights: Array = np.zeros((rows.shape[1], targets.shape[1]))
    for _ in range(steps):
        weights = weights - 2 * rows.T @ (rows @ weights - targets) / bound
        yield rows @ weights


def lffr(
    rows: Array, targets: Array, steps: int, floor: float = EPSILON, link: Link = expit
) -> Iterator[Array]:
    """Sigmoid of the scores; link: in place of the sigmoid while training."""
    bound = floor + CURVATURE * row_sums(rows)
    weights: Array = np.zeros((rows.shape[1], targets.shape[1]))
    for _ in range(steps):
        slope = slope_of_loss(link, rows @ weights, targets)  # type: ignore[arg-type]
        weights = weights - rows.T @ slope / bound
        yield expit(rows @ weights)


def improved(rows: Array, targets: Array, steps: int, floor: float = EPSILON) -> Iterator[Array]:
    """Linear on the logits."""
    model = ImprovedLffr()
    for scores in linear(rows, model.encode(targets), steps, floor):
        yield model.decode(scores)


def batched(
    rows: Array, targets: Array, passes: int, batches: int, link: Link | None = None
) -> Iterator[Array]:
    """Enhanced mini-batch NAG, after each pass: LFFR with a link, linear regression without.

    batches: of consecutive rows, each with a b of its own.
    """
    parts = list(zip(np.array_split(rows, batches), np.array_split(targets, batches), strict=True))
    weights: Array = np.zeros((rows.shape[1], targets.shape[1]))
    point = weights
    for t, momentum in enumerate(momenta(passes * batches)):
        x, y = parts[t % batches]
        scores = x @ point
        slope = 2 * (scores - y) if link is None else slope_of_loss(link, scores, y)  # type: ignore[arg-type]
        bound = EPSILON + (2 if link is None else CURVATURE) * row_sums(x)
        before, weights = weights, point - (1 + 0.9**t) * x.T @ slope / bound
        point = weights + momentum * (weights - before)
        if t % batches == batches - 1:
            found: Array = rows @ weights
            yield found if link is None else expit(found)


def least_squares(rows: Array, targets: Array) -> Array:
    """Predictions of the linear optimum."""
    found: Array = rows @ np.linalg.lstsq(rows, targets, rcond=None)[0]
    return found


def mse(predicted: Array, targets: Array) -> float:
    """Mean over outputs of the mean squared error."""
    return float(np.mean((predicted - targets) ** 2))
