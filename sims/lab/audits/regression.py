"""Attacks on regressions: a release of Gram sums, and LFFR's noisy gradients.

**Gram sums.** One release. Two rows in a plane, at the angle and with the targets that move the
owner's contribution (`GramPlan.contribution`) most; the move is measured in the coordinates of the
noise, which enters linearly. The log-likelihood ratio of a Gaussian release is Gaussian, so scores
are drawn as such.

**LFFR.** All rows are B e; N - 1 of them have targets 1/2, which keeps p at 1/2 but for noise, and
the last one has target 0 or 1, which moves the gradient by 2 p (1 - p) B, most at p = 1/2. The
coalition knows the weights of every round and scores sum_t <v_t - (g_t + g'_t) / 2, g_t - g'_t>,
as in `audit_privacy`.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from numpy.typing import NDArray

from protocols.gram.plan import GramPlan
from protocols.lffr.plan import LffrPlan
from protocols.models.lffr import slope_of_loss
from sims.lab.audits.privacy import chunks, epsilon_found

Floats = NDArray[np.float64]
_CHUNK = 100_000


def gram_ratio(plan: GramPlan, norm_bound: float) -> float:
    """The largest move of the mean sums, in L2 of the noise's coordinates, over its std."""
    if plan.privacy is None:
        raise AssertionError("a regression without privacy has nothing to attack")
    size, base = plan.task.noise_size, _sums(plan, np.zeros(plan.num_features), 0.0)
    lift = np.stack([_sums(plan, np.zeros(plan.num_features), 0.0, one) for one in np.eye(size)])
    inverse = np.linalg.pinv((lift - base).T)
    rows = [
        norm_bound
        * (math.cos(a) * np.eye(plan.num_features)[0] + math.sin(a) * np.eye(plan.num_features)[1])
        for a in np.linspace(0.0, math.pi, 37)
    ]
    first = {y: _sums(plan, rows[0], y) for y in (0.0, 1.0)}
    largest = max(
        float(np.linalg.norm(inverse @ (first[y] - _sums(plan, row, other))))
        for row, y, other in product(rows, (0.0, 1.0), (0.0, 1.0))
    )
    return largest / plan.privacy.sigma


def _sums(plan: GramPlan, row: Floats, target: float, noise: Floats | None = None) -> Floats:
    """What an owner of one row encrypts, flat."""
    targets = np.full((1, plan.outputs), target)
    quiet = np.zeros(plan.task.noise_size)
    sums = plan.contribution(row[None], targets, quiet if noise is None else noise)
    return np.concatenate([sums.gram.ravel(), sums.cross.ravel()])


def attack_gram(
    ratio: float, *, runs: int, delta: float, error: float, rng: np.random.Generator
) -> float:
    """A lower bound on epsilon at delta; ratio: see `gram_ratio`; error: of each binomial bound."""
    own, other = (rng.standard_normal(runs // 2) + sign * ratio / 2 for sign in (1, -1))
    return epsilon_found(own, other, delta=delta, error=error)


def attack_lffr(
    plan: LffrPlan,
    norm_bound: float,
    *,
    runs: int,
    delta: float,
    additive: float,
    error: float,
    rng: np.random.Generator,
) -> float:
    """A lower bound on epsilon at delta + additive, of a plan with one output."""
    half = runs // 2
    parts = [
        np.concatenate([_moved(plan, norm_bound, size, own, rng) for size in chunks(half, _CHUNK)])
        for own in (True, False)
    ]
    return epsilon_found(*parts, delta=delta, additive=additive, error=error)


def _moved(plan: LffrPlan, bound: float, runs: int, own: bool, rng: np.random.Generator) -> Floats:
    """Scores of runs with the one row or the other; all rows lie on one axis, and so do weights."""
    if plan.privacy is None:
        raise AssertionError("a regression without privacy has nothing to attack")
    split, sigma, n = plan.split, plan.privacy.sigma, plan.num_rows
    share = split.share_std(sigma)
    honest, others = share * math.sqrt(split.honest), share * math.sqrt(split.colluders)
    weights: Floats = np.zeros(runs)
    scores: Floats = np.zeros(runs)
    for _ in range(plan.rounds):

        def gradient(x: float, y: float, weights: Floats = weights) -> Floats:
            return x * slope_of_loss(plan.link, x * weights, np.full(runs, y))

        left, right = gradient(bound, 0.0), gradient(bound, 1.0)
        shared = (n - 1) * gradient(bound, 0.5)
        seen = (shared + (left if own else right)) / n + honest * rng.standard_normal(runs)
        scores += (seen - (shared + (left + right) / 2) / n) * (left - right)
        step = seen + others * rng.standard_normal(runs) + 2 * plan.ridge * weights
        weights = weights - plan.learning_rate * step
    return scores
