"""k-fold cross-validation of enhanced Nesterov by the quadratic gradient, encrypted and in clear.

Rows are shuffled once, floor(rows / folds) of them per test fold. Columns are scaled to [0, 1] by
their extremes, as in the paper: the schema declares the range [2 low - high, high], of which range
scaling makes [-1, 1] and hence of [low, high] makes [0, 1]. The extremes come from the table, which
is public here; a deployment takes public ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.inputs import INFERRED
from ciphercohort.results.predict import raw_rows
from ciphercohort.results.result import RunResult
from parties.reader.schema import Label, NumericColumn, Schema
from parties.reader.shard import encode_shard
from protocols.errors import DataError
from protocols.models.registry import model_named
from protocols.numerics.approximation import Polynomial
from sims.lab.papers.curves import unit_rows
from sims.lab.papers.data import fold_numbers
from sims.lab.papers.rules import enhanced
from sims.owners import encode
from sims.prepare import PreparedData, split_rows
from sims.simulation import run

Array = NDArray[np.float64]
ITERATIONS, DEGREE, RADIUS, PARTIES = 4, 5, 8.0, 3
# The paper's polynomial (Kim et al.), in t = z / 8.
LINK = Polynomial(
    coefficients=(0.5, 0.19131 * 8, 0.0, -0.0045963 * 8**3, 0.0, 0.0000412332 * 8**5),
    center=0.0,
    radius=RADIUS,
)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of numbers with labels 0 and 1, and the schema that scales it to [0, 1]."""

    name: str
    frame: pd.DataFrame
    schema: Schema

    @classmethod
    def of(cls, name: str, frame: pd.DataFrame, label: str) -> Table:
        """Every column but the label is a number.

        Raises:
            DataError: the label is not a column, or has other values.
        """
        if label not in frame.columns or set(frame[label].astype(float)) != {0.0, 1.0}:
            raise DataError(f"{name}: column {label!r} must exist and hold 0 and 1")
        return cls(name=name, frame=frame, schema=unit_schema(frame, label))


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
    data = encode(dict(zip(names, frames, strict=True)), table.schema, INFERRED, [])
    tested = encode_shard(test, table.schema)
    return replace(data, test=tested, raw_test=raw_rows(test, table.schema))


def configuration(profile: str, seed: int) -> SimulationConfig:
    """Of the paper's encrypted experiments: N_t = 1 + 0.9^t, degree 5, four iterations."""
    return SimulationConfig(
        parties=PARTIES,
        update="quadratic-nag",
        rounds=ITERATIONS,
        degree=DEGREE,
        radius=RADIUS,
        seed=seed,
        profile=profile,
    )


def encrypted_folds(table: Table, folds: int, config: SimulationConfig) -> Iterator[RunResult]:
    """A whole session for each fold, keys included, with the paper's polynomial."""
    for train, test in fold_numbers(len(table.frame), folds, np.random.default_rng(config.seed)):
        data = prepared(table, table.frame.iloc[train], table.frame.iloc[test], config)
        yield run(config, data, config.seed or 0, lambda event: None, LINK)


def paper_weights(table: Table, folds: int, seed: int) -> Iterator[Array]:
    """The paper's rule in float64 on the same training rows, the intercept last, as of a session.

    Its B is Algorithm 1's with eps = 1e-8; a session's has a larger offset, see `Curvature`.
    """
    x, signs = unit_rows(table.frame, table.schema.label.name)
    for train, _ in fold_numbers(len(table.frame), folds, np.random.default_rng(seed)):
        *_, weights = enhanced(x[train], signs[train], ITERATIONS, link=LINK)
        yield np.append(weights[1:], weights[0])


def plain_folds(table: Table, folds: int, seed: int) -> tuple[float, float]:
    """(accuracy, AUC), means over the folds of one shuffle, of the paper's rule in float64."""
    x, signs = unit_rows(table.frame, table.schema.label.name)
    logistic, found = model_named("logistic"), []
    for train, test in fold_numbers(len(table.frame), folds, np.random.default_rng(seed)):
        *_, weights = enhanced(x[train], signs[train], ITERATIONS, link=LINK)
        scores = logistic.course(weights, (x[:1], x[:1, 0]), (x[test], signs[test]))
        found.append((scores["accuracy"], scores["auc"]))
    accuracy, auc = np.nanmean(found, axis=0)
    return float(accuracy), float(auc)
