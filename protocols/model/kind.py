"""What is known of plans of an encrypted model."""

from protocols.model import errors, words
from protocols.model.plan import ModelPlan
from protocols.plan.kinds import CircuitKind
from protocols.rows import slots
from protocols.rows import words as rows_words
from protocols.rows.training import RowsCircuit

KIND = CircuitKind(
    plan=ModelPlan,
    figures=rows_words.figures,
    facts=words.facts,
    # Two features share a slot.
    slot_bounds=lambda plan, norm_bound: slots.bounds(plan, norm_bound).paired(),
    circuit=RowsCircuit,
    counts="protocols.model.counts",
    model_error_std=errors.model_error_std,
    iterate_error_std=errors.iterate_error_std,
    # Few coefficients, which the bound is about.
    shown_error_std=errors.model_error_std,
)
