"""Data for a simulation: read, split, encode; every complaint about data comes from here."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.data.encode import encode_shard, expand_columns
from parties.data.infer import REGRESSION_SCALING, infer_schema
from parties.data.look import cohort_warnings
from parties.data.problems import Problems
from parties.data.schema import Schema
from parties.data.shard import Shard
from parties.data.table import read_table
from protocols.documents import shown, suggest
from protocols.errors import DataError, SchemaError
from protocols.models.registry import model_named
from sims.config import SimulationConfig
from sims.datasets import (
    builtin_dataset,
    holdout,
    require_classes,
    require_spread,
    split_rows,
)
from sims.figures import check_kind

PLACE = "\0place"
"""Column with the position of a row in its table."""
MANY_CLIPPED = 0.1
"""Share of the rows that a reader is told of."""
LITTLE_USED = 0.25
"""Mean weight over its bound, below which a reader is told."""


@dataclass(frozen=True, kw_only=True)
class PreparedData:
    """shards by party name, encoded; test: encoded test rows; notes: sentences for the reader.

    raw, raw_test: training and test rows in the data's own units, see `raw_rows`; places: of each
    party's rows in the table, where it came from one.
    """

    schema: Schema
    shards: dict[str, Shard]
    test: Shard
    raw: NDArray[np.float64] = field(repr=False)
    raw_test: NDArray[np.float64] = field(repr=False)
    notes: tuple[str, ...]
    places: Mapping[str, NDArray[np.int64]] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> NDArray[np.float64]:
        """All training rows in the plan's order, shape (N, d)."""
        return np.concatenate([shard.x for shard in self.shards.values()])

    @property
    def labels(self) -> NDArray[np.float64]:
        """All training labels, shape (N,), or targets or one-hot classes, shape (N, c)."""
        return np.concatenate([shard.y for shard in self.shards.values()])

    @property
    def row_weights(self) -> NDArray[np.float64]:
        """Of all training rows over their bound, shape (N,)."""
        return np.concatenate([shard.weight for shard in self.shards.values()])

    @property
    def offsets(self) -> NDArray[np.float64]:
        """Of all training rows' scores, shape (N,)."""
        return np.concatenate([shard.offset for shard in self.shards.values()])


def raw_rows(frame: pd.DataFrame, schema: Schema) -> NDArray[np.float64]:
    """Rows in the data's own units, neither scaled nor clamped nor clipped; the bias last.

    Returns: float64 array, shape (rows, num_features). Unknown categories are all zeros.
    """
    features, _ = expand_columns(frame, schema.columns)
    return np.column_stack([features, np.ones(len(frame))])


def prepare(config: SimulationConfig, rng: np.random.Generator) -> PreparedData:
    """Read, hold out, infer a schema where none is given, split and encode.

    rng: of the hold-out and the split.

    Raises:
        SchemaError, DataError, ParameterError: name the column or option and the cure.
    """
    notes: list[str] = []
    problems = Problems()
    if config.schema is not None:
        config = with_outcome(config, Schema.load(config.schema))
    frame, predicted = _table(config, problems)
    split_column = config.split.partition(":")[2] if config.split.startswith("by:") else None
    # A bad cell is refused by its row in the file, wherever the hold-out and the split put it.
    try:
        whole = _schema(config, frame, predicted, split_column, [])
    except (SchemaError, DataError) as error:
        problems.add(str(error), type(error))
        problems.refuse()
        raise
    encode_shard(frame, whole, problems=problems)
    placed = frame.assign(**{PLACE: np.arange(len(frame))})
    train, test = _train_and_test(config, placed, predicted[0], rng)
    schema = _schema(config, train.drop(columns=PLACE), predicted, split_column, notes)
    if config.is_regression:
        require_spread(train, predicted, "the training rows")
    else:
        require_classes(train, predicted[0], "the training rows", _several(config))
    frames, names = split_rows(train, config.parties, config.split, predicted[0], rng)
    shards = {
        name: _encode(part, schema, config.strict, name)
        for name, part in zip(names, frames, strict=True)
    }
    tested = _encode(test, schema, False, "the test rows")
    notes += clamped_targets(tested, schema)
    notes += cohort_warnings(shards, config.split)
    notes += bounds_notes(shards.values(), schema)
    return PreparedData(
        schema=schema,
        shards=shards,
        test=tested,
        raw=np.concatenate([raw_rows(part, schema) for part in frames]),
        raw_test=raw_rows(test, schema),
        notes=tuple(notes),
        places={name: part[PLACE].to_numpy() for name, part in zip(names, frames, strict=True)},
    )


def with_outcome(config: SimulationConfig, schema: Schema) -> SimulationConfig:
    """The configuration that names what its schema does.

    Raises:
        SchemaError: it names something else, or its model does not go with the schema.
    """
    check_kind(schema, config.model)
    given, names = config.targets or (config.label,), schema.label.names
    what = "target" if config.is_regression else "label"
    if given != names and given != (None,):
        raise SchemaError(
            f"{what}={','.join(map(str, given))!r} is not the schema's {','.join(names)!r}: leave "
            f"{what} out, or give another schema"
        )
    positive = getattr(schema.label, "positive", None)
    if config.positive not in (None, positive):
        raise SchemaError(
            f"positive={config.positive!r} is not the schema's {positive!r}: leave it out, or give "
            "another schema"
        )
    if config.is_regression:
        return replace(config, targets=names)
    return replace(config, label=schema.label.name)


def bounds_notes(shards: Iterable[Shard], schema: Schema) -> list[str]:
    """Notes where the schema's bounds change many rows, or leave weights little room."""
    parts = list(shards)
    rows = sum(shard.rows for shard in parts)
    clipped = sum(shard.counts.norm_clipped for shard in parts) / rows
    used = sum(float(shard.weight.sum()) for shard in parts) / rows
    notes = []
    unknown = sorted({name for shard in parts for name in shard.counts.unknown})
    if unknown:
        cells = sum(sum(shard.counts.unknown.values()) for shard in parts)
        notes.append(
            f"{cells} cells of no declared category in {', '.join(map(shown, unknown))}: such rows "
            "count as of none; correct them, widen the schema, or refuse them by strict"
        )
    if clipped > MANY_CLIPPED:
        notes.append(
            f"{clipped:.0%} of the training rows are longer than row_norm={schema.row_norm:g} of "
            "the schema and are shortened to it: at a small epsilon a thousand rows lose nothing "
            "by it, for noise is as large as the longest row; without privacy take a larger "
            "row_norm, or null"
        )
    if used < LITTLE_USED:
        notes.append(
            f"weights use {used:.0%} of their bound on average: steps are as short, and privacy "
            "noise is as much larger; cap large weights, and lower the bound in the schema"
        )
    return notes


def clamped_targets(tested: Shard, schema: Schema) -> list[str]:
    """A note where test targets lie outside their public range."""
    outside = tested.counts.outside
    moved = {name: outside[name] for name in schema.label.names if name in outside}
    if not moved:
        return []
    return [
        f"{sum(moved.values())} test values of {', '.join(moved)} lie outside the public range and "
        "count as its ends"
    ]


def _table(config: SimulationConfig, problems: Problems) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The table, and what is predicted of it; problems of single lines go to `problems`."""
    if config.data is None:
        usual = "iris" if _several(config) else "breast_cancer"
        frame, label = builtin_dataset("diabetes" if config.is_regression else usual)
        return frame, config.targets or (config.label or label,)
    predicted = config.targets or (config.label or "y",)
    frame = read_table(config.data, label=predicted[0], problems=problems)
    for name in predicted:
        if name not in frame.columns:
            what = "target" if config.is_regression else "label"
            raise SchemaError(
                f"{what}={name!r} is not a column; the columns are "
                f"{', '.join(map(str, frame.columns))}{suggest(name, map(str, frame.columns))}"
            )
    return frame, predicted


def _train_and_test(
    config: SimulationConfig, frame: pd.DataFrame, label: str, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    if config.test is not None:
        return frame, read_table(config.test, label=label)
    stratified = None if config.is_regression else label
    return holdout(frame, config.test_share, rng, stratified, _several(config))


def _several(config: SimulationConfig) -> bool:
    """Whether a label of several classes is predicted."""
    return model_named(config.model).several


def _schema(
    config: SimulationConfig,
    train: pd.DataFrame,
    predicted: tuple[str, ...],
    split_column: str | None,
    notes: list[str],
) -> Schema:
    if config.schema is not None:
        return Schema.load(config.schema)
    excluded = list(config.exclude)
    if split_column is not None and split_column in train.columns:
        excluded.append(split_column)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if config.is_regression:
            schema = infer_schema(train, predicted, exclude=excluded, **REGRESSION_SCALING)
        else:
            schema = infer_schema(
                train,
                predicted[0],
                config.positive,
                exclude=excluded,
                several=_several(config),
            )
    notes += [str(w.message) for w in caught]
    if config.data is not None:
        notes.append(
            "the column schema was inferred from the private data, which leaks about them; a "
            "deployment needs a public schema (cohort schema init, --schema)"
        )
    return schema


def _encode(frame: pd.DataFrame, schema: Schema, strict: bool, whose: str) -> Shard:
    try:
        return encode_shard(frame, schema, strict)
    except DataError as error:
        raise DataError(f"{whose}: {error}") from None
