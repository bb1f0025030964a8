r"""Coordinate descent for one holder of all rows: the federation's twin, and those of the paper.

float64 noise from NumPy's generator: nothing here protects anybody. Algorithms 1 and 2 of
arXiv:2006.07272, and its sequential variant.

**Sequential** (`train_sequential`): the rows of a batch move one after the other, each seeing v
after the one before. A replaced row may then turn every later zeta of the batch around, which moves
alpha by 2 C sqrt(L) and v by 2 C L at most: 2 C sqrt(L (L + 1)) together (appendix C).

**Primal** (`train_primal`): a coordinate's step reads every row, so q = 1 and the sensitivity is
the same figure, with columns of norm 1 over the rows and v = X theta of length N. The step is
-(slope . x_j / N + lam theta_j) / (L h |x_j|^2 / N + lam), h = 1 or 1/4, which no L of them
overshoot together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parties.kernel.sums.dual_steps import clipped, dual_step
from protocols.updates.coordinate import DualPlan, Rows, check_rows, cyclic_batch, move
from sims.lab.baselines import SmoothLoss, slope

Array = NDArray[np.float64]
State = tuple[Array, Array]
# (round t, v, alpha) after every round
Watch = Callable[[int, Array, Array], None]


def ignore(t: int, v: Array, alpha: Array) -> None:
    """Watches nothing."""


def train_dual(plan: DualPlan, x: Array, y: Array, std: float, rng: np.random.Generator) -> Array:
    """What owners and coordinator compute together, std in all per round; theta, shape (d,)."""
    order = rng.permutation(len(x)) if plan.schedule == "cyclic" else np.arange(0)

    def draw(t: int) -> Rows:
        if plan.schedule == "cyclic":
            return order[cyclic_batch(len(x), plan.batches, t)]
        return np.flatnonzero(rng.random(len(x)) < 1.0 / plan.batches)

    return _train(plan, x, y, std, rng, draw, move)


def train_published(
    plan: DualPlan, x: Array, y: Array, std: float, rng: np.random.Generator, watch: Watch = ignore
) -> Array:
    """Algorithm 1 of the paper: fixed-size batches, noise on alpha and v; shape (d,).

    std: `DualPlan.paper_std`. Its epsilon omits a row, and is not proved for hidden batches.
    """
    return _train(plan, x, y, std, rng, None, move, watch)


def train_sequential(
    plan: DualPlan, x: Array, y: Array, std: float, rng: np.random.Generator
) -> Array:
    """Rows one after the other within a batch; shape (d,); std: of `widest`."""
    return _train(plan, x, y, std, rng, None, move_in_turn)


def _train(
    plan: DualPlan,
    x: Array,
    y: Array,
    std: float,
    rng: np.random.Generator,
    draw: Callable[[int], Rows] | None,
    step: Callable[[DualPlan, Array, Array, Array, Array, Rows], Array],
    watch: Watch = ignore,
) -> Array:
    """draw: the batch of round t; None: of fixed size, and alpha is noisy as well as v."""
    check_rows(plan, x, y)
    alpha, v = np.zeros(len(x)), np.zeros(x.shape[1])
    size = math.ceil(len(x) / plan.batches)
    for t in range(plan.rounds):
        batch = draw(t) if draw else rng.choice(len(x), size, replace=False)
        v += step(plan, x, y, alpha, v, batch) + std * rng.standard_normal(v.size)
        if draw is None:
            alpha[batch] += std * rng.standard_normal(size)
        watch(t, v, alpha)
    return plan.theta(v)


def widest(clip: float, size: int) -> float:
    """2 C sqrt(L (L + 1)): of the sequential and the primal variant."""
    return 2.0 * clip * math.sqrt(size * (size + 1))


def move_in_turn(plan: DualPlan, x: Array, y: Array, alpha: Array, v: Array, batch: Rows) -> Array:
    """Move alpha[batch] in place, each row by the steps before it; the step of v."""
    single = 1.0 / (plan.lam * plan.rows)  # c of one row at a time
    moved = v.copy()
    for j in batch:
        zeta = dual_step(
            plan.loss,
            alpha=alpha[j : j + 1],
            margin=np.array([x[j] @ moved * single]),
            label=y[j : j + 1],
            curvature=single,
            clip=plan.clip,
        )[0]
        alpha[j] += zeta
        moved += zeta * x[j]
    return moved - v


@dataclass(frozen=True, kw_only=True, slots=True)
class PrimalPlan:
    """loss; lam; size: L columns in a round; rounds: T; clip: C of a step of a scaled column."""

    loss: SmoothLoss
    lam: float
    size: int
    rounds: int
    clip: float


def train_primal(
    plan: PrimalPlan, x: Array, y: Array, std: float, rng: np.random.Generator
) -> Array:
    """Algorithm 2: theta of columns as given, shape (d,); std: on theta and v of scaled columns."""
    norms = np.linalg.norm(x, axis=0)
    norms = np.where(norms > 0, norms, 1.0)
    scaled, rows = x / norms, len(x)
    theta, v = np.zeros(x.shape[1]), np.zeros(rows)
    bend = (1.0 if plan.loss == "ridge" else 0.25) / rows
    # The penalty is on theta of the columns as given: lam / norms^2 on that of scaled ones.
    lam = plan.lam / norms**2
    size = min(plan.size, x.shape[1])
    for _ in range(plan.rounds):
        batch: Rows = rng.choice(x.shape[1], size, replace=False)
        part = scaled[:, batch]
        push = slope(plan.loss, v, y) @ part / rows + lam[batch] * theta[batch]
        zeta = clipped(-push / (size * bend + lam[batch]), plan.clip)
        theta[batch] += zeta + std * rng.standard_normal(size)
        v += part @ zeta + std * rng.standard_normal(rows)
    return np.asarray(theta / norms)
