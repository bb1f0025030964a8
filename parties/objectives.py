"""A party's own part of a round: clipped gradients over its rows, at the point asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from parties.data.shard import Shard
from protocols.errors import PolicyError
from protocols.gradients import GradientPlan
from protocols.models.dual import targets_of
from protocols.objectives import CURVATURE, DualObjective, RowObjective
from protocols.one_sum import OneSum
from protocols.privacy.randomness import RandomSource
from protocols.updates.coordinate import DualParty

Array = NDArray[np.float64]


class Contributor(Protocol):
    """Computes contributions; may keep state of its own between rounds."""

    def contribution(self, query: str, t: int, point: Array) -> Array:
        """This party's part of the aggregate, without noise, shape (length,)."""
        ...


# (plan, name of the party, its rows, its randomness) -> its contributor
OpenContributor = Callable[[GradientPlan, str, Shard, RandomSource], Contributor]


def clip_rows(rows: Array, bound: float, norm: int) -> Array:
    """Every row scaled down to norm <= bound; shape kept.

    A row that is not finite, as at a point that overflows, counts as zero: an error would tell of
    the row.
    """
    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    norms = np.linalg.norm(rows, ord=norm, axis=1)
    clipped: Array = rows * np.minimum(1.0, bound / np.maximum(norms, 1e-300))[:, None]
    return clipped


class RowContributor:
    """A generalised linear model: gradient (mu(z) - y) x of every row, clipped."""

    def __init__(self, plan: GradientPlan, name: str, shard: Shard) -> None:
        task = plan.task
        if not isinstance(task, RowObjective) or task.kind == "torch":
            raise PolicyError(
                f"objective={plan.objective.get('kind')!r} is not one of this party's"
            )
        if plan.length != shard.num_features:
            raise PolicyError(f"length={plan.length} is not the {shard.num_features} features")
        self._task, self._x, self._y = task, shard.x, shard.y
        self._norm = plan.noise.norm
        self._weight = plan.row_weight(plan.party_index(name))

    def contribution(self, query: str, t: int, point: Array) -> Array:
        """weight_p / n_p sum_i clip(g_i), shape (d,)."""
        if query == CURVATURE:
            magnitude = np.abs(self._x)
            rows = 0.25 * magnitude * magnitude.sum(axis=1)[:, None]
            bound = self._task.curvature_clip
        else:
            z = self._x @ point
            mean = expit(z) if self._task.kind == "logistic" else z
            rows, bound = self._x * (mean - self._y)[:, None], self._task.clip
        total: Array = clip_rows(rows, bound, self._norm).sum(axis=0)
        return self._weight * total


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
    if isinstance(task, DualObjective):
        return DualContributor(plan, shard, task, randomness)
    if isinstance(task, OneSum):
        return SumContributor(plan, name, shard, task)
    return RowContributor(plan, name, shard)
