"""Plaintext DP baselines for one holder of all rows: gradient descent, SGD, output perturbation.

All are central: one trusted curator adds all noise. Noise is float64 from NumPy's generator, so
none of this protects anybody; it answers what an algorithm costs in accuracy. Rows have norm at
most 1; labels are real for ridge, -1 or 1 for logistic and svm. The objective is
(1/N) sum_i l_i(x_i . theta) + (lambda/2) |theta|^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError
from protocols.privacy.loss import mu_for_epsilon
from protocols.privacy.loss.poisson import poisson_noise_multiplier

Array = NDArray[np.float64]
SmoothLoss = Literal["ridge", "logistic"]
Loss = Literal["ridge", "logistic", "svm"]
_SOLVED = 1e-9  # gradient norm at which an optimum counts as found


def slope(loss: Loss, z: Array, y: Array) -> Array:
    """l'(z), entry by entry; of the hinge 0 at its corner."""
    if loss == "ridge":
        return z - y
    if loss == "svm":
        return np.where(y * z < 1.0, -y, 0.0)
    found: Array = -y / (1.0 + np.exp(np.clip(y * z, -700.0, 700.0)))
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class DpSgd:
    """Public numbers of a central run of DP-SGD; DP-GD with one batch.

    Attributes:
        loss: "ridge", "logistic" or "svm".
        lam: lambda >= 0; its gradient is added after the noise, being public.
        batches: K >= 1: every row joins a round with probability 1 / K, in secret.
        rounds: T >= 1.
        clip: C > 0, bound of one row's gradient norm.
        rate: learning rate > 0.

    Raises:
        ParameterError: a field is out of range.
    """

    loss: Loss
    lam: float
    batches: int
    rounds: int
    clip: float
    rate: float

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.loss not in get_args(Loss):
            raise ParameterError(f"loss={self.loss!r} is not one of {', '.join(get_args(Loss))}")
        if self.batches < 1 or self.rounds < 1:
            raise ParameterError(
                f"batches={self.batches}, rounds={self.rounds}: both must be at least 1"
            )
        if not (self.lam >= 0 and self.clip > 0 and self.rate > 0):
            raise ParameterError(
                f"lam={self.lam}, clip={self.clip}, rate={self.rate}: need >= 0, > 0, > 0"
            )

    def noise_std(self, *, epsilon: float, delta: float) -> float:
        """Noise std on a round's SUM of clipped gradients, replace-one.

        `protocols.privacy.loss.poisson`; 2 C sqrt(T) / mu for the full batch.
        """
        return self.clip * poisson_noise_multiplier(
            epsilon=epsilon, delta=delta, rate=1.0 / self.batches, rounds=self.rounds
        )


def dp_sgd(plan: DpSgd, x: Array, y: Array, std: float, rng: np.random.Generator) -> Array:
    """theta -= rate (noisy sum / (N / K) + lambda theta), T times from 0; shape (d,).

    std: on the sum, from `DpSgd.noise_std`; 0 for none.
    """
    *_, theta = dp_sgd_course(plan, x, y, std, rng)
    return theta


def dp_sgd_course(
    plan: DpSgd, x: Array, y: Array, std: float, rng: np.random.Generator
) -> Iterator[Array]:
    """theta of `dp_sgd` after every round."""
    theta: Array = np.zeros(x.shape[1])
    norms = np.linalg.norm(x, axis=1)
    expected = len(x) / plan.batches
    for _ in range(plan.rounds):
        if plan.batches == 1:
            total = clipped_sum(plan, x, y, norms, theta)
        else:
            batch = np.flatnonzero(rng.random(len(x)) < 1.0 / plan.batches)
            total = clipped_sum(plan, x[batch], y[batch], norms[batch], theta)
        noisy = total + std * rng.standard_normal(theta.size)
        theta = theta - plan.rate * (noisy / expected + plan.lam * theta)
        yield theta


def clipped_sum(plan: DpSgd, x: Array, y: Array, norms: Array, theta: Array) -> Array:
    """sum_i g_i / max(1, |g_i| / C), g_i = l'(x_i . theta) x_i; one row moves it by at most C."""
    push = slope(plan.loss, x @ theta, y)
    size = np.abs(push) * norms
    total: Array = (push / np.maximum(1.0, size / plan.clip)) @ x
    return total


Trainer = Callable[[DpSgd, Array, Array, float, np.random.Generator], Array]
BACKENDS: dict[str, Trainer] = {"numpy": dp_sgd}
"""Who runs DP-SGD. A torch backend registers itself here; none is imported."""


def optimum(loss: SmoothLoss, lam: float, x: Array, y: Array) -> Array:
    """The minimiser by Newton's method, to a gradient norm of 1e-9.

    Raises:
        ParameterError: lam is not > 0, or it is so small that the method does not settle.
    """
    if not lam > 0:
        raise ParameterError(f"lam={lam} is not > 0: there may be no unique optimum")
    theta: Array = np.zeros(x.shape[1])
    for _ in range(100):
        z = x @ theta
        gradient = slope(loss, z, y) @ x / len(x) + lam * theta
        if np.linalg.norm(gradient) <= _SOLVED:
            return theta
        bend = np.ones_like(z) if loss == "ridge" else _spread(z)
        hessian = (x.T * bend) @ x / len(x) + lam * np.eye(theta.size)
        theta -= np.linalg.solve(hessian, gradient)
    raise ParameterError(f"lam={lam} is too small for Newton's method on these rows: raise it")


def _spread(z: Array) -> Array:
    p = 1.0 / (1.0 + np.exp(-np.clip(z, -700.0, 700.0)))
    found: Array = p * (1.0 - p)
    return found


def output_sensitivity(
    loss: SmoothLoss, lam: float, rows: int, largest_label: float = 1.0
) -> float:
    """Replace-one l2 sensitivity of `optimum`, 2 G / (N lambda) + 2 tol / lambda.

    F is lambda-strongly convex and its gradients on two neighbours differ by at most 2 G / N at
    either optimum (Chaudhuri, Monteleoni, Sarwate, JMLR 12, 2011, Corollary 8). logistic: G = 1.
    ridge with |y| <= Y: F(theta*) <= F(0) gives |theta*| <= Y / sqrt(lambda), so
    G = Y + Y / sqrt(lambda). The solver stops within tol / lambda of the optimum.
    """
    bound = 1.0 if loss == "logistic" else largest_label * (1.0 + 1.0 / math.sqrt(lam))
    return 2.0 * bound / (rows * lam) + 2.0 * _SOLVED / lam


def output_perturbation(
    loss: SmoothLoss,
    lam: float,
    x: Array,
    y: Array,
    *,
    epsilon: float,
    delta: float,
    largest_label: float = 1.0,
    rng: np.random.Generator,
) -> Array:
    """The regularised optimum plus Gaussian noise, shape (d,); one release, replace-one.

    largest_label: public Y of ridge; labels beyond it are clamped.
    """
    labels = np.clip(y, -largest_label, largest_label) if loss == "ridge" else y
    reach = output_sensitivity(loss, lam, len(x), largest_label)
    std = reach / mu_for_epsilon(epsilon=epsilon, delta=delta)
    return optimum(loss, lam, x, labels) + std * rng.standard_normal(x.shape[1])
