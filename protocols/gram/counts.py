"""What a run on Gram sums costs."""

from __future__ import annotations

from protocols.ckks.circuits.tally import IterationTally, Shadow
from protocols.costs.counts import counted
from protocols.gram.plan import GramPlan


def iterations(plan: GramPlan) -> tuple[IterationTally, ...]:
    """With what comes before the first."""
    blank = range(num_ciphertexts(plan))
    return counted(plan, lambda evaluator: [evaluator.wrap(Shadow(0)) for _ in blank])


def num_ciphertexts(plan: GramPlan) -> int:
    """Of the sums."""
    return plan.task.num_ciphertexts
