"""Rows of one owner: from what a user gives to a checked frame and checked labels."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from sklearn.utils import assert_all_finite, check_array, check_consistent_length, column_or_1d

from parties.data.encode import check_columns
from parties.data.schema import Schema
from parties.data.table import cell_text, read_table
from protocols.documents import shown
from protocols.errors import DataError, ParameterError, SchemaError


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """Which columns of frames are features.

    labels: label column, or targets; empty: unknown. split: column to split by; None: none.
    features: the schema's columns, in its order; None: all columns but labels and split. numeric:
    whether targets are predicted. flat: one target was named on its own, not in a list.
    """

    labels: tuple[str, ...]
    split: str | None
    features: tuple[str, ...] | None
    numeric: bool = False
    flat: bool = False

    def are_in(self, frame: pd.DataFrame) -> bool:
        """Whether a frame holds all labels, which are known."""
        return bool(self.labels) and all(name in frame.columns for name in self.labels)

    def outcome(self, frame: pd.DataFrame) -> Any:
        """The label column, or those of the targets."""
        if self.numeric and not self.flat:
            return frame[list(self.labels)]
        return frame[self.labels[0]]

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
        ParameterError: it is none of these.
        SchemaError: the file cannot be read.
    """
    if schema is None or isinstance(schema, Schema):
        return schema
    if isinstance(schema, (str, os.PathLike)):
        return Schema.load(Path(schema))
    raise ParameterError(f"schema={shown(schema)} is not a Schema, a path or None")


def choose_columns(
    labels: tuple[str, ...],
    split: str,
    schema: Schema | None,
    *,
    numeric: bool = False,
    flat: bool = False,
) -> Columns:
    """Settle which columns of frames are features.

    labels: label column or targets; empty: the schema's. split: as of the estimator. schema: None:
    inferred. numeric, flat: see `Columns`.

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
    return Columns(labels=labels, split=by, features=features, numeric=numeric, flat=flat)


def read_rows(X: Any, y: Any, columns: Columns) -> Rows:
    """Check features X, array or frame of shape (rows, columns), and labels y, shape (rows,).

    Targets: shape (rows,) or (rows, c).

    Raises:
        DataError: rows or labels cannot be used.
        ValueError, TypeError: scikit-learn's own; they may quote cells.
    """
    cells = columns.cells(X)
    frame = _plain(read_table(cells))
    if columns.features:
        if frame.shape[1] != len(columns.features):
            raise DataError(
                f"X has {frame.shape[1]} columns where the schema has {len(columns.features)}"
            )
        frame.columns = pd.Index(columns.features, dtype=object)
    outcome = _targets(y) if columns.numeric else (_labels(y), (), False)
    rows = Rows(cells, frame, *outcome)
    check_consistent_length(frame, rows.labels)
    return rows


def _checked_array(X: Any) -> NDArray[Any]:
    """Numbers; or objects, where some cells are texts, so that the other columns stay numbers."""
    cells = np.array(X, dtype=object) if _may_hold_text(X) else None
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


def _may_hold_text(X: Any) -> bool:
    return X.dtype.kind in "OU" if isinstance(X, np.ndarray) else isinstance(X, (list, tuple))


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Categories as texts, objects as numbers where they are numbers; no cell is missing."""
    frame = frame.infer_objects()
    for name in frame.columns:
        cells = frame[name]
        missing = int(cells.isna().sum())
        if missing:
            raise DataError(
                f"column {shown(name)} is missing (NaN) in {missing} of {len(frame)} rows: "
                "fill in or drop these rows"
            )
        if isinstance(cells.dtype, pd.CategoricalDtype):
            frame[name] = cells.astype(object).map(cell_text)
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
    values: NDArray[Any] = labels
    return values


def _targets(y: Any) -> tuple[NDArray[Any], tuple[str, ...], bool]:
    """Targets, shape (rows, c); their names; whether y is one column of shape (rows,)."""
    names: tuple[str, ...] = ()
    if isinstance(y, pd.DataFrame):
        names = tuple(str(name) for name in y.columns)
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
