"""Learning rate and number of steps without noise: arXiv:2605.27782, Theorem 1 and Claim A.1.

Approximate gradient descent is exact gradient descent on the objective g whose gradient the
polynomial gives. g is beta-smooth with beta = max|p'| max|x|^2. With eta = 1 / beta and
T = 2 beta (g(0) - L) / rho^2 steps, some iterate has |grad g| <= rho; here g(0) = ln 2 and L = 0.
(Where the paper writes m for max|x|^2, the bias column has to be counted.)
"""

from __future__ import annotations

import math

from protocols.errors import ParameterError


def smoothness(*, max_slope: float, norm_bound: float, penalty: float = 0.0) -> float:
    """beta = max|p'| B^2 + penalty.

    Args:
        max_slope: max|p'| on the interval.
        norm_bound: B, bound on every row's norm, bias included.
        penalty: curvature of the regulariser, lam for a ridge term.

    Raises:
        ParameterError: the result is not positive and finite.
    """
    beta = max_slope * norm_bound**2 + penalty
    if not (math.isfinite(beta) and beta > 0):
        raise ParameterError(f"beta={beta} is not a finite number > 0")
    return beta


def learning_rate(beta: float) -> float:
    """eta = 1 / beta."""
    return 1.0 / beta


def steps(*, beta: float, gradient_norm: float, gap: float = math.log(2)) -> int:
    """T = ceil(2 beta gap / rho^2).

    Args:
        beta: smoothness.
        gradient_norm: rho, the gradient norm to reach.
        gap: g(0) - L, ln 2 for the logistic loss from w = 0.

    Raises:
        ParameterError: gradient_norm is not positive.
    """
    if not gradient_norm > 0:
        raise ParameterError(f"gradient_norm={gradient_norm} is not > 0")
    return max(1, math.ceil(2 * beta * gap / gradient_norm**2))
