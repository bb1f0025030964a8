"""The figure of merit of `utility` for accelerated rules, one setting at a time.

The mean field is the same; the state of a column is (w_t, w_{t-1}), linear in both, and its noise a
covariance of the two. A preconditioned step of column j is N_t / b_j with b_j = offset +
c E|x_j| sum_k E|x_k|, for Gaussian columns E|x_j| = sqrt(2 q_j / pi).
"""

from __future__ import annotations

import math

import numpy as np

from protocols.approximation import Polynomial
from protocols.privacy.utility import (
    TRUE_LOGIT_VARIANCE,
    Floats,
    mean_slope,
    population,
    true_slope,
)
from protocols.privacy.walk import AcceleratedRule


def merit(rule: AcceleratedRule, p: Polynomial, noise: float, features: int) -> float:
    """Correlation of score and true logit after the last iteration; 0 where it diverges.

    Args:
        rule: for rows of norm 1.
        p: the sigmoid's polynomial.
        noise: std of ALL parties' noise on the mean gradient.
        features: d, bias included.
    """
    q, truth, count = population(features)
    slope, push = p.derivative(), true_slope() * q * truth
    gain = _gain(rule, q, count)
    signal: Floats = np.zeros(q.size)
    momenta = rule.momenta
    before, var, cross, var_before = signal, signal, signal, signal
    for t, step in enumerate(rule.rates):
        m = momenta[t - 1] if t else 0.0
        ahead = (1 + m) * signal - m * before
        spread = (1 + m) ** 2 * var - 2 * m * (1 + m) * cross + m * m * var_before
        width = math.sqrt(float((ahead**2 + spread) @ (q * count)))
        factor = 1 - step * gain * q * mean_slope(slope, width, p.radius)
        cross, var_before = factor * ((1 + m) * var - m * cross), var
        var = factor**2 * spread + (step * gain * noise) ** 2
        signal, before = factor * ahead + step * gain * push, signal
    energy = float((signal**2 + var) @ (q * count))
    aligned = float(signal @ (q * truth * count))
    value = aligned / math.sqrt(TRUE_LOGIT_VARIANCE * energy) if energy > 0 else 0.0
    return value if math.isfinite(value) else 0.0


def _gain(rule: AcceleratedRule, q: Floats, count: Floats) -> Floats:
    """1 / b per column group, or 1."""
    c = rule.curvature
    if c is None:
        return np.ones(q.size)
    mean = np.sqrt(2 * q / math.pi)
    return np.asarray(1 / (c.offset + c.constant * mean * float(mean @ count)))
