r"""The heavy-ball method with noise on a quadratic: Theorem 3.5 of arXiv:2008.01989, and the truth.

    x+ = x - alpha (lambda x + noise) + beta (x - x_prev) along each eigenvalue lambda

**Rate.** The pair (x, x_prev) moves by [[1 + beta - alpha lambda, -beta], [1, 0]], whose
eigenvalues solve a^2 - (1 + beta - alpha lambda) a + beta = 0. The paper's (26) solves
a^2 - (1 + beta)(1 - alpha lambda) a + beta (1 - alpha lambda) = 0: Nesterov's method. Where roots
are complex the moduli are sqrt(beta) and sqrt(beta (1 - alpha lambda)): (26) is too small. Both
are 1 - sqrt(alpha mu) at least, for heavy ball at beta = (1 - sqrt(alpha mu))^2, in (26) at
beta = (1 - sqrt(alpha mu)) / (1 + sqrt(alpha mu)).

**Noise.** A second-order autoregression with noise of variance sigma^2 has the stationary variance
alpha (1 + beta) sigma^2 / ((1 - beta) lambda (2 + 2 beta - alpha lambda)), the summand of the
paper's m(alpha, beta). What it adds to F is lambda / 2 times that, so L m is at least twice it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def heavy_ball_rate(eigenvalues: Sequence[float], alpha: float, beta: float) -> float:
    """Largest modulus of the recursion's roots."""
    return max(_modulus(1 + beta - alpha * e, beta) for e in eigenvalues)


def printed_rate(eigenvalues: Sequence[float], alpha: float, beta: float) -> float:
    """(26), of Nesterov's method."""
    return max(_modulus((1 + beta) * (1 - alpha * e), beta * (1 - alpha * e)) for e in eigenvalues)


def _modulus(trace: float, determinant: float) -> float:
    return float(np.abs(np.roots([1.0, -trace, determinant])).max())


def stationary_variances(
    eigenvalues: Sequence[float], alpha: float, beta: float, std: float
) -> Floats:
    """Of x along each eigenvalue, shape (d,)."""
    e = np.asarray(eigenvalues)
    return np.asarray(
        std**2 * alpha * (1 + beta) / ((1 - beta) * e * (2 + 2 * beta - alpha * e)), dtype=float
    )


def printed_bound(
    eigenvalues: Sequence[float],
    alpha: float,
    beta: float,
    *,
    rounds: int,
    std: float,
    start: float,
) -> float:
    """(25) with C_t = t; start: the norm of (xi_0 - xi*)(xi_0 - xi*)^T."""
    rho = printed_rate(eigenvalues, alpha, beta)
    lyapunov = start + (std * alpha) ** 2 / (1 - rho**2)
    noise = stationary_variances(eigenvalues, alpha, beta, std).sum()
    return float(lyapunov * rounds**2 * rho ** (2 * rounds) + max(eigenvalues) * noise)


def exact_error(
    eigenvalues: Sequence[float],
    alpha: float,
    beta: float,
    *,
    rounds: int,
    std: float,
    start: float,
    nesterov: bool = False,
) -> float:
    """E F(x_T) - F* from x_0 = x_{-1} with `start` spread evenly, by the covariance recursion.

    nesterov: of Nesterov's method instead, whose gradient is taken at (1 + beta) x - beta x_prev.
    """
    total = 0.0
    for e in eigenvalues:
        past = 1 - alpha * e if nesterov else 1.0
        step = np.array([[(1 + beta) * past, -beta * past], [1.0, 0.0]])
        if not nesterov:
            step[0, 0] -= alpha * e
        second = np.full((2, 2), start / (2 * len(eigenvalues)))
        noise = np.diag([(alpha * std) ** 2, 0.0])
        for _ in range(rounds):
            second = step @ second @ step.T + noise
        total += e / 2 * float(second[0, 0])
    return total
