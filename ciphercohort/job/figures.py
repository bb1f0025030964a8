"""Public figures of a schema, and what a run with them is calibrated to."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ciphercohort.job.config import SimulationConfig
from parties.reader.schema import Classes, Label, NumericColumn, Schema, Targets
from parties.reader.views import row_norm
from protocols.errors import SchemaError
from protocols.models.registry import model_named
from protocols.numerics.whitening import Usual
from protocols.plan.held_out import HeldOut
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.whitened import Moment
from protocols.steps.second_moment import Evidence

UNSURE = 0.5
"""Spread of an encoded column of which nothing is known."""

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
        entry_bound=schema.entry_bound,
        outputs=1 if isinstance(schema.label, Label) else schema.label.outputs,
        schema=stated,
        typical=usual_of(schema),
        ranged_bound=row_norm(schema),
        spreads=tuple(
            (column.name, column.spread / (column.high - column.low))
            for column in schema.columns
            if isinstance(column, NumericColumn) and column.spread is not None
        ),
    ).holding(held_out)


def usual_of(schema: Schema) -> Usual:
    """What encoded rows are like, from typical values and spreads, categories alike.

    A number without a typical value is about in the middle of its range, with a spread of half of
    that to either side; a category's spread is at most 1/2.
    """
    shifts, scales = (values.tolist() for values in schema.affine())
    found = list[tuple[float, float]]()
    for column in schema.columns:
        middle, spread = 1 / len(column.features), UNSURE
        own = [(middle, spread)] * len(column.features)
        if isinstance(column, NumericColumn):
            shift, scale = shifts[len(found)], scales[len(found)]
            if column.typical is not None and column.spread is not None:
                own[0] = (column.typical - shift) / scale, column.spread / scale
            else:
                own[0] = 0.0, UNSURE
        found += own
    middles, spreads = np.array(found).reshape(-1, 2).T
    if schema.projection is not None:
        # As if columns were independent.
        matrix = schema.projection.matrix
        middles = matrix @ (middles - schema.projection.shift)
        spreads = np.sqrt(matrix**2 @ spreads**2)
    middles, spreads = middles * schema.bias, spreads * schema.bias
    return Usual(middles=tuple(middles.tolist()), spreads=tuple(spreads.tolist()), bias=schema.bias)


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
    return calibrate(figures, wanted, Moment.of(matrix, evidence.plan))
