"""Tables from files, frames and arrays, in batches: which reader is for which; Parquet, workbooks.

Security: a cell is private. No message here quotes one; row numbers and counts are fine. An
exception of a library, whose text might quote a cell, is never chained.
"""

from __future__ import annotations

import os
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from parties.data.arff import read_arff
from parties.data.delimited import read_delimited
from parties.data.problems import MISSING, SHEET_ROWS, Problems, check_distinct
from parties.data.query import Query
from protocols.documents import shown
from protocols.errors import DataError, ParameterError

Reader: TypeAlias = Callable[[int | None], Iterator[pd.DataFrame]]
"""Batches of so many rows at most, the first with all columns if there are no rows; None: all."""
FileReader: TypeAlias = Callable[[Path, Problems, "int | None"], Iterator[pd.DataFrame]]
"""Batches of a file; problems of single lines are added, and regular rows returned."""
Table: TypeAlias = str | os.PathLike[str] | pd.DataFrame | NDArray[Any] | tuple[Any, Any] | Reader

# What pandas raises on damaged Parquet metadata.
_BAD_METADATA = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
_WORKBOOK_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    SyntaxError,  # of XML
    *_BAD_METADATA,
    OSError,
)


def read_table(
    source: Table, *, label: str = "y", problems: Problems | None = None
) -> pd.DataFrame:
    """Read a table; the source is never changed.

    source: path of a file of one of the endings `READERS`; a DataFrame, which is copied; an array
        of shape (rows, d), whose columns are called x1..xd; a pair (X, y) of shapes (rows, d) and
        (rows,); or a `Reader`.
    label: name of the column that y becomes.
    problems: those of single lines of a file go there, and regular rows are returned; None: any
        refuses the file.

    Returns: DataFrame with distinct str column names, one row per record; its index has the row
    numbers of the file, where the file has its own (`problems.Numbering`).

    Raises:
        DataError: a missing, unreadable or empty file, no or repeated column names, wrong shapes.
    """
    (found,) = batches(source, label=label, problems=problems)
    return found.copy(deep=True) if isinstance(source, pd.DataFrame) else found


def batches(
    source: Table,
    *,
    label: str = "y",
    problems: Problems | None = None,
    rows: int | None = None,
) -> Iterator[pd.DataFrame]:
    """`read_table` in batches, never to be changed; at least one.

    rows: of a batch, at most; None: all. A file or a database is read as the batches are asked for.
    """
    if isinstance(source, (str, os.PathLike)):
        found = _read_file(Path(source), problems, rows)
    elif callable(source):
        found = source(rows)
    else:
        found = _slices(_in_memory(source, label), rows)
    for frame in found:
        named = frame.copy(deep=False)
        if named.columns.nlevels > 1:
            raise DataError("the column names have several levels: flatten them to one")
        named.columns = pd.Index([str(name) for name in named.columns], dtype=object)
        check_distinct(list(named.columns), "the table ")
        yield named


def _slices(frame: pd.DataFrame, rows: int | None) -> Iterator[pd.DataFrame]:
    step = rows or max(1, len(frame))
    for start in range(0, max(1, len(frame)), step):
        yield frame.iloc[start : start + step]


def _in_memory(source: Any, label: str) -> pd.DataFrame:
    if isinstance(source, pd.DataFrame):
        return source
    if isinstance(source, np.ndarray):
        if source.ndim != 2:
            raise DataError(
                f"an array of shape {source.shape} is not a table: reshape it to (rows, columns)"
            )
        return pd.DataFrame(source.copy(), columns=[f"x{k + 1}" for k in range(source.shape[1])])
    if isinstance(source, tuple) and len(source) == 2:
        features, target = source
        frame = read_table(features, label=label)
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


# -- files ----------------------------------------------------------------------------------------


def _read_file(path: Path, problems: Problems | None, rows: int | None) -> Iterator[pd.DataFrame]:
    """See `batches`; a table without rows is one batch."""
    owner = f"file {str(path)!r}"
    name = path.name.lower()
    read = next((read for ending, read in READERS.items() if name.endswith(ending)), None)
    if read is None:
        raise DataError(f"{owner} is none of {', '.join(READERS)}: save the table as one of them")
    gathered, are_first = Problems(owner), True
    for frame in _told(owner, gathered, read, path, rows):
        # Readers look at all lines before they give the first rows.
        if are_first:
            gathered.refuse() if problems is None else problems.extend(gathered)
        are_first = False
        yield from _slices(frame, rows)


def _told(
    owner: str, gathered: Problems, read: FileReader, path: Path, rows: int | None
) -> Iterator[pd.DataFrame]:
    """What a reader gives; what it cannot read is refused with the problems before it."""
    try:
        if not path.exists():
            raise DataError("does not exist: check the path")
        if path.is_file() and path.stat().st_size == 0:
            raise DataError("is empty: export the table again")
        yield from read(path, gathered, rows)
    except DataError as error:
        if not len(gathered):
            raise DataError(f"{owner} {error}") from None
        gathered.add(str(error))
        gathered.refuse()
        raise
    except OSError as error:
        raise DataError(
            f"{owner} cannot be read ({type(error).__name__}): check that it is a file, and its "
            "permissions"
        ) from None


def _parquet(path: Path, problems: Problems, rows: int | None) -> Iterator[pd.DataFrame]:
    with path.open("rb") as file:
        try:
            source = pyarrow.parquet.ParquetFile(file)
            check_distinct(list(source.schema_arrow.names))
            if rows is None or source.metadata.num_rows <= rows:
                yield pd.read_parquet(file)
                return
            for batch in source.iter_batches(rows):
                yield pyarrow.Table.from_batches([batch]).to_pandas()
        except (pyarrow.ArrowException, OSError, *_BAD_METADATA) as error:
            if isinstance(error, DataError):
                raise
            raise DataError("is not a readable Parquet table: export it again") from None


def _workbook(path: Path, problems: Problems, rows: int | None) -> Iterator[pd.DataFrame]:
    """The only sheet that is not empty; index: its rows (`SHEET_ROWS`)."""
    try:
        import openpyxl
    except ImportError:
        raise DataError(
            "needs the extra excel (pip install 'ciphercohort[excel]'), or save it as .csv"
        ) from None
    with path.open("rb") as file:
        if file.read(4) == b"\xd0\xcf\x11\xe0":
            raise DataError("is an old or password-protected workbook: save it as .xlsx without "
                            "a password")  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of extensions that openpyxl leaves out
        try:
            book = openpyxl.load_workbook(path, data_only=True)
        except PermissionError:
            raise
        except _WORKBOOK_ERRORS:
            raise DataError("is not a readable workbook: save it as .xlsx again") from None
    sheets = {
        name: filled
        for name, sheet in zip(book.sheetnames, book.worksheets, strict=False)
        if (filled := _filled(sheet))
    }
    if len(sheets) != 1:
        raise DataError(
            f"has {len(sheets)} sheets with cells where 1 is needed: save the table's sheet alone"
        )
    sheet = next(iter(sheets.values()))
    header = sheet.pop(next(iter(sheet)))
    width = max(k + 1 for k, cell in enumerate(header) if cell is not None)
    names = ["" if cell is None else str(cell).strip() for cell in header[:width]]
    wide = [row for row, cells in sheet.items() if any(cell is not None for cell in cells[width:])]
    if wide:
        problems.add_places("row", wide, "cells beyond the last column name: give it a name, or "
                            "clear them")  # fmt: skip
    if not any(isinstance(cell, str) for cell in header):
        raise DataError("has no column names: its first row holds no text; add a row of names")
    names = [name or f"Unnamed: {k}" for k, name in enumerate(names)]
    check_distinct(names)
    cut = [cells[:width] for cells in sheet.values()]
    frame = pd.DataFrame(cut, columns=names, dtype=object)
    frame.index = pd.Index(list(sheet), dtype="int64", name=SHEET_ROWS)
    yield frame.infer_objects()


def _filled(sheet: Any) -> dict[int, list[Any]]:
    """Cells of the rows that are not empty, by row number; words for missing become None."""
    found = {}
    for number, cells in enumerate(sheet.iter_rows(values_only=True), start=1):
        stripped = [cell.strip() if isinstance(cell, str) else cell for cell in cells]
        row = [None if isinstance(cell, str) and cell in MISSING else cell for cell in stripped]
        if any(cell is not None for cell in row):
            found[number] = row
    return found


def _query(path: Path, problems: Problems, rows: int | None) -> Iterator[pd.DataFrame]:
    try:
        found = Query.load(path)
    except ParameterError as error:
        raise DataError(f"is no query: {error}") from None
    yield from found.batches(path.parent, rows)


READERS: dict[str, FileReader] = {
    ".csv": partial(read_delimited, separator=","),
    ".csv.gz": partial(read_delimited, separator=","),
    ".tsv": partial(read_delimited, separator="\t"),
    ".tsv.gz": partial(read_delimited, separator="\t"),
    ".parquet": _parquet,
    ".xlsx": _workbook,
    ".arff": read_arff,
    ".toml": _query,
}
"""By the ending of a file's name, in any case; a .toml file holds a `Query`."""
