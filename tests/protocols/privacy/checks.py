"""What this package's tests share: two-sided verdicts at p = 1e-6, and walks on the worst rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
P_VALUE = 1e-6


def std_accepted(values: NDArray[np.float64], std: float) -> bool:
    """Whether i.i.d. centred Gaussian values may have this standard deviation (chi^2)."""
    n = values.size
    statistic = float(np.sum((values / std) ** 2))
    tail = min(stats.chi2.cdf(statistic, n), stats.chi2.sf(statistic, n))
    return bool(2 * tail > P_VALUE)


def gaussian_accepted(values: NDArray[np.float64], std: float) -> bool:
    """Whether values may be i.i.d. N(0, std^2): chi^2 of the variance, and Kolmogorov-Smirnov."""
    ks = stats.kstest(values, stats.norm(scale=std).cdf).pvalue
    return std_accepted(values, std) and bool(ks > P_VALUE)


def laplace_accepted(values: NDArray[np.float64], scale: float) -> bool:
    """Whether values may be i.i.d. Laplace: sum of |x| is Gamma(n, scale), and KS."""
    n = values.size
    total = float(np.sum(np.abs(values))) / scale
    tail = min(stats.gamma.cdf(total, n), stats.gamma.sf(total, n))
    ks = stats.kstest(values, stats.laplace(scale=scale).cdf).pvalue
    return bool(2 * tail > P_VALUE and ks > P_VALUE)


def pmf_accepted(values: NDArray[np.int64], log_weights: NDArray[np.float64], low: int) -> bool:
    """Whether integers may have P(low + i) ~ exp(log_weights[i]) (chi^2, cells of >= 10)."""
    weights = np.exp(log_weights - log_weights.max())
    expected = values.size * weights / weights.sum()
    counts = np.bincount(np.clip(values - low, 0, weights.size - 1), minlength=weights.size)
    cells = expected >= 10
    observed = np.append(counts[cells], counts[~cells].sum())
    wanted = np.append(expected[cells], expected[~cells].sum())
    if wanted[-1] < 1:
        observed, wanted = observed[:-1], wanted[:-1] * (observed[:-1].sum() / wanted[:-1].sum())
    statistic = float(np.sum((observed - wanted) ** 2 / wanted))
    return bool(stats.chi2.sf(statistic, wanted.size - 1) > P_VALUE)


def worst_walk(
    setting: Any, shrink: Callable[[Floats], Any], *, bound: float, noise: float, trials: int
) -> Floats:
    """Largest |w| of each trial; in every round all rows point where they push hardest.

    The proofs allow that they do. shrink: factor of w by |w|; bound: length of the rows' mean.
    """
    rng, p, eta = np.random.default_rng(6), setting.sigmoid.polynomial, setting.learning_rate
    w = np.zeros((trials, setting.features))
    w[:, 0] = 1e-9
    largest, angles = np.zeros(trials), np.linspace(0, math.pi, 61)
    for _ in range(setting.rounds):
        norm = np.linalg.norm(w, axis=1)
        largest, factor = np.maximum(largest, norm), np.broadcast_to(shrink(norm), trials)
        along = w / norm[:, None]
        across = rng.standard_normal(w.shape)
        across -= np.einsum("ij,ij->i", across, along)[:, None] * along
        across /= np.linalg.norm(across, axis=1, keepdims=True)
        push = eta * bound * (1 - p(np.outer(norm, bound * np.cos(angles))))
        reach = (factor * norm)[:, None] + push * np.cos(angles)
        best = np.argmax(reach**2 + (push * np.sin(angles)) ** 2, axis=1)
        step = push[np.arange(trials), best][:, None]
        row = np.cos(angles[best])[:, None] * along + np.sin(angles[best])[:, None] * across
        w = factor[:, None] * w + step * row - eta * noise * rng.standard_normal(w.shape)
    return largest
