"""How good the probabilities of a label are: log loss, Brier score, calibration."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, expit

Array = NDArray[np.float64]
# Scores that differ by less, relative to the largest, are ties: it is rounding that orders them.
TIE = 1e-12
STEPS = 200
NEVER = (math.nan, math.nan)


def probability_figures(z: Array, positive: NDArray[np.bool_]) -> dict[str, float]:
    """Of scores z, log-odds of the positive label; shapes (rows,).

    log_loss: mean of -ln p(y) [nats]; base_rate_log_loss: that of the share of positive rows, its
    entropy; brier: mean (p - y)^2; slope and intercept: see `calibration`.
    """
    base = positive.mean()
    slope, intercept = calibration(z, positive)
    return {
        "log_loss": float(np.mean(np.logaddexp(0.0, np.where(positive, -z, z)))),
        "base_rate_log_loss": float(entr(base) + entr(1 - base)),
        "brier": float(np.mean((expit(z) - positive) ** 2)),
        "calibration_slope": slope,
        "calibration_intercept": intercept,
    }


def calibration(z: Array, positive: NDArray[np.bool_]) -> tuple[float, float]:
    """a, b of the most likely P(y = 1) = sigmoid(a z + b), by Newton's method; 1, 0 is perfect.

    NaN where there is none. There is one if and only if the classes' scores overlap from both
    sides (Albert and Anderson, Biometrika 71, 1984).
    """
    ones, others = z[positive], z[~positive]
    if not (len(ones) and len(others) and np.isfinite(z).all()):
        return NEVER
    overlap = min(others.max() - ones.min(), ones.max() - others.min())
    if overlap <= TIE * np.abs(z).max():
        return NEVER
    centre = z.mean()
    spread = np.abs(z - centre).mean()
    rows = np.column_stack([(z - centre) / spread, np.ones_like(z)])
    found: Array = np.zeros(2)
    for _ in range(STEPS):
        p = expit(rows @ found)
        gradient = rows.T @ (p - positive) / len(z)
        try:
            step = np.linalg.solve((rows.T * (p * (1 - p))) @ rows / len(z), gradient)
        except np.linalg.LinAlgError:
            break
        found = found - step
        if abs(gradient @ step) < 1e-24:  # twice what the loss can still fall by
            return float(found[0] / spread), float(found[1] - found[0] * centre / spread)
    return NEVER
