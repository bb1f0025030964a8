"""How large the values get that refreshes hide, in words and as a check of a run folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ciphercohort.job.layout import PLAN
from ciphercohort.results.documents import compare
from protocols.plan import kinds

if TYPE_CHECKING:
    from parties.reader.schema import Schema
    from protocols.plan.run_plan import RunPlan


def slot_lines(plan: RunPlan, norm_bound: float) -> tuple[str, ...]:
    """One line, where masks hide something; norm_bound: of every row."""
    bounds = kinds.slot_bounds(plan, norm_bound)
    return (f"slots of refreshes: {bounds.sentence(len(plan.members))}",) if bounds else ()


def unproven_warnings(plan: RunPlan, norm_bound: float) -> tuple[str, ...]:
    """A warning, where nothing is proven: whoever runs a simulation stands for all its owners."""
    bounds = kinds.slot_bounds(plan, norm_bound)
    if bounds is None or bounds.largest is not None:
        return ()
    return (
        *slot_lines(plan, norm_bound),
        "an owner of a deployment refuses such a plan unless accept_unbounded = true is in its "
        "policy; a lower learning rate, fewer iterations and, where the model takes them, the "
        "barrier or a ridge have a proof",
    )


def slot_problems(plan: RunPlan, schema: Schema) -> Iterator[str]:
    """The bound that the plan states, computed again."""
    bounds = kinds.slot_bounds(plan, schema.norm_bound)
    own = bounds.largest if bounds else None
    yield from compare(PLAN, "slot_bound", plan.slot_bound, own)
