"""What a run of LFFR on encrypted rows costs."""

from __future__ import annotations

from typing import Any

from protocols.ckks.circuits.tally import IterationTally, Shadow
from protocols.costs.counts import counted
from protocols.lffr.plan import LffrPlan
from protocols.rows.counts import num_ciphertexts as num_ciphertexts


def iterations(plan: LffrPlan) -> tuple[IterationTally, ...]:
    """With what comes before the first."""
    return counted(plan, lambda evaluator: _shadows(plan, evaluator))


def _shadows(plan: LffrPlan, evaluator: Any) -> Any:
    layout = plan.layout
    data, side = (
        [evaluator.wrap(Shadow(0)) for _ in range(number)]
        for number in (layout.num_data_ciphertexts, layout.num_side_ciphertexts)
    )
    return evaluator.grouped(data), side
