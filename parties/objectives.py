"""A party's own part of a round: clipped gradients over its rows, at the point asked for."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from parties.data.schema import Classes, target_shape
from parties.data.shard import Shard
from parties.kernel.sums.dual_steps import targets_of
from parties.kernel.sums.integer_sums import Exact, Factors, IntegerRows, PartSum, Rows, along
from protocols.curvature import LOGISTIC
from protocols.errors import PolicyError
from protocols.evaluation.objective import EvaluationObjective
from protocols.gradients import GradientPlan
from protocols.objectives import CURVATURE, DualObjective, RowObjective
from protocols.one_sum import OneSum
from protocols.privacy.randomness import RandomSource
from protocols.updates.coordinate import DualParty

Array = NDArray[np.float64]


class Contributor(ABC):
    """Computes contributions; may keep state of its own between rounds."""

    @abstractmethod
    def exact(self, query: str, t: int, point: Array) -> Exact:
        """This party's part of the aggregate, without noise, shape (length,), as integers.

        A sum over rows of what each adds by itself, whatever the order and the others.
        """

    def contribution(self, query: str, t: int, point: Array) -> Array:
        """The same, as float64."""
        return self.exact(query, t, point).values


# (plan, name of the party, its rows, its randomness) -> its contributor
OpenContributor = Callable[[GradientPlan, str, Shard, RandomSource], Contributor]


def _softmax(z: Array) -> Array:
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    means: Array = powers / along(powers.copy())[:, None]
    return means


_MEANS: Mapping[str, Callable[[Array], Array]] = {
    "logistic": expit,
    "squared": lambda z: z,
    "softmax": _softmax,
    "one-vs-rest": expit,
}
"""mu(z) of scores z, shape (rows, K), by the objective's kind, each row by itself."""


class RowContributor(Contributor):
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
        outputs = math.prod(target_shape(shard.schema.label))
        if outputs != task.outputs:
            raise PolicyError(
                f"outputs={task.outputs} of objective {task.kind} are not this party's {outputs}"
            )
        if plan.length != shard.num_features * task.outputs:
            raise PolicyError(
                f"length={plan.length} is not the {shard.num_features * task.outputs} features"
            )
        y = shard.y.reshape(shard.rows, -1)
        self._task, self._rule, self._x, self._y = task, plan.rule, shard.x, y
        self._row_weights, self._offset = shard.weight[:, None], shard.offset[:, None]
        self._norm = plan.noise.norm
        self._weight = plan.row_weight(plan.party_index(name))
        self._rows = IntegerRows(shard.x, shard.schema.norm_bound, self._norm)
        self._factors = Factors(self._rows, self._bound(task.clip), self._norm, self._weight)

    def _bound(self, clip: float) -> Fraction:
        return Fraction(clip * self._weight)  # half of `GradientPlan.sensitivity`, to the bit

    def exact(self, query: str, t: int, point: Array) -> Exact:
        """weight_p / n_p sum_i u_i clip(g_i), shape (d K,)."""
        if query == CURVATURE:
            return self._curvature()
        point, mean = point.reshape(-1, self._task.outputs), _MEANS[self._task.kind]

        def residuals(rows: Rows) -> Array:
            scores = self._rows.scores(point, rows) + self._offset[rows]
            return mean(scores) - self._y[rows]

        return self._factors.total(residuals, self._row_weights)

    def _curvature(self) -> Exact:
        """Of a diagonal bound that all classes share, in the first's column; shape (d K,)."""
        curvature = self._rule.curvature
        constant = LOGISTIC if curvature is None else curvature.constant
        total = PartSum(
            self._bound(self._task.curvature_clip), self._norm, self._x.shape[1], len(self._x)
        )
        for rows in self._rows.blocks():
            magnitude = np.abs(self._x[rows])
            parts = constant * magnitude * along(magnitude.copy())[:, None]
            total.add(self._weight * parts, self._row_weights[rows])
        found = np.zeros((self._x.shape[1], self._task.outputs), object)
        found[:, 0] = total.exact.units
        return Exact(found.ravel(), total.bits, total.limit)


class DualContributor(Contributor):
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

    def exact(self, query: str, t: int, point: Array) -> Exact:
        """X_B^T zeta, shape (d,)."""
        return self._party.exact(t, point)


class SumContributor(Contributor):
    """What `OneSum` asks for: one step of rate 1 by a gradient of minus the sum gives the sum."""

    def __init__(self, plan: GradientPlan, name: str, shard: Shard, task: OneSum) -> None:
        self._task, self._name, self._shard = task, name, shard
        self._weight = plan.row_weight(plan.party_index(name))

    def exact(self, query: str, t: int, point: Array) -> Exact:
        """-sum_i v_i / N, whatever the point, which is public; shape (length,)."""
        shard = self._shard
        return -self._task.exact_sum(shard.x, shard.y, self._name).times(self._weight)


def open_contributor(
    plan: GradientPlan, name: str, shard: Shard, randomness: RandomSource
) -> Contributor:
    """What a party contributes, from the plan's objective; randomness: of its secret batches."""
    task = plan.task
    if not hasattr(shard.schema, "label"):
        raise PolicyError(
            f"objective={plan.objective.get('kind')!r} needs rows of a table, and this party has "
            "tensors"
        )
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
