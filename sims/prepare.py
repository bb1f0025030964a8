"""Data for a simulation: read, split, encode; every complaint about data comes from here."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.schema import Schema, infer_schema
from parties.shard import Shard, encode_shard, read_table
from protocols.errors import DataError, SchemaError
from sims.config import SimulationConfig
from sims.datasets import builtin_dataset, holdout, require_both_classes, split_rows


@dataclass(frozen=True, kw_only=True)
class PreparedData:
    """shards by party name, encoded; test: encoded test rows; notes: sentences for the reader."""

    schema: Schema
    shards: dict[str, Shard]
    test: Shard
    notes: tuple[str, ...]

    @property
    def rows(self) -> NDArray[np.float64]:
        """All training rows in the plan's order, shape (N, d)."""
        return np.concatenate([shard.x for shard in self.shards.values()])

    @property
    def labels(self) -> NDArray[np.float64]:
        """All training labels, shape (N,)."""
        return np.concatenate([shard.y for shard in self.shards.values()])


def prepare(config: SimulationConfig, rng: np.random.Generator) -> PreparedData:
    """Read, hold out, infer a schema where none is given, split and encode.

    rng: of the hold-out and the split.

    Raises:
        SchemaError, DataError, ParameterError: name the column or option and the cure.
    """
    notes: list[str] = []
    frame, label = _table(config)
    train, test = _train_and_test(config, frame, label, rng)
    split_column = config.split.partition(":")[2] if config.split.startswith("by:") else None
    schema = _schema(config, train, label, split_column, notes)
    if schema.label.name != label:
        raise SchemaError(f"label={label!r} is not the schema's label {schema.label.name!r}")
    require_both_classes(train, label, "the training rows")
    frames, names = split_rows(train, config.parties, config.split, label, rng)
    shards = {
        name: _encode(part, schema, config.strict, name)
        for name, part in zip(names, frames, strict=True)
    }
    return PreparedData(
        schema=schema,
        shards=shards,
        test=_encode(test, schema, False, "the test rows"),
        notes=tuple(notes),
    )


def _table(config: SimulationConfig) -> tuple[pd.DataFrame, str]:
    if config.data is None:
        frame, label = builtin_dataset()
        return frame, config.label or label
    label = config.label or "y"
    frame = read_table(config.data, label=label)
    if label not in frame.columns:
        raise SchemaError(
            f"label={label!r} is not a column; the columns are {', '.join(map(str, frame.columns))}"
        )
    return frame, label


def _train_and_test(
    config: SimulationConfig, frame: pd.DataFrame, label: str, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    if config.test is not None:
        return frame, read_table(config.test, label=label)
    return holdout(frame, config.holdout, rng, label)


def _schema(
    config: SimulationConfig,
    train: pd.DataFrame,
    label: str,
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
        schema = infer_schema(train, label, config.positive, exclude=excluded)
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
