"""Rows of several owners: read, checked against one another and the schema, split, encoded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from sklearn.utils import assert_all_finite, check_array, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.inputs import SchemaFrom
from ciphercohort.results.predict import raw_rows
from parties.reader.cells import cell_text
from parties.reader.schema import Classes, Label, Schema
from parties.reader.shard import ClampCounts, Shard, check_columns, encode_shard
from parties.reader.table import read_table
from protocols.errors import CohortError, DataError, ParameterError, SchemaError
from protocols.exchange.documents import shown, suggest
from protocols.names import COORDINATOR, SECURE_AGGREGATION
from sims.prepare import PreparedData, split_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """Which columns of frames are features.

    labels: label column, or targets; empty: unknown. split: column to split by; None: none.
    features: the schema's columns, in its order; None: all columns but labels and split. numeric:
    whether targets are predicted. flat: one target was named on its own, not in a list. may_miss:
    columns whose missing cells the schema fills in. beside: those of weights and offsets.
    """

    labels: tuple[str, ...]
    split: str | None
    features: tuple[str, ...] | None
    numeric: bool = False
    flat: bool = False
    may_miss: frozenset[str] = frozenset()
    beside: tuple[str, ...] = ()

    @classmethod
    def choose(
        cls,
        labels: tuple[str, ...],
        split: str,
        schema: Schema | None,
        *,
        numeric: bool = False,
        flat: bool = False,
    ) -> Columns:
        """labels: empty: the schema's; split: as of the estimator; schema: None: inferred.

        Raises:
            SchemaError: `labels` are not the schema's.
            ParameterError: `split` names a column of the schema.
        """
        labels = labels or (schema.label.names if schema else ())
        if schema and labels != schema.label.names:
            what, theirs = "targets" if numeric else "label", ", ".join(schema.label.names)
            raise SchemaError(f"{what}={', '.join(labels)!r} is not the schema's {what} {theirs!r}")
        kind, _, column = str(split).partition(":")
        by = column if kind == "by" and column else None
        features = tuple(column.name for column in schema.columns) if schema else None
        if features and by in features:
            raise ParameterError(
                f"split={split!r} names a column of the schema: split by another column, or "
                "take it out of the schema"
            )
        filled = (c.name for c in schema.columns if c.missing != "refuse") if schema else ()
        return cls(
            labels=labels,
            split=by,
            features=features,
            numeric=numeric,
            flat=flat,
            may_miss=frozenset(filled),
            beside=schema.beside if schema else (),
        )

    def are_in(self, frame: pd.DataFrame) -> bool:
        """Whether a frame holds all labels, which are known."""
        return bool(self.labels) and all(name in frame.columns for name in self.labels)

    def outcome(self, frame: pd.DataFrame) -> Any:
        """The label column, or those of the targets."""
        many = self.numeric and not self.flat
        return frame[list(self.labels)] if many else frame[self.labels[0]]

    def cells(self, X: Any) -> Any:
        """Features in a frame of their own, or a checked array, shape (rows, columns)."""
        if not isinstance(X, pd.DataFrame):
            return _checked_array(X)
        frame = read_table(X)
        if self.features:
            check_columns(frame, self.features)
            return frame[list(self.features)]
        others = (*self.labels, self.split)
        return frame.drop(columns=[name for name in others if name and name in frame.columns])


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """cells: as read; frame: the same with the schema's column names; labels: shape (rows,).

    Of targets: labels: shape (rows, c); names: of their columns, empty where they have none; flat:
    whether they were given as one column, shape (rows,).
    """

    cells: Any
    frame: pd.DataFrame
    labels: NDArray[Any]
    names: tuple[str, ...] = ()
    flat: bool = False

    @classmethod
    def read(cls, X: Any, y: Any, columns: Columns) -> Rows:
        """Check features X, shape (rows, columns), and labels (rows,) or targets (rows, c).

        Raises:
            DataError: rows or labels cannot be used.
            ValueError, TypeError: scikit-learn's own; they may quote cells.
        """
        cells = columns.cells(X)
        frame = read_table(cells)
        if columns.features:
            if frame.shape[1] != len(columns.features):
                raise DataError(
                    f"X has {frame.shape[1]} columns where the schema has {len(columns.features)}"
                )
            frame.columns = pd.Index(columns.features, dtype=object)
        frame = _plain(frame, columns.may_miss)
        if isinstance(X, pd.DataFrame):
            held = {name: X[name].to_numpy() for name in columns.beside if name in X.columns}
            frame = frame.assign(**held)
        outcome = _targets(y) if columns.numeric else (_labels(y), (), False)
        check_consistent_length(frame, outcome[0])
        return cls(cells, frame, *outcome)

    def has_numbers(self, column: str) -> bool:
        """Whether a column of the frame holds numbers, which texts and booleans are not."""
        cells = self.frame[column]
        return is_numeric_dtype(cells) and not is_bool_dtype(cells)

    @property
    def has_text_labels(self) -> bool:
        """Whether the labels are texts or mixed objects."""
        return self.labels.dtype.kind in "OU"


def load_schema(schema: Any) -> Schema | None:
    """The schema, or the one in the file of this path, or None.

    Raises:
        ParameterError: it is none of these. SchemaError: the file cannot be read.
    """
    if schema is None or isinstance(schema, Schema):
        return schema
    if isinstance(schema, (str, os.PathLike)):
        return Schema.load(Path(schema))
    raise ParameterError(f"schema={shown(schema)} is not a Schema, a path or None")


def _checked_array(X: Any) -> NDArray[Any]:
    """Numbers; or objects, where some cells are texts, so that the other columns stay numbers."""
    may_hold = X.dtype.kind in "OU" if isinstance(X, np.ndarray) else isinstance(X, (list, tuple))
    cells = np.array(X, dtype=object) if may_hold else None
    text = cells is not None and cells.ndim == 2 and any(isinstance(c, str) for c in cells.flat)
    try:
        array: NDArray[Any] = check_array(
            cells if text else X,
            dtype=None if text else "numeric",
            ensure_all_finite=False,  # encoding refuses them and names the columns
            input_name="X",
        )
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        raise DataError("X has text where a number is due: give a DataFrame") from None
    return array


def _plain(frame: pd.DataFrame, may_miss: frozenset[str]) -> pd.DataFrame:
    """Categories as texts, objects as numbers where they are numbers; no other cell is missing."""
    frame = frame.infer_objects()
    for name in frame.columns:
        cells = frame[name]
        missing = int(cells.isna().sum())
        if missing and name not in may_miss:
            raise DataError(
                f"column {shown(name)} is missing (NaN) in {missing} of {len(frame)} rows: "
                "fill in or drop these rows"
            )
        if isinstance(cells.dtype, pd.CategoricalDtype):
            frame[name] = cells.astype(object).map(cell_text, na_action="ignore")
    return frame


def _labels(y: Any) -> NDArray[Any]:
    """Labels as given, shape (rows,)."""
    labels = column_or_1d(y, warn=True)
    missing = int(pd.isna(labels).sum())
    if missing:
        raise DataError(f"y is missing in {missing} of {len(labels)} rows: drop these rows")
    if labels.dtype == object:
        labels = pd.Series(labels).infer_objects().to_numpy()
    assert_all_finite(labels, input_name="y")
    return np.asarray(labels)


def _targets(y: Any) -> tuple[NDArray[Any], tuple[str, ...], bool]:
    """Targets, shape (rows, c); their names; whether y is one column of shape (rows,)."""
    names: tuple[str, ...] = ()
    if isinstance(y, pd.DataFrame):
        names = tuple(map(str, y.columns))
    elif isinstance(y, pd.Series) and y.name is not None:
        names = (str(y.name),)
    try:
        values = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("y has text or objects where a number is due: correct these rows") from None
    if values.ndim not in (1, 2) or values.size == 0:
        raise DataError(f"y has shape {values.shape}: give (rows,) or (rows, targets)")
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise DataError(f"y is missing (NaN) or infinite in {bad} places: drop these rows")
    return values.reshape(len(values), -1), names, values.ndim == 1


# -- several owners -------------------------------------------------------------------------------


def by_name(shards: Any, estimator: str) -> dict[str, Any]:
    """Shards by owner; a list's owners are party-1, party-2 and so on.

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
            return Rows.read(*shard, columns)
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
        return Rows.read(frame, columns.outcome(frame), columns)


def check_alike(owners: Mapping[str, Rows]) -> None:
    """The first shard is the model of the others: names of columns, numbers or texts.

    Raises:
        DataError: a shard is not like it; the message names both.
    """
    first, *others = owners
    model = owners[first]
    mixed = f"numbers here or in shard {shown(first)}, and texts in the other: write all in one way"
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
                    raise DataError(f"column {shown(column)} holds {mixed}")
            if owner.has_text_labels != model.has_text_labels:
                raise DataError(f"the labels are {mixed}")


def classes_in(owners: Mapping[str, Rows], most: int = 2) -> NDArray[Any]:
    """The labels of all owners together, sorted: two at least, `most` at most.

    Raises:
        DataError: there are more, or there is one.
        ValueError: scikit-learn's own, for labels that are not classes.
    """
    labels = np.concatenate([owner.labels for owner in owners.values()])
    check_classification_targets(labels)
    classes: NDArray[Any] = np.unique(labels)
    if len(classes) > most > 2:
        raise DataError(f"the label has {len(classes)} classes, more than {most}: merge some")
    if len(classes) > most:
        raise DataError(
            "Only binary classification is supported. The type of the target is multiclass: the "
            f"label has {len(classes)} classes, which protocol={SECURE_AGGREGATION!r} alone takes; "
            "or derive a yes/no label from it"
        )
    if len(classes) < 2:
        raise DataError("the label has 1 class in all rows together: rows of both are needed")
    return classes


def free_name(frame: pd.DataFrame, name: str = "y") -> str:
    """A name for the label that no column has."""
    while name in frame.columns:
        name += "_"
    return name


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


def order_of(classes: Classes, texts: tuple[str, ...]) -> list[int]:
    """Where in the schema each of the labels' texts stands.

    Raises:
        DataError: the labels are not the schema's.
    """
    if set(classes.classes) != set(texts):
        raise DataError(
            f"the labels are not the schema's classes {', '.join(classes.classes)}: all have to "
            "occur and no others; correct them or the schema"
        )
    return [classes.classes.index(text) for text in texts]


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
        SchemaError, DataError, ParameterError: see `sims.prepare.split_rows`.
    """
    by = columns.split
    if by and isinstance(X, pd.DataFrame) and by in X.columns:
        pooled = pooled.assign(**{by: X[by].to_numpy()})
    tables, names = split_rows(pooled, config.parties, config.split, label, rng)
    return dict(zip(names, tables, strict=True))


def encode(
    tables: Mapping[str, pd.DataFrame], schema: Schema, schema_from: SchemaFrom, notes: list[str]
) -> PreparedData:
    """Encode all tables; the training rows are the test rows, too.

    Raises:
        DataError: a value cannot be encoded; the message names the shard.
    """
    shards = {}
    for name, table in tables.items():
        with naming(name):
            shards[name] = encode_shard(table, schema)
    rows: dict[str, Any] = {
        of: np.concatenate([getattr(s, of) for s in shards.values()])
        for of in ("x", "y", "weight", "offset")
    }
    training = Shard(**rows, counts=ClampCounts(rows=len(rows["y"])), schema=schema)
    raw = np.concatenate([raw_rows(table, schema) for table in tables.values()])
    return PreparedData(
        schema=schema,
        schema_from=schema_from,
        shards=shards,
        test=training,
        raw=raw,
        raw_test=raw,
        notes=tuple(notes),
    )
