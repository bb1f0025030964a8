"""What is known of plans of LFFR, on encrypted rows and where rows stay home."""

from protocols.lffr import errors, slots, words
from protocols.lffr.home_plan import LffrModelPlan
from protocols.lffr.plan import LffrPlan
from protocols.lffr.training import LffrCircuit
from protocols.plan.kinds import CircuitKind
from protocols.rows.training import RowsCircuit

KIND = CircuitKind(
    plan=LffrPlan,
    figures=words.figures,
    facts=words.facts,
    slot_bounds=slots.bounds,
    circuit=LffrCircuit,
    counts="protocols.lffr.counts",
    model_error_std=errors.model_error_std,
    iterate_error_std=errors.iterate_error_std,
    shown_error_std=errors.shown_error_std,
)
AT_HOME = CircuitKind(
    plan=LffrModelPlan,
    figures=words.home_figures,
    facts=words.home_facts,
    slot_bounds=slots.at_home,
    circuit=RowsCircuit,
    counts="protocols.model.counts",
    model_error_std=errors.home_model_error_std,
    iterate_error_std=errors.home_iterate_error_std,
    shown_error_std=errors.home_model_error_std,
)
