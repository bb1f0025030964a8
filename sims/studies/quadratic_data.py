"""Tables of `quadratic`: columns scaled to [0, 1], folds, rows shared out among parties."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.data.encode import encode_shard
from parties.data.schema import Label, NumericColumn, Schema
from parties.data.table import read_table
from protocols.errors import DataError
from sims.config import SimulationConfig
from sims.datasets import split_rows
from sims.prepare import PreparedData


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of numbers with labels 0 and 1, and the schema that scales it to [0, 1]."""

    name: str
    frame: pd.DataFrame
    schema: Schema

    @classmethod
    def load(cls, path: Path, label: str) -> Table:
        """Read a file; every column but the label is a number.

        Raises:
            DataError: the label is not a column, or has other values.
        """
        frame = read_table(path, label=label)
        if label not in frame.columns or set(frame[label].astype(float)) != {0.0, 1.0}:
            raise DataError(f"{path.name}: column {label!r} must exist and hold 0 and 1")
        return cls(name=path.stem, frame=frame, schema=unit_schema(frame, label))

    def fold(
        self, order: NDArray[np.intp], folds: int, k: int
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """(training rows, test rows) of fold k < folds."""
        size = len(order) // folds
        test = order[k * size : (k + 1) * size]
        train = np.setdiff1d(order, test, assume_unique=True)
        return self.frame.iloc[train], self.frame.iloc[test]


def unit_schema(frame: pd.DataFrame, label: str) -> Schema:
    """Range scaling that maps every column's extremes to 0 and 1; a constant column to 0."""
    columns = []
    for name in frame.columns.drop(label):
        low, high = float(frame[name].min()), float(frame[name].max())
        high = high if high > low else low + 1.0
        columns.append(NumericColumn(name=str(name), low=2 * low - high, high=high))
    names = Label(name=label, positive="1", negative="0")
    return Schema(columns=tuple(columns), label=names, scaling="range")


def prepared(
    table: Table, train: pd.DataFrame, test: pd.DataFrame, config: SimulationConfig
) -> PreparedData:
    """Training rows shared out evenly, test rows beside."""
    label = table.schema.label.name
    rng = np.random.default_rng(config.seed)
    frames, names = split_rows(train, config.parties, "even", label, rng)
    shards = {
        name: encode_shard(frame, table.schema) for name, frame in zip(names, frames, strict=True)
    }
    test_rows = encode_shard(test, table.schema)
    return PreparedData(schema=table.schema, shards=shards, test=test_rows, notes=())
