"""The shape of the data that a forecast is of: as given, or as `simulate` would read it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.figures import figures_of, new_draw
from protocols.errors import ParameterError
from protocols.models.registry import model_named
from protocols.privacy.calibrate.figures import PublicFigures
from sims.prepare import prepare, public_schema, with_outcome
from sims.simulation import noise_root


def shape_asked(
    config: SimulationConfig,
    rows: int | None,
    features: int | None,
    norm_bound: float | None,
    classes: int | None = None,
) -> tuple[SimulationConfig, PublicFigures]:
    """The shape that is given, or that of the data; and the configuration for it.

    Raises:
        SchemaError, DataError, ParameterError: both are given, or neither; or as `simulate`.
    """
    given = {"rows": rows, "features": features, "norm-bound": norm_bound, "classes": classes}
    if config.data is not None:
        extra = ", ".join(name for name, value in given.items() if value is not None)
        if extra:
            raise ParameterError(f"{extra} and data are both given: the data fix them")
        return shape_of_data(config)
    if config.schema is not None and rows is not None:
        extra = ", ".join(name for name, value in list(given.items())[1:] if value is not None)
        if extra:
            raise ParameterError(f"{extra} and schema are both given: the schema fixes them")
        return _shape_of_schema(config, rows)
    if rows is None or features is None:
        raise ParameterError(
            "the shape of the data is missing: give --rows and --features, --rows and --schema, "
            "or --data FILE"
        )
    for name in ("positive", "exclude", "include", "strict", "test"):
        if getattr(config, name) not in (None, False, ()):
            raise ParameterError(f"{name} chooses among data: add --data FILE, or leave it out")
    if model_named(config.model).several != (classes is not None):
        raise ParameterError(
            f"classes={classes}: models softmax and one-vs-rest need their number, with --classes, "
            "and no other takes it"
        )
    parties = _even(config)
    # Rows of regressions are not clipped: every entry is within [-1, 1], the bias included.
    usual = math.sqrt(features + 1) if config.is_regression and features > 0 else 1.0
    shape = PublicFigures.even(
        rows=rows,
        features=features,
        parties=parties,
        norm_bound=usual if norm_bound is None else norm_bound,
    )
    shape = replace(shape, outputs=classes or len(config.targets) or 1)
    return config, shape.holding(new_draw(config))


def _even(config: SimulationConfig) -> int:
    """How many owners share rows evenly."""
    if config.split != "even" or config.parties is None:
        raise ParameterError(f"split={config.split!r} needs data: add --data FILE, or leave it out")
    return config.parties


def _shape_of_schema(config: SimulationConfig, rows: int) -> tuple[SimulationConfig, PublicFigures]:
    """So many rows of a schema, as good as rows of a file."""
    schema = public_schema(config)
    if schema is None:  # it is given
        raise AssertionError("a given schema is lost")
    config = with_outcome(config, schema)
    for name in ("strict", "test"):
        if getattr(config, name):
            raise ParameterError(f"{name} is about data: add --data FILE, or leave it out")
    d, parties = schema.num_features, _even(config)
    shape = PublicFigures.even(rows=rows, features=d - 1, parties=parties, norm_bound=1.0)
    return config, figures_of(schema, shape.rows_by_party, new_draw(config))


def shape_of_data(config: SimulationConfig) -> tuple[SimulationConfig, PublicFigures]:
    """The shape that `simulate` would train on; reads the data, for their shape alone.

    Raises:
        SchemaError, DataError, ParameterError: as `simulate`.
    """
    data = prepare(config, np.random.default_rng(noise_root(config)))
    rows = (shard.rows for shard in data.shards.values())
    shape = figures_of(data.schema, rows, new_draw(config))
    return replace(config, parties=len(data.shards)), shape
