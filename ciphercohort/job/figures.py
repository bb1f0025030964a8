"""Public figures of a schema, and what a run with them is calibrated to."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from ciphercohort.job.config import SimulationConfig
from parties.reader.schema import Classes, Label, Schema, Targets
from protocols.errors import SchemaError
from protocols.models.registry import model_named
from protocols.plan.held_out import HeldOut
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.whitened import Moment
from protocols.steps.second_moment import Evidence

ENTRY_BOUND = {"range": 1.0, "standard": 2.0}
"""Bound on an entry of an encoded row, the bias included, where rows are not clipped."""

KINDS: Mapping[type, str] = {
    Label: "a label of two values",
    Classes: "a label of several classes",
    Targets: "numeric targets",
}
FITTING: Mapping[type, str] = {
    Label: "logistic",
    Classes: "softmax or one-vs-rest",
    Targets: "linear or another model of targets",
}
"""Models."""


def figures_of(
    schema: Schema, rows_by_party: Iterable[int], held_out: HeldOut | None = None
) -> PublicFigures:
    """All that calibration may know of data with this schema.

    rows_by_party: of whole tables; held_out: which of them the run uses, None: all.

    Raises:
        ParameterError: too few rows to hold some back.
    """
    stated: dict[str, Any] = {
        "digest": schema.digest(),
        "features": list(schema.feature_names),
        **schema.row_terms,
    }
    if isinstance(schema.label, Targets):
        stated["targets"] = list(schema.label.names)
    return PublicFigures(
        rows_by_party=tuple(rows_by_party),
        num_features=schema.num_features,
        norm_bound=schema.norm_bound,
        entry_bound=1.0 if schema.row_norm is not None else ENTRY_BOUND[schema.scaling],
        outputs=1 if isinstance(schema.label, Label) else schema.label.outputs,
        schema=stated,
    ).holding(held_out)


def check_kind(schema: Schema, name: str) -> None:
    """Refuse a model for another kind of outcome, or for targets of other ranges.

    Raises:
        SchemaError, ParameterError: names both.
    """
    label, model = schema.label, model_named(name)
    due = Targets if model.numeric else Classes if model.several else Label
    if not isinstance(label, due):
        raise SchemaError(
            f"model={name!r} does not go with the schema, which has {KINDS[type(label)]} "
            f"({label.name}): choose {FITTING[type(label)]}, or another schema"
        )
    if isinstance(label, Targets):
        model.check_ranges({each.name: each.low for each in label.columns})


def new_draw(config: SimulationConfig) -> HeldOut | None:
    """What owners hold back, under a name of its own; None: nothing."""
    if not config.held_out:
        return None
    return HeldOut(share=config.held_out, draw=secrets.token_hex(16))


def settled(
    schema: Schema, rows_by_party: Iterable[int], wanted: Wanted, evidence: Evidence
) -> Calibration:
    """The run that follows one that summed a second moment, on the same rows.

    rows_by_party: of whole tables; wanted: as chosen before that one.
    """
    figures = figures_of(schema, rows_by_party, evidence.plan.held_out)
    matrix, _ = evidence.opened()
    moment = Moment(matrix, evidence.plan.noise_scales[0], evidence.plan.digest())
    return calibrate(figures, wanted, moment)
