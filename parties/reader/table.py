"""Tables from files, frames and arrays, in batches: which reader is for which; Parquet, workbooks.

A DataFrame only carries cells here: texts as they stand in a file, what a database gives, numbers.
What a cell means is said in `cells`, of each by itself; no reader looks at a column. (`read_table`,
of a whole table in memory, does: see `cells.typed`.)

Security: a cell is private. No message here quotes one; row numbers and counts are fine. An
exception of a library, whose text might quote a cell, is never chained.
"""

from __future__ import annotations

import os
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
from numpy.typing import NDArray

from parties.reader import LINES, MISSING, SHEET_ROWS, TEXT_ROWS, Problems, check_distinct
from parties.reader.cells import OTHER, typed
from parties.reader.delimited import frame_of, of_columns, read_delimited
from protocols.errors import CohortError, DataError, ParameterError
from protocols.exchange.documents import shown

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
    problems: those of single lines of a file go there, after the last batch, and regular rows are
        returned; None: any refuses the file.

    Returns: DataFrame with distinct str column names, one row per record; its index has the row
    numbers of the file, where the file has its own (`parties.reader.Numbering`).

    Raises:
        DataError: a missing, unreadable or empty file, no or repeated column names, wrong shapes.
    """
    (found,) = batches(source, label=label, problems=problems)
    if any(found.index.name is texts for texts in (LINES, TEXT_ROWS)):
        return typed(found)
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

    Privacy: whatever a library or a cell's own methods raise may quote a cell. It becomes one fixed
    sentence, raised outside the handler, so that it is no context of it.
    """
    try:
        yield from _named(source, label, problems, rows)
        return
    except CohortError:
        raise
    except Exception:
        words = "its reader fails on a cell or on the file itself: look for dates, durations and "
        words += "objects out of range, or export the table as .csv"
    raise DataError(f"the table cannot be read: {words}")


def _named(
    source: Table, label: str, problems: Problems | None, rows: int | None
) -> Iterator[pd.DataFrame]:
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
        is_array = isinstance(target, (np.ndarray, pd.Series, pd.DataFrame))
        # A list's cells have types of their own, and an array would give them one.
        y = np.asarray(target, dtype=None if is_array else object)
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if y.shape != (len(frame),):
            raise DataError(
                f"y has shape {y.shape} where X has {len(frame)} rows: give one label per row"
            )
        if label in frame.columns:
            raise DataError(f"X has a column {shown(label)} already: name the label differently")
        return frame.assign(**{label: pd.Series(y, dtype=y.dtype, index=frame.index)})
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
    gathered = Problems(owner)
    for frame in _told(owner, gathered, read, path, rows):
        yield from _slices(frame, rows)
    gathered.refuse() if problems is None else problems.extend(gathered)


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
            size = rows or max(1, source.metadata.num_rows)
            yield from _of_arrow(source.schema_arrow, source.iter_batches(size))
        except (pyarrow.ArrowException, OSError, *_BAD_METADATA) as error:
            if isinstance(error, DataError):
                raise
            raise DataError("is not a readable Parquet table: export it again") from None


def _feather(path: Path, problems: Problems, rows: int | None) -> Iterator[pd.DataFrame]:
    with path.open("rb") as file:
        try:
            source = pyarrow.ipc.open_file(file)
            check_distinct(list(source.schema.names))
            found = (source.get_batch(k) for k in range(source.num_record_batches))
            yield from _of_arrow(source.schema, found)
        except (pyarrow.ArrowException, OSError, *_BAD_METADATA) as error:
            if isinstance(error, DataError):
                raise
            raise DataError("is not a readable feather table: export it again") from None


def _of_arrow(
    schema: pyarrow.Schema, found: Iterable[pyarrow.RecordBatch]
) -> Iterator[pd.DataFrame]:
    """At least one batch; without the columns in which pandas keeps an index."""
    kept = (schema.pandas_metadata or {}).get("index_columns", ())
    names = [name for name in schema.names if name not in kept]
    empty = pyarrow.RecordBatch.from_pylist([], schema=schema)
    none = True
    for batch in found:
        none = none and not batch.num_rows
        if batch.num_rows:
            yield of_columns(names, [_arrow_cells(batch.column(name)) for name in names])
    if none:
        yield of_columns(names, [_arrow_cells(empty.column(name)) for name in names])


def _arrow_cells(column: pyarrow.Array) -> Any:
    """Numbers as an array; anything else one value at a time, `OTHER` where Python has none."""
    kind = column.type
    if pyarrow.types.is_floating(kind) or pyarrow.types.is_integer(kind):
        return column.to_numpy(zero_copy_only=False)  # float64 where one is missing
    try:
        return column.to_pylist()
    except _BAD_METADATA:
        return [_arrow_cell(scalar) for scalar in column]


def _arrow_cell(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except _BAD_METADATA:
        return OTHER


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
    width = max((k + 1 for k, cell in enumerate(header) if cell is not None), default=0)
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
    yield frame_of(names, cut, pd.Index(list(sheet), dtype="int64", name=SHEET_ROWS))


def _filled(sheet: Any) -> dict[int, list[Any]]:
    """Cells from the first row that is not empty to the last, by row number.

    Words for missing become None; a row of them is not empty, and one in between has no cell.
    """
    found, last = {}, 0
    for number, cells in enumerate(sheet.iter_rows(values_only=True), start=1):
        stripped = [cell.strip() if isinstance(cell, str) else cell for cell in cells]
        is_empty = all(cell is None or cell == "" for cell in stripped)
        last = last if is_empty else number
        if last:
            found[number] = [None if _is_missing(cell) else cell for cell in stripped]
    return {number: row for number, row in found.items() if number <= last}


def _is_missing(cell: Any) -> bool:
    return isinstance(cell, str) and cell in MISSING


def _query(path: Path, problems: Problems, rows: int | None) -> Iterator[pd.DataFrame]:
    from parties.reader.query import Query

    try:
        found = Query.load(path)
    except ParameterError as error:
        raise DataError(f"is no query: {error}") from None
    yield from found.batches(path.parent, rows)


def _arff(path: Path, problems: Problems, rows: int | None) -> Iterator[pd.DataFrame]:
    from parties.reader.arff import read_arff

    return read_arff(path, problems, rows)


def _statistical(path: Path, problems: Problems, rows: int | None) -> Iterator[pd.DataFrame]:
    from parties.reader.statistical import read_statistical

    return read_statistical(path, problems, rows)


READERS: dict[str, FileReader] = {
    ".csv": partial(read_delimited, separator=","),
    ".csv.gz": partial(read_delimited, separator=","),
    ".tsv": partial(read_delimited, separator="\t"),
    ".tsv.gz": partial(read_delimited, separator="\t"),
    ".parquet": _parquet,
    ".feather": _feather,
    ".arrow": _feather,
    ".xlsx": _workbook,
    ".arff": _arff,
    ".dta": _statistical,
    ".sav": _statistical,
    ".toml": _query,
}
"""By the ending of a file's name, in any case; a .toml file holds a `query.Query`."""
