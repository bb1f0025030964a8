"""How good a model a setting is likely to give, without looking at any data.

A mean-field model of noisy gradient descent on a reference population. Its m uncorrelated Gaussian
columns have variances q_j ~ 1/j, together (0.8 B)^2 (rows are clipped to norm B), and the true logit
has variance 4, an equal part from each column: the columns that vary least carry as much as the
others, which is what makes long training worth while. By Stein's lemma the expected gradient is
linear in the weights: E[(p(z) - s(z*)) x_j] = q_j (E[p'(z)] w_j - E[s'(z*)] w*_j). So the signal u_j
and the noise variance n_j of each weight follow
u_j <- (1 - V - eta q_j E[p'(z)]) u_j + eta q_j E[s'(z*)] w*_j,
n_j <- (1 - V - eta q_j E[p'(z)])^2 n_j + eta^2 sigma_total^2,
with z ~ N(0, sum_j q_j (u_j^2 + n_j)) and V the regulariser's shrinkage at the current norm.

The figure of merit is the correlation of score and true logit,
sum_j q_j u_j w*_j / sqrt(sum_j q_j w*_j^2 sum_j q_j (u_j^2 + n_j)): 1 for the truth, and blind to a
common scale, as a ranking is. It is a proxy: it ranks settings, it does not predict an accuracy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Slope = Callable[[Floats], Floats]
Shrinkage = Callable[[Floats], Floats]

TYPICAL_NORM = 0.8
TRUE_LOGIT_VARIANCE = 4.0
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def correlation(
    *,
    features: int,
    norm_bound: float,
    eta: Floats,
    rounds: NDArray[np.int64],
    noise: Floats,
    interval: Floats,
    slope: Slope,
    shrinkage: Shrinkage,
) -> Floats:
    """The figure of merit of n settings at once, each in 0 .. 1.

    Args:
        features: m, bias included.
        norm_bound: B.
        eta, rounds, noise, interval: shape (n,): learning rate, T, sigma_total, B R.
        slope: p'(z) for z of shape (nodes, n), column i being setting i's polynomial.
        shrinkage: V, shape (n,), for squared norms of shape (n,).

    Returns:
        float64 array, shape (n,); 0 where the recursion diverges.
    """
    n = eta.size
    q = 1.0 / np.arange(1, features + 1)
    q *= (TYPICAL_NORM * norm_bound) ** 2 / q.sum()
    truth = np.sqrt(TRUE_LOGIT_VARIANCE / features / q)
    logits = np.sqrt(TRUE_LOGIT_VARIANCE) * _NODES
    pull = float(np.sum(_WEIGHTS / (2 + 2 * np.cosh(logits)))) * q * truth
    signal = np.zeros((n, features))
    variance = np.zeros((n, features))
    result = np.zeros(n)
    with np.errstate(all="ignore"):
        for step in range(1, int(rounds.max()) + 1):
            energy = signal**2 + variance
            spread = np.sqrt(energy @ q)
            z = np.clip(_NODES[:, None] * spread, -interval, interval)
            curvature = _WEIGHTS @ slope(z)
            keep = 1 - shrinkage(energy.sum(axis=1))
            factor = keep[:, None] - np.outer(eta * curvature, q)
            signal = factor * signal + np.outer(eta, pull)
            variance = factor**2 * variance + (eta * noise)[:, None] ** 2
            done = rounds == step
            if done.any():
                energy = signal[done] ** 2 + variance[done]
                aligned = signal[done] @ (q * truth)
                result[done] = aligned / np.sqrt(TRUE_LOGIT_VARIANCE * (energy @ q))
    return np.nan_to_num(result, nan=0.0, posinf=0.0, neginf=0.0)
