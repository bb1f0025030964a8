"""Public figures of a schema, and what a run with them is calibrated to."""

from __future__ import annotations

from collections.abc import Iterable

from parties.data.schema import Schema, Targets
from protocols.errors import SchemaError
from protocols.models.registry import model_named
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.whitened import Moment
from protocols.second_moment import Evidence
from sims.config import SimulationConfig
from sims.predicted import predicted_run
from sims.within import choose

ENTRY_BOUND = {"range": 1.0, "standard": 2.0}
"""Bound on an entry of an encoded row, the bias included, where rows are not clipped."""


def figures_of(schema: Schema, rows_by_party: Iterable[int]) -> PublicFigures:
    """All that calibration may know of data with this schema."""
    stated = {"digest": schema.digest(), "features": list(schema.feature_names)}
    targets = isinstance(schema.label, Targets)
    if targets:
        stated["targets"] = list(schema.label.names)
    return PublicFigures(
        rows_by_party=tuple(rows_by_party),
        num_features=schema.num_features,
        norm_bound=schema.norm_bound,
        entry_bound=1.0 if schema.row_norm is not None else ENTRY_BOUND[schema.scaling],
        outputs=len(schema.label.names) if targets else 1,
        schema=stated,
    )


def calibrated(
    config: SimulationConfig,
    schema: Schema,
    rows_by_party: Iterable[int],
) -> Calibration:
    """What a simulation and a deployment run; within a budget, the best setting.

    Raises:
        PrivacyError: no certified setting exists. ParameterError: options that do not fit.
        SchemaError: the schema is for another kind of model.
    """
    label = schema.label
    if isinstance(label, Targets) != config.is_regression:
        what = "numeric targets" if isinstance(label, Targets) else "a label of two values"
        raise SchemaError(
            f"model={config.model!r} does not go with the schema, which has {what} "
            f"({label.name}): choose another model, or another schema"
        )
    if isinstance(label, Targets):
        model_named(config.model).check_ranges({each.name: each.low for each in label.columns})
    figures = figures_of(schema, rows_by_party)
    if config.within is not None:
        return choose(config, figures, predicted_run).calibration
    return calibrate(figures, Wanted.of(config))


def settled(figures: PublicFigures, wanted: Wanted, evidence: Evidence) -> Calibration:
    """The run that follows one that summed a second moment; wanted: as chosen before that one."""
    matrix, _ = evidence.opened()
    moment = Moment(matrix, evidence.plan.noise_scales[0], evidence.plan.digest())
    return calibrate(figures, wanted, moment)
