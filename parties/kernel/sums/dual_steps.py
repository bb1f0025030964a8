"""Coordinate updates of the dual of L2-regularised linear models: ridge, logistic, SVM.

min_theta (1/N) sum_j l_j(x_j . theta) + (lambda/2) |theta|^2 is solved by moving single dual
variables alpha_j, theta = X^T alpha / (lambda N). The update zeta of one of L that move at once
minimises l_j*(-alpha_j - zeta) + m_j zeta + (c/2) zeta^2, where m_j = x_j . v / (lambda N) is the
row's margin under v = X^T alpha, and c = L / (lambda N) (arXiv:2006.07272, equation 8, with
|x_j| = 1; for |x_j| < 1 the step is only shorter).

Every array has shape (n,): one entry per row. Labels are real for ridge, -1 or 1 otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from protocols.errors import DataError

Array = NDArray[np.float64]
Loss = Literal["ridge", "logistic", "svm"]
# (alpha, margin, label, c) -> zeta
Step = Callable[[Array, Array, Array, float], Array]


def targets_of(loss: Loss, y: Array) -> Array:
    """What a loss is of, shape (n,), from a party's encoded table.

    y: labels 0 or 1, shape (n,), which become -1 or 1; or numeric targets, shape (n, 1), which
    ridge takes as they are.

    Raises:
        DataError: numeric targets for another loss, or several of them.
    """
    if y.ndim == 1:
        return 2.0 * y - 1.0
    if loss != "ridge" or y.shape[1:] != (1,):
        raise DataError(
            f"loss={loss!r} of numeric targets, shape {y.shape}: one target by ridge is possible"
        )
    return y[:, 0]


EDGE = 1e-4
"""The logistic dual variable times its label stays within [EDGE, 1 - EDGE]."""


def ridge_step(alpha: Array, margin: Array, label: Array, curvature: float) -> Array:
    """zeta = (y - alpha - m) / (1 + c), the exact minimiser for l(z) = (z - y)^2 / 2."""
    step: Array = (label - alpha - margin) / (1.0 + curvature)
    return step


def logistic_step(alpha: Array, margin: Array, label: Array, curvature: float) -> Array:
    """One Newton step for l(z) = ln(1 + exp(-y z)), with b = y alpha.

    b is first moved into [EDGE, 1 - EDGE], then by -(ln(b / (1 - b)) + y m) / (1 / (b (1 - b)) + c)
    and back into the interval; zeta is the whole way, so that v = X^T alpha still holds.
    """
    b = np.clip(label * alpha, EDGE, 1.0 - EDGE)
    spread = b * (1.0 - b)
    newton = (np.log(b / (1.0 - b)) + label * margin) * spread / (1.0 + curvature * spread)
    step: Array = label * np.clip(b - newton, EDGE, 1.0 - EDGE) - alpha
    return step


def svm_step(alpha: Array, margin: Array, label: Array, curvature: float) -> Array:
    """The exact minimiser for l(z) = max(0, 1 - y z): y alpha += (1 - y m) / c, within [0, 1]."""
    b = np.clip(label * alpha + (1.0 - label * margin) / curvature, 0.0, 1.0)
    step: Array = label * b - alpha
    return step


STEPS: dict[Loss, Step] = {"ridge": ridge_step, "logistic": logistic_step, "svm": svm_step}


def clipped(zeta: Array, clip: float | Array) -> Array:
    """zeta / max(1, |zeta| / C), entry by entry: |result| <= C; 0 where zeta is not a number."""
    return np.where(np.isnan(zeta), 0.0, np.clip(zeta, -clip, clip))


def dual_step(
    loss: Loss,
    *,
    alpha: Array,
    margin: Array,
    label: Array,
    curvature: float,
    clip: float | Array,
) -> Array:
    """Clipped updates zeta of several rows, each from its own row alone.

    Args:
        loss: which l.
        alpha: dual variables before the step.
        margin: m = x . v / (lambda N).
        label: y.
        curvature: c = L / (lambda N) > 0.
        clip: C > 0, of all rows or of each; infinity leaves zeta as it is.
    """
    return clipped(STEPS[loss](alpha, margin, label, curvature), clip)
