"""What an encrypted regression on sums is compared with: its twin, and scikit-learn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, Ridge

from parties.kernel.gram.sums import GramSums
from protocols.gram.contributions import GramTask

Array = NDArray[np.float64]


def run_gram_twin(
    task: GramTask,
    sums: GramSums,
    on_iteration: Callable[[int, Array], None] = lambda t, w: None,
) -> Array:
    """The task in float64 on all parties' sums, noise included; W, shape (d, c)."""
    unit, pace = task.num_rows * task.scale, task.pace
    hessian = 2 * sums.gram / unit + task.shift * np.eye(task.num_features)
    targets = 2 * sums.cross / unit
    inverse: Array = np.ones((task.num_features, 1))
    if task.row_sums:
        inverse = task.inverse.invert(sums.row_sums / unit + task.inverse.low)[:, None]
    inverse = inverse / task.slack
    before: Array = np.zeros_like(targets)
    moved = before
    for t, (factor, size) in enumerate(zip(pace.targets, pace.sizes, strict=True)):
        step = inverse * (factor * targets - pace.gain * (hessian @ moved))
        before, moved = moved, pace.level * moved - pace.pull * before + step
        on_iteration(t, moved / size)
    return moved / pace.last


def unlearnt(task: GramTask, sums: GramSums, weights: Array) -> Array:
    """By how much more iterations would lower the mean squared error, by output, shape (c,).

    (W - W*)^T (X^T X / N + ridge) (W - W*), W* the minimiser for these sums.
    """
    hessian = sums.gram / task.num_rows + task.ridge * np.eye(task.num_features)
    best = np.linalg.lstsq(hessian, sums.cross / task.num_rows, rcond=None)[0]
    gap: Array = np.einsum("kc,kj,jc->c", weights - best, hessian, weights - best)
    return gap


def ridge_solution(rows: Array, targets: Array, ridge: float, weight: Array | None = None) -> Array:
    """Minimiser of mean |X W - Y|^2 + ridge |W|^2 by scikit-learn, shape (d, c).

    ridge 0: least squares of least norm.
    """
    # scikit-learn minimises the sum, and the bias is a column of ours like any other.
    fit = LinearRegression(fit_intercept=False)
    if ridge:
        fit = Ridge(alpha=len(rows) * ridge, fit_intercept=False, solver="cholesky")
    coef = np.asarray(fit.fit(rows, targets, sample_weight=weight).coef_)
    return coef.reshape(targets.shape[1], -1).T
