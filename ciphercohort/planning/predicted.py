"""Predicted costs of any plan on this machine, every role in turn, as in `cohort simulate`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from ciphercohort.planning import sums_cost
from protocols.ckks.circuits.cost import UnitTimes, unit_times
from protocols.ckks.parameters import CkksParameters
from protocols.costs import planner, traffic
from protocols.plan.run_plan import RunPlan
from protocols.privacy.calibrate.calibration import Calibration
from protocols.sums.plan import GradientPlan


def predicted_seconds(plan: RunPlan, times: UnitTimes | None = None) -> planner.Seconds:
    """Wall clock of a run on this machine, which is timed once; times: of a circuit, if known."""
    if isinstance(plan, GradientPlan):
        return sums_cost.seconds(plan, sums_cost.measure(plan))
    circuit = cast(Any, plan)
    return planner.seconds(circuit, times or _unit_times(circuit.ckks))


@lru_cache(maxsize=16)
def _unit_times(params: CkksParameters) -> UnitTimes:
    """One measurement for all plans that are compared, on a busy machine as well."""
    return unit_times(params)


def predicted_run(found: Calibration) -> tuple[float, int]:
    """Seconds and bytes of the busiest party, of the run that comes before as well."""
    costs = [predicted_costs(plan) for plan in (found.first, found.template) if plan]
    return sum(seconds for seconds, _ in costs), sum(num_bytes for _, num_bytes in costs)


def predicted_costs(plan: RunPlan) -> tuple[float, int]:
    """Seconds of a run on this machine, and bytes of the busiest party."""
    return predicted_seconds(plan).total, sum(traffic.bytes_per_party(plan).values())
