"""How a privacy budget is divided among the iterations of an accelerated method.

An error bound E_T <= a_{T,0} E_0 + (d / 2) sum_t a_{T,t} Var_t (arXiv:2008.01989, Theorems 4.1 and
4.3) weighs the noise variance Var_t of each coordinate of iteration t. D is the replace-one
sensitivity of the released mean gradient. The division that minimises the bound is

- Laplace, D in l1, Var_t = 2 b_t^2, b_t = D / eps_t, sum_t eps_t = eps:
  eps_t ~ a_t^(1/3), bound a_0 E_0 + d (D / eps)^2 (sum_t a_t^(1/3))^3 (Proposition 4.2, (32));
- Gaussian, D in l2, Var_t = sigma_t^2 = D^2 / (2 rho_t), sum_t rho_t = rho (zCDP): the derivative
  -a_t / rho_t^2 is the same for all t, so rho_t ~ a_t^(1/2), bound a_0 E_0 + d D^2 / (4 rho)
  (sum_t a_t^(1/2))^2.

E_0 bounds the Lyapunov function at the start, F(w_0) - F* + (mu / 2) ||w_0 - w*||^2, hence
2 (F(w_0) - F*) will do. The paper has F(w_0) - F* itself, which is a slip: along curvature mu
Nesterov's method exceeds that bound by up to 4 / e without any noise, after 1 / sqrt(mu alpha)
iterations.

The bound's weights come from mu, L and steps alone, so a schedule from public curvature is public.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from protocols.errors import ParameterError

Floats = NDArray[np.float64]

MECHANISMS = ("laplace", "gaussian")
# The optimal share of iteration t is proportional to a_t^(1/k).
_ROOT = {"laplace": 3, "gaussian": 2}


def log_error_weights(
    rates: Sequence[float], stages: Sequence[int], *, mu: float, smoothness: float
) -> Floats:
    """Logarithms of the error bound's weights a_{T,t} (arXiv:2008.01989, Theorem 4.3).

    ln a_{T,t} = (s_T - s_t) ln 2 + sum_{i>t} ln(1 - sqrt(mu alpha_i)) + ln(alpha_t (1 + alpha_t L))
    for t >= 1; the last term is missing at t = 0, and s_0 = s_1.

    Args:
        rates: alpha_1 .. alpha_T, each in (0, 1/L].
        stages: s_1 .. s_T, not decreasing.
        mu: strong convexity, 0 < mu < L.
        smoothness: L.

    Returns:
        float64 array, shape (T + 1,), t = 0 .. T.

    Raises:
        ParameterError: a field is out of range.
    """
    alpha, stage = np.asarray(rates, dtype=float), np.asarray(stages)
    if alpha.shape != stage.shape or alpha.ndim != 1 or not alpha.size:
        raise ParameterError(f"{alpha.size} rates and {stage.size} stages: need one of each per t")
    if not 0 < mu < smoothness:
        raise ParameterError(f"mu={mu}, smoothness={smoothness}: need 0 < mu < smoothness")
    if not (alpha > 0).all() or alpha.max() * smoothness > 1 + 1e-12:
        raise ParameterError(f"rates up to {alpha.max()} are outside (0, 1/L={1 / smoothness}]")
    if (np.diff(stage) < 0).any():
        raise ParameterError("stages decrease")
    decay = np.log1p(-np.sqrt(mu * alpha))
    later = np.append(np.cumsum(decay[::-1])[::-1], 0.0)  # sum over i > t, t = 0 .. T
    doubled = math.log(2) * (stage[-1] - np.append(stage[0], stage))
    here = np.append(0.0, np.log(alpha * (1 + alpha * smoothness)))
    return np.asarray(doubled + later + here, dtype=float)


def optimal_shares(log_weights: Floats, mechanism: str) -> Floats:
    """Shares of the budget that minimise sum_t a_t Var_t, shape (T,), summing to 1.

    log_weights: ln a_{T,1} .. ln a_{T,T}; mechanism: "laplace" or "gaussian".
    """
    scaled = np.asarray(log_weights, dtype=float) / _root(mechanism)
    shares = np.exp(scaled - logsumexp(scaled))
    return np.asarray(shares / shares.sum(), dtype=float)


def optimal_bound(
    log_weights: Floats,
    *,
    mechanism: str,
    sensitivity: float,
    budget: float,
    dim: int,
    initial_error: float,
) -> float:
    """The error bound at the optimal division; arXiv:2008.01989, (32), or its Gaussian twin.

    log_weights: ln a_{T,0} .. ln a_{T,T}; sensitivity: D; budget: epsilon or rho of all iterations
    together; dim: d; initial_error: E_0 >= 0, an upper guess of 2 (F(start) - F*).
    """
    root = _root(mechanism)
    ratio = (sensitivity / budget) ** 2 if root == 3 else sensitivity**2 / (4 * budget)
    log_sum = float(logsumexp(np.asarray(log_weights[1:]) / root))
    return math.exp(log_weights[0]) * initial_error + dim * ratio * math.exp(root * log_sum)


def best_rounds(
    rates: Sequence[float],
    stages: Sequence[int],
    *,
    mu: float,
    smoothness: float,
    mechanism: str,
    sensitivity: float,
    budget: float,
    dim: int,
    initial_error: float,
) -> int:
    """The number of iterations T' in 1 .. T with the smallest `optimal_bound`; the first, if tied.

    Arguments as in `log_error_weights` and `optimal_bound`; a run of T' takes the first T' steps.
    """
    bounds = [
        optimal_bound(
            log_error_weights(rates[:end], stages[:end], mu=mu, smoothness=smoothness),
            mechanism=mechanism,
            sensitivity=sensitivity,
            budget=budget,
            dim=dim,
            initial_error=initial_error,
        )
        for end in range(1, len(rates) + 1)
    ]
    return int(np.argmin(bounds)) + 1


def _root(mechanism: str) -> int:
    if mechanism not in MECHANISMS:
        raise ParameterError(f"mechanism={mechanism!r} is not one of {', '.join(MECHANISMS)}")
    return _ROOT[mechanism]
