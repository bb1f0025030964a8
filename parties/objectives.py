"""A party's own part of a round: clipped gradients over its rows, at the point asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from parties.data.schema import Classes
from parties.data.shard import Shard
from protocols.curvature import LOGISTIC
from protocols.errors import PolicyError
from protocols.evaluation.objective import EvaluationObjective
from protocols.gradients import GradientPlan
from protocols.models.dual import targets_of
from protocols.objectives import CURVATURE, DualObjective, RowObjective
from protocols.one_sum import OneSum
from protocols.privacy.randomness import RandomSource
from protocols.updates.coordinate import DualParty

Array = NDArray[np.float64]
TINY = 1e-100


class Contributor(Protocol):
    """Computes contributions; may keep state of its own between rounds."""

    def contribution(self, query: str, t: int, point: Array) -> Array:
        """This party's part of the aggregate, without noise, shape (length,)."""
        ...


# (plan, name of the party, its rows, its randomness) -> its contributor
OpenContributor = Callable[[GradientPlan, str, Shard, RandomSource], Contributor]


def clip_rows(rows: Array, bound: float | Array, norm: int) -> Array:
    """Every row scaled down to norm <= bound, one of all rows or shape (rows, 1); shape kept.

    A row that is not finite, as at a point that overflows, counts as zero: an error would tell of
    the row.
    """
    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    norms = np.linalg.norm(rows, ord=norm, axis=1)[:, None]
    clipped: Array = rows * np.minimum(1.0, bound / np.maximum(norms, TINY))
    return clipped


_MEANS: Mapping[str, Callable[[Array], Array]] = {
    "logistic": expit,
    "squared": lambda z: z,
    "softmax": lambda z: softmax(z, axis=1),
    "one-vs-rest": expit,
}
"""mu(z) of scores z, shape (rows, K), by the objective's kind."""


class RowContributor:
    """A generalised linear model: gradient u clip(x (mu(z) - y)^T) of every row, z = x w + offset.

    x: shape (rows, d), y: (rows, K); the entrywise q-norm of x r^T is |x|_q |r|_q, so that a row is
    clipped by its residual r. The weight u comes after the clip, so that a row of weight 2 is two
    rows.
    """

    def __init__(self, plan: GradientPlan, name: str, shard: Shard) -> None:
        task = plan.task
        if not isinstance(task, RowObjective) or task.kind not in _MEANS:
            raise PolicyError(
                f"objective={plan.objective.get('kind')!r} is not one of this party's"
            )
        y = shard.y.reshape(shard.rows, -1)
        if y.shape[1] != task.outputs:
            raise PolicyError(
                f"outputs={task.outputs} of objective {task.kind} are not this party's {y.shape[1]}"
            )
        if plan.length != shard.num_features * task.outputs:
            raise PolicyError(
                f"length={plan.length} is not the {shard.num_features * task.outputs} features"
            )
        self._task, self._rule, self._x, self._y = task, plan.rule, shard.x, y
        self._row_weights, self._offset = shard.weight[:, None], shard.offset[:, None]
        self._norm = plan.noise.norm
        self._lengths = np.linalg.norm(shard.x, ord=self._norm, axis=1)[:, None]
        self._weight = plan.row_weight(plan.party_index(name))

    def contribution(self, query: str, t: int, point: Array) -> Array:
        """weight_p / n_p sum_i u_i clip(g_i), shape (d K,)."""
        total: Array
        if query == CURVATURE:
            total = self._curvature()
        else:
            scores = self._x @ point.reshape(-1, self._task.outputs) + self._offset
            residuals = _MEANS[self._task.kind](scores) - self._y
            # |x|_q times a residual of norm C / |x|_q is C.
            clipped = clip_rows(
                residuals, self._task.clip / np.maximum(self._lengths, TINY), self._norm
            )
            total = self._x.T @ (self._row_weights * clipped)
        return self._weight * total.ravel()

    def _curvature(self) -> Array:
        """Of a diagonal bound that all classes share, in the first's column; shape (d, K)."""
        curvature = self._rule.curvature
        constant = LOGISTIC if curvature is None else curvature.constant
        magnitude = np.abs(self._x)
        rows = constant * magnitude * magnitude.sum(axis=1)[:, None]
        total = np.zeros((self._x.shape[1], self._task.outputs))
        clipped = clip_rows(rows, self._task.curvature_clip, self._norm)
        total[:, 0] = (self._row_weights * clipped).sum(axis=0)
        return total


class DualContributor:
    """Dual coordinate descent: moves its own dual variables, answers its step of v."""

    def __init__(
        self, plan: GradientPlan, shard: Shard, task: DualObjective, randomness: RandomSource
    ) -> None:
        public = task.plan(rows=plan.num_rows, rounds=plan.rounds, norm=plan.noise.norm)
        self._party = DualParty(
            public,
            shard.x / task.row_scale,
            targets_of(public.loss, shard.y),
            sigma=0.0,
            split=plan.split,
            randomness=randomness,
        )

    def contribution(self, query: str, t: int, point: Array) -> Array:
        """X_B^T zeta, shape (d,)."""
        return self._party.contribution(t, point)


class SumContributor:
    """What `OneSum` asks for: one step of rate 1 by a gradient of minus the sum gives the sum."""

    def __init__(self, plan: GradientPlan, name: str, shard: Shard, task: OneSum) -> None:
        self._task, self._name, self._shard = task, name, shard
        self._weight = plan.row_weight(plan.party_index(name))

    def contribution(self, query: str, t: int, point: Array) -> Array:
        """-sum_i v_i / N, whatever the point, which is public; shape (length,)."""
        shard = self._shard
        return -self._weight * self._task.of_rows(shard.x, shard.y, self._name)


def open_contributor(
    plan: GradientPlan, name: str, shard: Shard, randomness: RandomSource
) -> Contributor:
    """What a party contributes, from the plan's objective; randomness: of its secret batches."""
    task = plan.task
    # Of a row objective, whose outputs are compared with the labels.
    several = None if isinstance(task, RowObjective) else getattr(task, "several", False)
    classes = shard.schema.label.outputs if isinstance(shard.schema.label, Classes) else 0
    if several is not None and several != bool(classes):
        knows = "none but labels" if several else "no label"
        raise PolicyError(
            f"objective={plan.objective.get('kind')!r} knows {knows} of several classes, and this "
            f"party's schema has {'another' if several else 'one'}"
        )
    if isinstance(task, EvaluationObjective) and classes not in (0, len(task.weights)):
        raise PolicyError(f"weights of {len(task.weights)} classes are not this party's {classes}")
    if isinstance(task, DualObjective):
        return DualContributor(plan, shard, task, randomness)
    if isinstance(task, OneSum):
        return SumContributor(plan, name, shard, task)
    return RowContributor(plan, name, shard)
