"""Convergence and noise of momentum methods, as linear dynamical systems on quadratics.

Along an eigenvector of curvature l, with q = 1 - alpha l, w - w* follows x+ = s x - p x_prev -
alpha noise with

    heavy ball: s = 1 + beta - alpha l, p = beta;      Nesterov: s = (1 + beta) q, p = beta q.

The rate is the spectral radius of [[s, -p], [1, 0]], the largest over the spectrum. It is
quasi-convex in l, hence largest at an end of [mu, L]. Noise of variance 1 keeps x at a variance of

    heavy ball: alpha (1 + beta) / ((1 - beta) l (2 + 2 beta - alpha l)),
    Nesterov:   alpha (1 + beta q) / (l (1 - beta q) (1 + (1 + 2 beta) q)),

the squared H2 norm: alpha^2 (1 + p) / ((1 - p) ((1 + p)^2 - s^2)) for any such recursion. A faster
rate costs more noise. arXiv:2008.01989, Theorem 3.5, has the heavy ball's variance; the roots that
its statement prints, (26), are Nesterov's, those of its proof (B.3) the heavy ball's.

Noise grows with the number of iterations that share a budget, so no pair (alpha, beta) is best for
all: `expected_error` weighs both for given noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError

Floats = NDArray[np.float64]
Method = Literal["hb", "nag"]

METHODS: tuple[Method, ...] = ("hb", "nag")


@dataclass(frozen=True, kw_only=True, slots=True)
class Curvature:
    """Bounds on the curvature of the whole objective.

    Attributes:
        mu: strong convexity, > 0.
        smoothness: L >= mu.
        is_public: False where private rows entered. A step, schedule or number of iterations
            chosen from such bounds depends on the data, and no privacy statement covers it.

    Raises:
        ParameterError: a field is out of range; the message names it.
    """

    mu: float
    smoothness: float
    is_public: bool = True

    def __post_init__(self) -> None:
        """Check the fields."""
        if not 0 < self.mu <= self.smoothness < math.inf:
            raise ParameterError(
                f"mu={self.mu}, smoothness={self.smoothness}: need 0 < mu <= smoothness; "
                "a ridge term gives mu > 0"
            )

    @property
    def condition(self) -> float:
        """kappa = L / mu."""
        return self.smoothness / self.mu


def logistic_curvature(*, penalty: float, norm_bound: float) -> Curvature:
    """Of the mean logistic loss plus penalty ||w||^2, from public numbers alone.

    mu = 2 penalty and L = B^2 / 4 + 2 penalty, because sigmoid' <= 1/4.

    Args:
        penalty: lambda > 0; the update rules' `ridge` is 2 lambda.
        norm_bound: B, bound on every row's l2 norm, bias column included.
    """
    if not (penalty > 0 and norm_bound > 0):
        raise ParameterError(f"penalty={penalty}, norm_bound={norm_bound}: both must be > 0")
    return Curvature(mu=2 * penalty, smoothness=norm_bound**2 / 4 + 2 * penalty)


def estimated_curvature(rows: Floats, *, penalty: float, slope: float = 0.25) -> Curvature:
    """NOT PRIVATE: L = slope * (largest eigenvalue of X^T X / n) + 2 lambda, from the rows.

    Args:
        rows: X, shape (n, d).
        penalty: lambda > 0; mu = 2 lambda, as the logistic loss flattens out.
        slope: bound on the loss's second derivative, 1/4 for the logistic loss;
            arXiv:2008.01989, section 5, takes 1, four times the curvature that there is.
    """
    if not (penalty > 0 and slope > 0):
        raise ParameterError(f"penalty={penalty}, slope={slope}: both must be > 0")
    top = float(np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1])
    smoothness = slope * max(top, 0.0) + 2 * penalty
    return Curvature(mu=2 * penalty, smoothness=smoothness, is_public=False)


def companion(method: Method, *, alpha: float, beta: float, curvature: float) -> Floats:
    """[[s, -p], [1, 0]]: (x_t, x_{t-1}) -> (x_{t+1}, x_t) without noise."""
    s, p = _coefficients(method, alpha, beta, np.array(curvature))
    return np.array([[float(s), -float(p)], [1.0, 0.0]])


def rate(method: Method, *, alpha: float, beta: float, bounds: Curvature) -> float:
    """Spectral radius over all curvatures in [mu, L]; below 1 exactly if the method converges."""
    s, p = _coefficients(method, alpha, beta, np.array([bounds.mu, bounds.smoothness]))
    gap = s**2 - 4 * p
    real = (np.abs(s) + np.sqrt(np.maximum(gap, 0.0))) / 2
    return float(np.where(gap >= 0, real, np.sqrt(np.abs(p))).max())


def stationary_variance(
    method: Method, *, alpha: float, beta: float, curvatures: Floats | Sequence[float]
) -> Floats:
    """Variance of w - w* along each eigenvector per unit variance of the gradient's noise.

    Returns:
        float64 array of the shape of `curvatures`; inf where the recursion does not converge.
    """
    s, p = _coefficients(method, alpha, beta, np.asarray(curvatures, dtype=float))
    stable = (np.abs(p) < 1) & (np.abs(s) < 1 + p)
    denominator = np.where(stable, (1 - p) * ((1 + p) ** 2 - s**2), 1.0)
    return np.where(stable, alpha**2 * (1 + p) / denominator, np.inf)


def amplification(method: Method, *, alpha: float, beta: float, bounds: Curvature) -> float:
    """Stationary suboptimality per coordinate and unit noise variance, worst case over [mu, L].

    l / 2 times the variance; quasi-convex in l, hence largest at an end. For d coordinates with
    noise of variance v the suboptimality settles at d v times this, or below.
    """
    ends = np.array([bounds.mu, bounds.smoothness])
    variance = stationary_variance(method, alpha=alpha, beta=beta, curvatures=ends)
    return float((ends / 2 * variance).max())


def expected_error(
    method: Method,
    *,
    alpha: float,
    beta: float,
    curvatures: Floats | Sequence[float],
    distances: Floats | Sequence[float],
    variances: Floats | Sequence[float],
) -> float:
    """E F(w_T) - F* on a quadratic, exactly, from rest at w_0.

    sum_i l_i / 2 (x_i^2 (h_T - p h_{T-1})^2 + alpha^2 sum_t h_{T-1-t}^2 Var_t), where h is the
    impulse response, h_0 = 1, h_1 = s, h_{k+1} = s h_k - p h_{k-1}, and x_{-1} = x_0 contributes
    -p h_{T-1}.

    Args:
        method: "hb" or "nag".
        alpha: step.
        beta: momentum.
        curvatures: eigenvalues l_i of the Hessian, shape (d,).
        distances: w_0 - w* along the eigenvectors, shape (d,).
        variances: of each coordinate's noise in iteration t = 0 .. T - 1, shape (T,), T >= 1.
    """
    values = np.asarray(curvatures, dtype=float)
    s, p = _coefficients(method, alpha, beta, values)
    responses = [np.zeros_like(s), np.ones_like(s)]
    for _ in variances:
        responses.append(s * responses[-1] - p * responses[-2])
    h = np.array(responses)[1:]
    last, before = h[-1], h[-2]
    bias = np.asarray(distances, dtype=float) * (last - p * before)
    noise = alpha**2 * (np.asarray(variances, dtype=float)[::-1] @ h[:-1] ** 2)
    return float(values / 2 @ (bias**2 + noise))


def _coefficients(method: Method, alpha: float, beta: float, l: Floats) -> tuple[Floats, Floats]:  # noqa: E741
    """(s, p) of x+ = s x - p x_prev at the curvatures l."""
    if not (alpha > 0 and 0 <= beta < 1):
        raise ParameterError(f"alpha={alpha}, beta={beta}: need alpha > 0 and 0 <= beta < 1")
    if method == "hb":
        return 1 + beta - alpha * l, np.full_like(l, beta)
    if method == "nag":
        q = 1 - alpha * l
        return (1 + beta) * q, beta * q
    raise ParameterError(f"method={method!r} is not one of {', '.join(METHODS)}")
