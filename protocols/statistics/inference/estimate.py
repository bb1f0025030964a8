"""From opened scores and information to coefficients and their covariance; docs/inference.md.

Without privacy: Newton's method, theta <- theta - I^-1 s, whose fixed point is the maximum
likelihood, with covariance I^-1. Columns that earlier ones determine (a category too many, a
constant) are left out, as R's `glm` does.

With privacy: at public points theta_k the sums open g_k = s_k + z_k and A_k = I_k + E_k,
z ~ N(0, sigma_k^2) per entry, E symmetric, E_ii ~ N(0, tau_k^2), E_ij ~ N(0, tau_k^2 / 2). Each is
a quadratic model of the likelihood; of those with points near the maximum theta^ the mean, weighted
by 1 / sigma_k^2 (w_k, summing to 1), has its maximum at

    theta = A^-1 sum_k w_k (A_k theta_k - g_k),   A = sum_k w_k A_k.

With delta_k = theta^ - theta_k, s_k = -I_k delta_k up to second order, hence

    theta - theta^ = -A^-1 sum_k w_k (z_k + E_k delta_k),

    Cov(E delta) = tau^2 / 2 (|delta|^2 1 + delta delta^T).

A point depends on earlier noise alone, so that these terms are uncorrelated, and theta^ - truth has
the covariance I^-1 by itself, times the dispersion c: for a given A

    V = c A^-1 + A^-1 sum_k w_k^2 (sigma_k^2 1 + tau_k^2 / 2 (|d_k|^2 1 + d_k d_k^T)) A^-1,

with d_k = theta - theta_k for delta_k, which is no smaller on average: it holds noise, too. No
budget is wasted: sum_k w_k^2 sigma_k^2 is that of one sum that costs as much as all of these.
Second order is sum_k w_k A^-1 T[delta_k, delta_k] / 2, T the third derivative: what the points
before have cost counts there, which is why the last of them is no cheap one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocols.errors import PrivacyError
from protocols.statistics.inference.budget import COUNTED, TOWARDS

Array = NDArray[np.float64]
ALIASED = 1e-8
"""Of the largest diagonal entry: what is left of a column that the others determine. Rounding of
rows (2^-41 of a part) leaves 1e-10, and 1e-4 of a standard error of what is above."""
CONVERGED = 1e-12
"""Squared Newton decrement: 1e-6 of a standard error is left, and the step removes it. Weights of
rows change by about as much, standard errors, which are of the point before, by half of that."""
SEPARATED = 1e-3
"""Of the largest information of a column so far, by itself or beside the others: all rows that it
touches are fitted to the end."""
LONGEST = 4.0
"""Of a first step, in any coefficient of a scaled column."""
FARTHER = 4.0
"""Of coefficients of columns that depend on each other; each step may be that much longer than the
one before, until one passes the maximum along itself."""
CLEAR = 1.0
"""Least eigenvalue of a noisy information, in norms of its noise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """theta: shape (d,), covariance: (d, d); noise: what privacy adds to it, 0 without.

    Of columns left out both are NaN.
    """

    theta: Array
    covariance: Array
    noise: Array


def left_by_others(information: Array, last: Sequence[int] = ()) -> Array:
    """What columns before it leave of each, shape (d,), 0 where they determine it.

    The bias, which stands last, comes before all others; last: places that come after them.
    """
    d = len(information)
    left = np.zeros(d)
    floor = ALIASED * float(np.max(np.diag(information)))
    for j in (d - 1, *sorted(set(range(d - 1)) - set(last)), *last):
        kept = left > 0
        cross = information[kept, j]
        own = np.linalg.solve(information[np.ix_(kept, kept)], cross)
        rest = float(information[j, j] - cross @ own)
        left[j] = rest if rest > floor else 0.0
    return left


class Newton:
    """Steps towards the maximum of a concave likelihood, from any point."""

    def __init__(self) -> None:
        self._reach, self._last = LONGEST / FARTHER, np.zeros(0)

    def step(
        self, theta: Array, score: Array, information: Array, kept: NDArray[np.bool_]
    ) -> tuple[Array, float]:
        """The next point and the squared decrement; coefficients of other columns are 0.

        Raises:
            LinAlgError: the information is singular.
        """
        passed = bool(self._last.size and score @ self._last < 0)
        self._reach = np.abs(self._last).max() / 2 if passed else self._reach * FARTHER
        step = np.zeros_like(theta)
        step[kept] = np.linalg.solve(information[np.ix_(kept, kept)], score[kept])
        size = float(np.abs(step).max(initial=0.0))
        self._last = step * min(1.0, self._reach / max(size, 1e-300))
        return np.where(kept, theta - self._last, 0.0), float(score @ step)


def exact(theta: Array, information: Array, kept: NDArray[np.bool_], scale: Array) -> Estimate:
    """Covariance scale I^-1 of the columns that count; scale: dispersion."""
    covariance = np.full(information.shape, np.nan)
    block = np.ix_(kept, kept)
    covariance[block] = np.linalg.inv(information[block]) * scale
    return Estimate(
        theta=np.where(kept, theta, np.nan),
        covariance=covariance,
        noise=np.zeros_like(covariance),
    )


def noise_norm(tau: float, d: int) -> float:
    """About the largest eigenvalue of E, tau sqrt(2 d)."""
    return tau * math.sqrt(2 * d)


def safe_step(theta: Array, score: Array, information: Array, tau: float) -> Array:
    """A step that is not the last: information raised until its noise cannot turn it round."""
    d = len(theta)
    least = float(np.linalg.eigvalsh(information)[0])
    raised = information + max(0.0, 2 * noise_norm(tau, d) - least) * np.eye(d)
    step = np.linalg.solve(raised, score)
    return theta - step * min(1.0, LONGEST / 2 / max(float(np.abs(step).max()), 1e-300))


class UnclearError(PrivacyError):
    """A noisy matrix of which too little is known; direction: least known, a unit vector."""

    def __init__(self, words: str, direction: Array) -> None:
        super().__init__(words)
        self.direction = direction


def clear_inverse(matrix: Array, tau: float, name: str) -> Array:
    """Of a noisy matrix; name: as "the information".

    Raises:
        UnclearError: its noise reaches its least eigenvalue.
    """
    values, vectors = np.linalg.eigh(matrix)
    least, noise = float(values[0]), noise_norm(tau, len(matrix))
    if not least >= CLEAR * noise:
        raise UnclearError(
            f"{name} has a least eigenvalue of {least:.4g} under noise of {noise:.4g}: no interval "
            "can be given; use more rows, fewer columns or categories, or a larger epsilon",
            vectors[:, 0],
        )
    return np.asarray(np.linalg.inv(matrix))


class Noisy(NamedTuple):
    """An opened sum at a point: std of the score's and of the information's diagonal entries."""

    theta: Array
    score: Array
    information: Array
    sigma: float
    tau: float


def joint_maximum(sums: Sequence[Noisy], dispersion: float = 1.0) -> tuple[Estimate, Array]:
    """theta and V of several quadratic models, and A; see the module.

    Raises:
        PrivacyError: see `clear_inverse`.
    """
    weights = np.array([1 / each.sigma**2 for each in sums])
    weights /= weights.sum()
    pairs = list(zip(weights, sums, strict=True))
    information: Array = sum((w * each.information for w, each in pairs), start=np.zeros(1))
    tau = math.sqrt(sum((w * each.tau) ** 2 for w, each in pairs))
    inverse = clear_inverse(information, tau, "the information")
    theta = inverse @ sum(w * (each.information @ each.theta - each.score) for w, each in pairs)
    inner, one = np.zeros_like(information), np.eye(len(theta))
    for w, each in pairs:
        step = theta - each.theta
        moved = each.tau**2 / 2 * (step @ step * one + np.outer(step, step))
        inner += w**2 * (each.sigma**2 * one + moved)
    added = inverse @ inner @ inverse
    covariance = np.asarray(dispersion * inverse + added)
    return Estimate(theta=theta, covariance=covariance, noise=added), information


def private_steps(
    theta: Array, mu: float, ask: Callable[[Array, float], Noisy], dispersion: float = 1.0
) -> tuple[Estimate, float]:
    """The joint maximum of the last sums; ask: the sums at a point, for so much mu.

    Returns: the estimate, and how many times as far it is from the first point that counts as noise
    explains: more than about two says that this point was not near the maximum.

    Raises:
        PrivacyError: see `clear_inverse`.
    """
    sums = []
    for share in (*TOWARDS, *COUNTED):
        found = ask(theta, mu * math.sqrt(share))
        sums.append(found)
        theta = safe_step(theta, found.score, found.information, found.tau)
    kept = sums[len(TOWARDS) :]
    estimate, information = joint_maximum(kept, dispersion)
    step = estimate.theta - kept[0].theta
    length = math.sqrt(max(float(step @ information @ step), 0.0))
    # The point has the noise of a step of its own, with a smaller share.
    noise = float(np.trace(information @ estimate.noise)) * (1 + sum(COUNTED) / TOWARDS[-1])
    return estimate, length / math.sqrt(noise)


def least_squares(
    products: Array, outputs: int, rows: int, last: Sequence[int] = ()
) -> list[Estimate]:
    """One estimate per target, from U^T U of u = (x, y): dispersion RSS / (N - d).

    last: as of `left_by_others`.
    """
    d = len(products) - outputs
    information = products[:d, :d]
    kept = left_by_others(information, last) > 0
    found = []
    for k in range(outputs):
        theta = np.zeros(d)
        cross = products[:d, d + k]
        theta[kept] = np.linalg.solve(information[np.ix_(kept, kept)], cross[kept])
        residual = products[d + k, d + k] - cross @ theta
        freedom = max(rows - int(kept.sum()), 1)
        found.append(exact(theta, information, kept, np.asarray(max(residual, 0.0) / freedom)))
    return found


def noisy_least_squares(products: Array, outputs: int, rows: int, tau: float) -> list[Estimate]:
    """The same from U^T U + G, G symmetric, G_ii ~ N(0, tau^2), G_ij ~ N(0, tau^2 / 2).

    With eta = (-theta, 1) on the columns of x and this target, theta~ - theta^ = A^-1 G eta on the
    rows of x: covariance tau^2 / 2 (|eta|^2 1 + eta eta^T) there. The residual sum of squares,
    eta^T (U^T U + G) eta, has a mean of noise 0 at a given eta, and theta~ fits A, not I: the noise
    it absorbs, tr(A^-1 Cov(G eta)), is added again.

    Raises:
        PrivacyError: see `clear_inverse`.
    """
    d = len(products) - outputs
    inverse, found = clear_inverse(products[:d, :d], tau, "the matrix of products"), []
    for k in range(outputs):
        cross = products[:d, d + k]
        theta = inverse @ cross
        inner = tau**2 / 2 * ((theta @ theta + 1) * np.eye(d) + np.outer(theta, theta))
        residual = float(products[d + k, d + k] - cross @ theta + np.trace(inverse @ inner))
        dispersion = max(residual, 0.0) / max(rows - d, 1)
        added = inverse @ inner @ inverse
        found.append(
            Estimate(theta=theta, covariance=np.asarray(dispersion * inverse + added), noise=added)
        )
    return found
