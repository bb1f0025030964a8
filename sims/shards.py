"""Rows of several owners: named, checked against one another and the schema, split, encoded."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from parties.data.encode import encode_shard
from parties.data.infer import REGRESSION_SCALING, infer_schema
from parties.data.schema import Label, Schema
from parties.data.shard import ClampCounts, Shard
from parties.data.table import read_table
from protocols.documents import shown, suggest
from protocols.errors import CohortError, DataError
from protocols.messages import COORDINATOR
from sims.config import SimulationConfig
from sims.datasets import split_rows
from sims.prepare import PreparedData
from sims.rows import Columns, Rows, read_rows


def by_name(shards: Any, estimator: str) -> dict[str, Any]:
    """Shards by owner; a list's owners are party-1, party-2 and so on.

    estimator: name of the class, for messages.

    Raises:
        DataError: not shards, or names that do not tell the owners apart.
    """
    if isinstance(shards, Mapping):
        named = {str(name): shard for name, shard in shards.items()}
        if len(named) < len(shards) or not all(named) or COORDINATOR in named:
            raise DataError(
                f"the names of the shards are not distinct, not empty and not {COORDINATOR!r}: "
                "name each owner differently"
            )
        return named
    kinds = (tuple, pd.DataFrame, np.ndarray, str, os.PathLike)
    if isinstance(shards, (list, tuple)) and all(isinstance(shard, kinds) for shard in shards):
        return {f"party-{k + 1}": shard for k, shard in enumerate(shards)}
    raise DataError(
        f"{estimator} requires y to be passed, but the target y is None: give y, or one shard "
        "(X, y) per owner in a list or a dict"
    )


@contextmanager
def naming(owner: str) -> Iterator[None]:
    """Any complaint as a DataError about this shard; nothing is chained that may quote a cell."""
    try:
        yield
    except CohortError as error:
        raise DataError(f"shard {shown(owner)}: {error}") from None
    except (ValueError, TypeError) as error:
        # scikit-learn quotes arrays, always from the second line on.
        line = str(error).partition("\n")[0].rstrip(":")
        raise DataError(f"shard {shown(owner)}: {line}") from None


def read_shard(name: str, shard: Any, columns: Columns) -> Rows:
    """Check one shard: a pair (X, y), or a frame or file with the columns `columns.labels`.

    Raises:
        DataError: the shard cannot be used; the message names it.
    """
    what = "targets" if columns.numeric else "label"
    with naming(name):
        if isinstance(shard, tuple) and len(shard) == 2:
            return read_rows(*shard, columns)
        if not isinstance(shard, (pd.DataFrame, str, os.PathLike)):
            raise DataError(
                f"a {type(shard).__name__} holds no labels: give a pair (X, y), or a DataFrame "
                f"with the column {what}="
            )
        if not columns.labels:
            raise DataError(f"{what} is missing: name the column to predict, such as {what}='y'")
        frame = read_table(shard)
        for label in columns.labels:
            if label not in frame.columns:
                raise DataError(
                    f"{what}={shown(label)} is not a column{suggest(label, frame.columns)}: add "
                    f"it, or name the {what} column"
                )
        return read_rows(frame, columns.outcome(frame), columns)


def check_alike(owners: Mapping[str, Rows]) -> None:
    """The first shard is the model of the others: names of columns, numbers or texts.

    Raises:
        DataError: a shard is not like it; the message names both.
    """
    first, *others = owners
    model = owners[first]
    for name in others:
        with naming(name):
            owner = owners[name]
            for one, two, what in (
                (owner.frame, model.frame, f"is missing, which shard {shown(first)} has"),
                (model.frame, owner.frame, f"is not in shard {shown(first)}"),
            ):
                odd = [column for column in two.columns if column not in one.columns]
                if odd:
                    raise DataError(
                        f"column {shown(odd[0])} {what}{suggest(odd[0], one.columns)}: "
                        "give all shards the same columns"
                    )
            for column in model.frame.columns:
                if owner.has_numbers(column) != model.has_numbers(column):
                    raise DataError(
                        f"column {shown(column)} holds numbers here or in shard {shown(first)}, "
                        "and texts in the other: write all in one way"
                    )
            if owner.has_text_labels != model.has_text_labels:
                raise DataError(
                    f"the labels are numbers here or in shard {shown(first)}, and texts in the "
                    "other: write all in one way"
                )


def two_classes(owners: Mapping[str, Rows]) -> NDArray[Any]:
    """The two labels of all owners together, sorted.

    Raises:
        DataError: there are more, or there is one.
        ValueError: scikit-learn's own, for labels that are not classes.
    """
    labels = np.concatenate([owner.labels for owner in owners.values()])
    check_classification_targets(labels)
    classes: NDArray[Any] = np.unique(labels)
    if len(classes) > 2:
        raise DataError(
            "Only binary classification is supported. The type of the target is multiclass: the "
            f"label has {len(classes)} classes; derive a yes/no label from it"
        )
    if len(classes) < 2:
        raise DataError("the label has 1 class in all rows together: rows of both are needed")
    return classes


def free_name(frame: pd.DataFrame, name: str = "y") -> str:
    """A name for the label that no column has."""
    while name in frame.columns:
        name += "_"
    return name


def infer(
    pooled: pd.DataFrame, label: str | Sequence[str], positive: str | None, notes: list[str]
) -> Schema:
    """Infer the schema of all rows; what would be warnings is added to the notes.

    label: of two values, or a list of targets.
    """
    scaling = {} if isinstance(label, str) else REGRESSION_SCALING
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        schema = infer_schema(pooled, label, positive, **scaling)
    notes += [str(warning.message) for warning in caught]
    return schema


def sign_of(label: Label, texts: tuple[str, ...], notes: list[str]) -> int:
    """-1 where the schema's positive label is classes_[0], so its model is the other way round.

    Raises:
        DataError: the labels are not the schema's.
    """
    if {label.negative, label.positive} != set(texts):
        raise DataError(
            f"the labels are not the schema's {label.negative!r} and {label.positive!r}: correct "
            "them or the schema"
        )
    if label.positive == texts[1]:
        return 1
    notes.append(
        f"coef_ and intercept_ are for {texts[1]!r}, the larger label; the schema's positive label "
        f"and a model.json are for {texts[0]!r}, with opposite signs"
    )
    return -1


def split_by_owner(
    X: Any,
    pooled: pd.DataFrame,
    config: SimulationConfig,
    columns: Columns,
    label: str,
    rng: np.random.Generator,
) -> dict[str, pd.DataFrame]:
    """Split all rows among simulated owners.

    X: as given, where the column to split by is; pooled: its features and label; rng: of the split.

    Raises:
        SchemaError, DataError, ParameterError: see `sims.datasets.split_rows`.
    """
    by = columns.split
    if by and isinstance(X, pd.DataFrame) and by in X.columns:
        pooled = pooled.assign(**{by: X[by].to_numpy()})
    tables, names = split_rows(pooled, config.parties, config.split, label, rng)
    return dict(zip(names, tables, strict=True))


def encode(tables: Mapping[str, pd.DataFrame], schema: Schema, notes: list[str]) -> PreparedData:
    """Encode all tables; the training rows are the test rows, too.

    Raises:
        DataError: a value cannot be encoded; the message names the shard.
    """
    shards = {}
    for name, table in tables.items():
        with naming(name):
            shards[name] = encode_shard(table, schema)
    x = np.concatenate([shard.x for shard in shards.values()])
    y = np.concatenate([shard.y for shard in shards.values()])
    training = Shard(x=x, y=y, counts=ClampCounts(rows=len(y)), schema=schema)
    return PreparedData(schema=schema, shards=shards, test=training, notes=tuple(notes))
