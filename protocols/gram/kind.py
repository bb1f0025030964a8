"""What is known of plans on Gram sums."""

from protocols.gram import errors, slots, words
from protocols.gram.plan import GramPlan
from protocols.gram.training import GramCircuit
from protocols.plan.kinds import CircuitKind

KIND = CircuitKind(
    plan=GramPlan,
    figures=words.figures,
    facts=words.facts,
    slot_bounds=slots.bounds,
    circuit=GramCircuit,
    counts="protocols.gram.counts",
    model_error_std=lambda plan: errors.model_error_std(plan.task),
    iterate_error_std=lambda plan: errors.model_error_std(plan.task),
    shown_error_std=lambda plan: errors.shown_error_std(plan.task),
)
