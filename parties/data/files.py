"""Files with tables, in batches: which reader is for which ending; Parquet and workbooks."""

from __future__ import annotations

import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow
import pyarrow.parquet

from parties.data.arff import read_arff
from parties.data.delimited import check_distinct, read_delimited
from parties.data.problems import SHEET_ROWS, Problems
from parties.data.query import Query
from parties.data.values import MISSING
from protocols.errors import DataError, ParameterError

# What pandas raises on damaged Parquet metadata.
_BAD_METADATA = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
_WORKBOOK_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    SyntaxError,  # of XML
    *_BAD_METADATA,
    OSError,
)

Reader = Callable[[Path, Problems, "int | None"], Iterator[pd.DataFrame]]


def read_file(
    path: Path, problems: Problems | None = None, rows: int | None = None
) -> Iterator[pd.DataFrame]:
    """Batches of a table of any known ending, see `READERS`; a .toml file holds a `Query`.

    problems: those of single lines go there, and regular rows are returned; None: they are refused.
    rows: of a batch, at most; None: all. A table without rows is one batch.

    Raises:
        DataError: no table can be read. ParameterError: the query's description is wrong.
    """
    owner = f"file {str(path)!r}"
    name = path.name.lower()
    read = next((read for ending, read in READERS.items() if name.endswith(ending)), None)
    if read is None:
        raise DataError(f"{owner} is none of {', '.join(READERS)}: save the table as one of them")
    gathered, are_first = Problems(owner), True
    for frame in _said_of(owner, gathered, read, path, rows):
        # Readers look at all lines before they give the first rows.
        if are_first:
            gathered.refuse() if problems is None else problems.extend(gathered)
        are_first = False
        yield from slices(frame, rows)


def _said_of(
    owner: str, gathered: Problems, read: Reader, path: Path, rows: int | None
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


def slices(frame: pd.DataFrame, rows: int | None) -> Iterator[pd.DataFrame]:
    """A table in memory, in batches."""
    step = rows or max(1, len(frame))
    for start in range(0, max(1, len(frame)), step):
        yield frame.iloc[start : start + step]


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


def _separated(separator: str) -> Reader:
    return partial(read_delimited, separator=separator)


READERS: dict[str, Reader] = {
    ".csv": _separated(","),
    ".csv.gz": _separated(","),
    ".tsv": _separated("\t"),
    ".tsv.gz": _separated("\t"),
    ".parquet": _parquet,
    ".xlsx": _workbook,
    ".arff": read_arff,
    ".toml": _query,
}
"""By the ending of a file's name, in any case."""
