"""Coordinate descent for one holder of all rows: the federation's twin, and that of the paper.

float64 noise from NumPy's generator: nothing here protects anybody. The paper's is Algorithm 1 of
arXiv:2006.07272.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from protocols.updates.coordinate import DualPlan, Rows, check_rows, cyclic_batch, move

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
