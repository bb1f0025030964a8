"""Coordinate descent for one holder of all rows: the twin of the federation, and three variants.

float64 noise from NumPy's generator: nothing here protects anybody. Variants: as published
(arXiv:2006.07272, Algorithm 1), sequential (Algorithm 3), primal (Algorithm 2).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError
from protocols.models.dual import clipped
from protocols.privacy.gdp import mu_for_epsilon
from protocols.updates.coordinate import DualPlan, Rows, check_rows, cyclic_batch, move
from sims.baselines import SmoothLoss, slope

Array = NDArray[np.float64]


def train_dual(plan: DualPlan, x: Array, y: Array, std: float, rng: np.random.Generator) -> Array:
    """What owners and coordinator compute together, std in all per round; theta, shape (d,)."""
    check_rows(plan, x, y)
    alpha, v = np.zeros(len(x)), np.zeros(x.shape[1])
    order = rng.permutation(len(x)) if plan.schedule == "cyclic" else np.arange(0)
    for t in range(plan.rounds):
        if plan.schedule == "cyclic":
            batch: Rows = order[cyclic_batch(len(x), plan.batches, t)]
        else:
            batch = np.flatnonzero(rng.random(len(x)) < 1.0 / plan.batches)
        v += move(plan, x, y, alpha, v, batch) + std * rng.standard_normal(v.size)
    return plan.theta(v)


def train_published(
    plan: DualPlan, x: Array, y: Array, std: float, rng: np.random.Generator
) -> Array:
    """Algorithm 1 of the paper: fixed-size batches, noise on alpha and v; shape (d,).

    std: `plan.paper_std`. Its epsilon omits a row, and is not proved for hidden batches.
    """
    check_rows(plan, x, y)
    alpha, v = np.zeros(len(x)), np.zeros(x.shape[1])
    size = math.ceil(len(x) / plan.batches)
    for _ in range(plan.rounds):
        batch: Rows = rng.choice(len(x), size, replace=False)
        v += move(plan, x, y, alpha, v, batch) + std * rng.standard_normal(v.size)
        alpha[batch] += std * rng.standard_normal(size)
    return plan.theta(v)


def correlated_sensitivity(clip: float, moved: int) -> float:
    """2 C sqrt(L (L + 1)): one replaced row turns all L correlated updates around.

    Lemmas 4 and 5 there: each of L updates moves by at most 2 C, the shared vector by 2 C L.
    """
    return 2.0 * clip * math.sqrt(moved * (moved + 1.0))


def sequential_std(plan: DualPlan, *, epsilon: float, delta: float) -> float:
    """Noise std for `train_sequential`, replace-one.

    Batches are public and fixed: a row's replacement also reaches the alpha of its batch fellows,
    and these only answer in the same rounds, ceil(T / K) of them.
    """
    size = math.ceil(plan.rows / plan.batches)
    mu = mu_for_epsilon(epsilon=epsilon, delta=delta)
    return correlated_sensitivity(plan.clip, size) * math.sqrt(plan.draws) / mu


def train_sequential(
    plan: DualPlan, x: Array, y: Array, std: float, rng: np.random.Generator
) -> Array:
    """Rows of a cyclic batch move one after the other (Algorithm 3, releasing v only)."""
    check_rows(plan, x, y)
    single = replace(plan, batches=plan.rows)
    alpha, v = np.zeros(len(x)), np.zeros(x.shape[1])
    order = rng.permutation(len(x))
    for t in range(plan.rounds):
        for j in order[cyclic_batch(len(x), plan.batches, t)]:
            v += move(single, x, y, alpha, v, np.array([j]))
        v += std * rng.standard_normal(v.size)
    return plan.theta(v)


def primal_std(*, clip: float, moved: int, rounds: int, epsilon: float, delta: float) -> float:
    """Noise std for `train_primal`: q = 1, all T rounds count; replace-one."""
    mu = mu_for_epsilon(epsilon=epsilon, delta=delta)
    return correlated_sensitivity(clip, moved) * math.sqrt(rounds) / mu


def train_primal(
    loss: SmoothLoss,
    x: Array,
    y: Array,
    *,
    lam: float,
    moved: int,
    rounds: int,
    clip: float,
    std: float,
    rng: np.random.Generator,
) -> Array:
    """L random coordinates of theta per round (Algorithm 2); shape (d,).

    v = X theta / sqrt(N), so that every column has norm at most 1 without looking at the data:
    zeta_j = -(a_j . l'(X theta) / sqrt(N) + lambda theta_j) / (beta L |a_j|^2 + lambda),
    a_j = X_j / sqrt(N), beta = 1 for ridge and 1/4 for logistic. Noise goes on both theta and v.
    """
    if not 1 <= moved <= x.shape[1]:
        raise ParameterError(f"moved={moved} is outside 1 .. {x.shape[1]}, the columns")
    root = math.sqrt(len(x))
    columns = x / root
    bend = moved * (1.0 if loss == "ridge" else 0.25) * np.einsum("ij,ij->j", columns, columns)
    theta, v = np.zeros(x.shape[1]), np.zeros(len(x))
    for _ in range(rounds):
        batch = rng.choice(theta.size, moved, replace=False)
        push = slope(loss, root * v, y) / root @ columns[:, batch] + lam * theta[batch]
        zeta = clipped(-push / (bend[batch] + lam), clip)
        theta[batch] += zeta + std * rng.standard_normal(moved)
        v += columns[:, batch] @ zeta + std * rng.standard_normal(v.size)
    return theta
