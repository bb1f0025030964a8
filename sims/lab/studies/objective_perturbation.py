"""Logistic regression by objective perturbation, for one trusted holder of all rows.

w minimises sum_i l(<w, u_i>) + (Lambda / 2) |w|^2 + <b, w>, b ~ N(0, sigma^2 I), for rows u_i that
are signed by their labels and of norm at most 1, |l'| <= 1, 0 <= l'' <= 1/4. The method:
Chaudhuri, Monteleoni, Sarwate, JMLR 12 (2011), algorithm 2; Gaussian noise: Kifer, Smith, Thakurta,
COLT 2012.

**What it costs, replace-one.** b = -sum_i grad l_i(w) - Lambda w is one-to-one in w. So the
densities of w on two neighbours differ by (1) the ratio of the determinants of A + l'' u u^T, A >=
Lambda I, at most 1 + 1 / (4 Lambda); (2) the ratio of the densities of b and b + D, D = a u - a' u'
for rows u, u' and some a, a' in [0, 1] that depend on b. With e = epsilon - ln(1 + 1 / (4 Lambda))
> 0, delta is at most the mean of (1 - exp(e - L))_+, L = (2 <b, D> + |D|^2) / (2 sigma^2). L is
convex in (a, a'), hence at most the largest of its values at the four corners: D = 0, u, -u' and
u - u', each fixed. These are Gaussian mechanisms of sensitivity 0, 1, 1 and 2: delta <= G(2) +
2 G(1), G(s) their delta at e with mu = s / sigma. G(1) hardly counts.

The minimum is taken as exact, and the noise is float64: a baseline, which protects nobody.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from protocols.errors import ParameterError
from protocols.privacy.loss import check_delta, check_epsilon, delta_for_mu
from sims.lab.baselines import Array

CURVATURE = 0.25
"""Of the logistic loss."""
SOLVED = 1e-9
"""Newton's decrement, relative to the rows, at which a minimum counts as found."""
STEPS = 200


def noise_std(ridge: float, *, epsilon: float, delta: float) -> float:
    """sigma for Lambda = ridge; inf where the ridge is too small for epsilon.

    Raises:
        ParameterError: a figure is out of range.
    """
    if not ridge > 0:
        raise ParameterError(f"ridge={ridge} is not > 0")
    check_epsilon(epsilon)
    check_delta(delta)
    left = epsilon - math.log1p(CURVATURE / ridge)
    if left <= 0:
        return math.inf

    def excess(log_std: float) -> float:
        mu = 2 * math.exp(-log_std)
        spent = delta_for_mu(mu=mu, epsilon=left) + 2 * delta_for_mu(mu=mu / 2, epsilon=left)
        return math.log(max(spent, 1e-300)) - math.log(delta)

    # mu = 2^12 spends all of delta, mu = 2^-40 none
    return math.exp(brentq(excess, math.log(2.0**-11), math.log(2.0**41), xtol=1e-12) + 1e-9)


def train(x: Array, y: Array, ridge: float, std: float, rng: np.random.Generator) -> Array:
    """Weights, shape (d,), by Newton's method with halved steps.

    x: rows of norm at most 1; y: 0 or 1; std: from `noise_std`, 0 for none.

    Raises:
        ParameterError: the method did not settle.
    """
    push = std * rng.standard_normal(x.shape[1])
    w: Array = np.zeros(x.shape[1])

    def value(at: Array) -> float:
        z = x @ at
        return float(np.logaddexp(0.0, z).sum() - y @ z + ridge / 2 * at @ at + push @ at)

    for _ in range(STEPS):
        p = expit(x @ w)
        slope = x.T @ (p - y) + ridge * w + push
        bend = (x.T * (p * (1 - p))) @ x + ridge * np.eye(w.size)
        step = np.linalg.solve(bend, slope)
        decrement = float(slope @ step)
        if decrement <= SOLVED * len(x):
            return np.asarray(w - step)
        here, size = value(w), 1.0
        while value(w - size * step) > here - size * decrement / 4 and size > 1e-9:
            size /= 2
        w = w - size * step
    raise ParameterError(f"ridge={ridge}: Newton's method did not settle; raise the ridge")
