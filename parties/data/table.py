"""Tables from files, frames and arrays, and their cells as numbers or texts.

Security: a cell is private. No message here quotes one; row numbers and counts are fine. An
exception of a library, whose text might quote a cell, is never chained.
"""

from __future__ import annotations

import csv
import numbers
import os
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from parties.data.schema import FloatArray
from protocols.documents import looks_numeric, shown
from protocols.errors import DataError

Table: TypeAlias = str | os.PathLike[str] | pd.DataFrame | NDArray[Any] | tuple[Any, Any]

# "None" and "?" stay texts: they are categories in real tables.
_MISSING = ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null"]
# What pandas raises on damaged Parquet metadata.
_BAD_METADATA = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


def read_table(
    source: Table, *, names: Sequence[str] | None = None, label: str = "y"
) -> pd.DataFrame:
    """Read a table; the source is never changed.

    source: path of a .csv file (UTF-8, commas, names in the first line) or a .parquet file; a
        DataFrame, which is copied; an array of shape (rows, d); or a pair (X, y) of arrays of
        shapes (rows, d) and (rows,).
    names: d column names for arrays [default x1..xd].
    label: name of the column that y becomes.

    Returns: DataFrame with distinct str column names, one row per record.

    Raises:
        DataError: a missing, unreadable or empty file, no or repeated column names, wrong shapes.
    """
    if isinstance(source, (str, os.PathLike)):
        return _read_file(Path(source))
    if isinstance(source, pd.DataFrame):
        frame = source.copy(deep=True)
    elif isinstance(source, np.ndarray):
        frame = _from_array(source, names)
    elif isinstance(source, tuple) and len(source) == 2:
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
        frame[label] = y
    else:
        raise DataError(
            f"a table cannot be read from a {type(source).__name__}: give a path, a DataFrame, "
            "a two-dimensional array or a pair (X, y)"
        )
    if frame.columns.nlevels > 1:
        raise DataError("the column names have several levels: flatten them to one")
    frame.columns = pd.Index([str(name) for name in frame.columns], dtype=object)
    _check_distinct(list(frame.columns))
    return frame


def _from_array(array: NDArray[Any], names: Sequence[str] | None) -> pd.DataFrame:
    if array.ndim != 2:
        raise DataError(
            f"an array of shape {array.shape} is not a table: reshape it to (rows, columns)"
        )
    given = [f"x{k + 1}" for k in range(array.shape[1])] if names is None else list(names)
    if len(given) != array.shape[1]:
        raise DataError(f"{len(given)} names for {array.shape[1]} columns: give one name each")
    return pd.DataFrame(array.copy(), columns=given)


def _check_distinct(names: list[str], owner: str = "the table") -> None:
    # By position, not by name: in a file without a header the "name" is a cell.
    for name, count in Counter(names).items():
        if count > 1:
            places = [str(k + 1) for k, other in enumerate(names) if other == name][:5]
            raise DataError(
                f"columns {', '.join(places)} of {owner} have the same name: give each its own"
            )


def _read_file(path: Path) -> pd.DataFrame:
    owner = f"file {str(path)!r}"
    read = {".csv": _read_csv, ".parquet": _read_parquet}.get(path.suffix.lower())
    if read is None:
        raise DataError(f"{owner} is neither .csv nor .parquet: save the table as one of them")
    try:
        if not path.exists():
            raise DataError(f"{owner} does not exist: check the path")
        if path.is_file() and path.stat().st_size == 0:
            raise DataError(f"{owner} is empty: export the table again")
        return read(path, owner)
    except OSError as error:
        raise DataError(
            f"{owner} cannot be read ({type(error).__name__}): check that it is a file, and its "
            "permissions"
        ) from None


def _read_csv(path: Path, owner: str) -> pd.DataFrame:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            cells = next((row for row in csv.reader(lines, skipinitialspace=True) if row), [])
        names = _header([cell.strip() for cell in cells], owner)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows wider than the header
            frame = pd.read_csv(
                path,
                encoding="utf-8-sig",
                skipinitialspace=True,
                index_col=False,
                low_memory=False,
                keep_default_na=False,
                na_values=_MISSING,
            )
    except UnicodeError:
        raise DataError(f"{owner} is not UTF-8 text: save it as UTF-8") from None
    except (ValueError, csv.Error, pd.errors.ParserWarning) as error:
        if isinstance(error, DataError):
            raise
        line = re.search(r"line \d+", str(error))
        raise DataError(
            f"{owner} is not a regular CSV table{f' ({line.group()})' if line else ''}: "
            "every line needs as many cells as the header, separated by commas"
        ) from None
    frame.columns = pd.Index(names, dtype=object)
    if not cells[-1].strip() and frame.iloc[:, -1].isna().all():
        return frame.iloc[:, :-1]  # every line ends in a comma
    return frame


def _header(cells: list[str], owner: str) -> list[str]:
    """Return the column names of a CSV file; refuse a first line that is data.

    Increasing whole numbers, as years or NumPy's 0, 1, 2, ..., are accepted as names.
    """
    if len(cells) <= 1 and re.search("[;\t|]", "".join(cells)):
        raise DataError(f"{owner} is not separated by commas: save it with commas")
    numeric = [cell for cell in cells if looks_numeric(cell)]
    whole = [int(cell) for cell in numeric if cell.isdecimal() and len(cell) < 19]
    increasing = all(a < b for a, b in pairwise(whole))
    if not any(cells) or len(whole) < len(numeric) or not increasing:
        raise DataError(
            f"the first line of {owner} looks like data, not column names: add a line of names"
        )
    names = [cell or f"Unnamed: {k}" for k, cell in enumerate(cells)]
    _check_distinct(names, owner)
    return names


def _read_parquet(path: Path, owner: str) -> pd.DataFrame:
    with path.open("rb") as file:
        try:
            _check_distinct(list(pyarrow.parquet.read_schema(file).names), owner)
            frame = pd.read_parquet(file)
        except (pyarrow.ArrowException, OSError, *_BAD_METADATA) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{owner} is not a readable Parquet table: export it again") from None
    return read_table(frame)


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


def cell_text(value: object) -> str:
    """Return the text of one cell: "True" for True, "1" for 1 and for 1.0."""
    if isinstance(value, (str, bool, np.bool_)):
        return str(value)
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        number = float(value)
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
    return codes, [cell_text(value) for value in values]
