"""A party's own part of a round: what its rows add, at the point asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from parties.kernel.sums.row_function import Contributor, Own
from parties.reader.schema import Classes, target_shape
from parties.verifier.sheets import row_function_of
from protocols.errors import PolicyError
from protocols.privacy.laws import RandomSource
from protocols.statistics.evaluation.objective import EvaluationObjective
from protocols.sums.objectives import RowObjective
from protocols.sums.plan import GradientPlan

if TYPE_CHECKING:  # what owns rows has it
    from parties.reader.shard import Shard

# (plan, name of the party, its rows, its randomness) -> its contributor
OpenContributor = Callable[[GradientPlan, str, "Shard", RandomSource], Contributor]


def check_rows(plan: GradientPlan, rows: Any) -> None:
    """Refuse rows of another shape than the plan's objective is of; looks at none.

    Raises:
        PolicyError: says what differs.
    """
    task, kind = plan.task, plan.objective.get("kind")
    if not hasattr(rows.schema, "label"):
        raise PolicyError(f"objective={kind!r} needs rows of a table, and this party has tensors")
    # Of a row objective, whose outputs are compared with the labels.
    several = None if isinstance(task, RowObjective) else getattr(task, "several", False)
    classes = rows.schema.label.outputs if isinstance(rows.schema.label, Classes) else 0
    if several is not None and several != bool(classes):
        knows = "none but labels" if several else "no label"
        raise PolicyError(
            f"objective={kind!r} knows {knows} of several classes, and this "
            f"party's schema has {'another' if several else 'one'}"
        )
    if isinstance(task, EvaluationObjective) and classes not in (0, len(task.weights)):
        raise PolicyError(f"weights of {len(task.weights)} classes are not this party's {classes}")
    if isinstance(task, RowObjective):
        if task.kind == "torch":
            raise PolicyError(f"objective={kind!r} is not one of this party's")
        outputs = math.prod(target_shape(rows.schema.label))
        if outputs != task.outputs:
            raise PolicyError(
                f"outputs={task.outputs} of objective {task.kind} are not this party's {outputs}"
            )
        if plan.length != rows.num_features * task.outputs:
            raise PolicyError(
                f"length={plan.length} is not the {rows.num_features * task.outputs} features"
            )


def open_contributor(
    plan: GradientPlan, name: str, shard: Shard, randomness: RandomSource
) -> Contributor:
    """What a party contributes, as its session has it; randomness: of its secret batches."""
    check_rows(plan, shard)
    weight = plan.row_weight(plan.party_index(name))
    own = Own(name=name, weight=weight, norm=plan.noise.norm, randomness=randomness)
    return row_function_of(plan).of(shard, own)
