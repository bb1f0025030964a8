"""What is known of plans on encrypted rows."""

from protocols.plan.kinds import CircuitKind
from protocols.rows import errors, slots, words
from protocols.rows.plan import RowsPlan
from protocols.rows.training import RowsCircuit

KIND = CircuitKind(
    plan=RowsPlan,
    figures=words.figures,
    facts=words.facts,
    slot_bounds=slots.bounds,
    circuit=RowsCircuit,
    counts="protocols.rows.counts",
    model_error_std=errors.model_error_std,
    iterate_error_std=errors.iterate_error_std,
    shown_error_std=errors.shown_error_std,
)
