"""Tables from files, frames and arrays, and their cells as numbers or texts.

Security: a cell is private. No message here quotes one; row numbers and counts are fine. An
exception of a library, whose text might quote a cell, is never chained.
"""

from __future__ import annotations

import numbers
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.data.columns import FloatArray
from parties.data.delimited import check_distinct
from parties.data.files import read_file, slices
from parties.data.problems import Problems
from protocols.documents import shown
from protocols.errors import DataError, SchemaError

Reader: TypeAlias = Callable[[int | None], Iterator[pd.DataFrame]]
"""Batches of so many rows at most, the first with all columns if there are no rows; None: all."""
Table: TypeAlias = str | os.PathLike[str] | pd.DataFrame | NDArray[Any] | tuple[Any, Any] | Reader


def read_table(
    source: Table,
    *,
    names: Sequence[str] | None = None,
    label: str = "y",
    problems: Problems | None = None,
) -> pd.DataFrame:
    """Read a table; the source is never changed.

    source: path of a file of one of the endings `files.READERS`; a DataFrame, which is copied; an
        array of shape (rows, d); a pair (X, y) of arrays of shapes (rows, d) and (rows,); or a
        `Reader`.
    names: d column names for arrays [default x1..xd].
    label: name of the column that y becomes.
    problems: those of single lines of a file go there, and regular rows are returned; None: any
        refuses the file.

    Returns: DataFrame with distinct str column names, one row per record; its index has the row
    numbers of the file, where the file has its own (`problems.Numbering`).

    Raises:
        DataError: a missing, unreadable or empty file, no or repeated column names, wrong shapes.
    """
    (found,) = batches(source, names=names, label=label, problems=problems)
    return found.copy(deep=True) if isinstance(source, pd.DataFrame) else found


def batches(
    source: Table,
    *,
    names: Sequence[str] | None = None,
    label: str = "y",
    problems: Problems | None = None,
    rows: int | None = None,
) -> Iterator[pd.DataFrame]:
    """`read_table` in batches, never to be changed; at least one.

    rows: of a batch, at most; None: all. A file or a database is read as the batches are asked for.
    """
    if isinstance(source, (str, os.PathLike)):
        found = read_file(Path(source), problems, rows)
    elif callable(source):
        found = source(rows)
    else:
        found = slices(_in_memory(source, names, label), rows)
    for frame in found:
        named = frame.copy(deep=False)
        if named.columns.nlevels > 1:
            raise DataError("the column names have several levels: flatten them to one")
        named.columns = pd.Index([str(name) for name in named.columns], dtype=object)
        _check_distinct(list(named.columns))
        yield named


def _in_memory(source: Any, names: Sequence[str] | None, label: str) -> pd.DataFrame:
    if isinstance(source, pd.DataFrame):
        return source
    if isinstance(source, np.ndarray):
        return _from_array(source, names)
    if isinstance(source, tuple) and len(source) == 2:
        features, target = source
        frame = read_table(features, names=names, label=label)
        y = np.asarray(target)
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if y.shape != (len(frame),):
            raise DataError(
                f"y has shape {y.shape} where X has {len(frame)} rows: give one label per row"
            )
        if label in frame.columns:
            raise DataError(f"X has a column {shown(label)} already: name the label differently")
        return frame.assign(**{label: y})
    raise DataError(
        f"a table cannot be read from a {type(source).__name__}: give a path, a DataFrame, "
        "a two-dimensional array or a pair (X, y)"
    )


def _from_array(array: NDArray[Any], names: Sequence[str] | None) -> pd.DataFrame:
    if array.ndim != 2:
        raise DataError(
            f"an array of shape {array.shape} is not a table: reshape it to (rows, columns)"
        )
    given = [f"x{k + 1}" for k in range(array.shape[1])] if names is None else list(names)
    if len(given) != array.shape[1]:
        raise DataError(f"{len(given)} names for {array.shape[1]} columns: give one name each")
    return pd.DataFrame(array.copy(), columns=given)


def _check_distinct(names: list[str]) -> None:
    try:
        check_distinct(names)
    except DataError as error:
        raise DataError(f"the table {error}") from None


def numeric_cells(cells: pd.Series[Any]) -> tuple[FloatArray, NDArray[np.bool_], str]:
    """Read the cells of a numeric column, each result of shape (rows,).

    Returns: float64, NaN where a cell is no number; true where a cell is there but is no number (a
    text); and "" or what the whole column holds instead of numbers ("dates").
    """
    nothing = np.full(len(cells), np.nan), np.zeros(len(cells), dtype=bool)
    kind = pd.api.types.infer_dtype(cells, skipna=True)
    if kind.startswith(("datetime", "date", "timedelta", "time", "period", "interval")):
        return *nothing, "dates"
    if kind == "complex":
        return *nothing, "complex numbers"
    if pd.api.types.is_numeric_dtype(cells) and not isinstance(cells.dtype, pd.CategoricalDtype):
        return cells.to_numpy(dtype=np.float64, na_value=np.nan), nothing[1], ""
    missing = cells.isna().to_numpy(dtype=bool)
    try:
        parsed = pd.to_numeric(cells.astype(object), errors="coerce")
        values = parsed.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError, OverflowError):  # objects, or integers beyond float64
        values = nothing[0]
    return values, np.isnan(values) & ~missing, ""


# What pandas takes for numbers and truth values in a column that has nothing else.
_NUMBER = re.compile(
    r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?\s*|[+-]?inf(?:inity)?", re.ASCII | re.IGNORECASE
)
_TRUTH = {text: word for word in ("True", "False") for text in (word, word.upper(), word.lower())}


def cell_text(value: object) -> str:
    """Return the text of one cell: "True" for True and TRUE, "1" for 1, 1.0 and "1.0".

    Privacy: it follows from this cell alone. A reader makes numbers of a column that has nothing
    else, so that one cell decides how all others are read; their texts may not depend on that.
    """
    if isinstance(value, (bool, np.bool_)):
        return str(value)
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            return _TRUTH.get(value, str(value))
        value = float(value)
    if isinstance(value, numbers.Real):
        try:
            number = float(value)
        except OverflowError:
            return str(value)
        return str(int(number)) if number.is_integer() else repr(number)
    return str(value)


def text_cells(cells: pd.Series[Any]) -> tuple[NDArray[np.intp], list[str]]:
    """Read the cells of a categorical column.

    Returns: codes, int array, shape (rows,), -1 where a cell is missing; and the texts that the
    codes index, in order of appearance, not necessarily distinct (1 and "1" are both "1").

    Raises:
        TypeError: a cell holds a list or another unhashable object.
    """
    codes, values = pd.factorize(cells)
    if cells.dtype == object and pd.api.types.infer_dtype(cells, skipna=True).startswith("mixed"):
        # True equals 1: whichever came first would stand for both.
        codes, values = pd.factorize(cells.map(cell_text, na_action="ignore"))
    return codes, [cell_text(value) for value in values]


def codes_of(texts: Sequence[str], owner: str) -> dict[str, int]:
    """Places of texts by what `cell_text` makes of them.

    Raises:
        SchemaError: of two of them the same.
    """
    found: dict[str, int] = {}
    for place, text in enumerate(texts):
        first = found.setdefault(cell_text(text), place)
        if first != place:
            raise SchemaError(
                f"{owner} has {shown(texts[first])} and {shown(text)}, which are the same number "
                "or truth value: name one of them otherwise, in the table too"
            )
    return found
