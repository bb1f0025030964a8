"""The same rows in every format that an owner may have them in.

A format refuses cells that it cannot hold (`UnfitError`): no file has them. What it stores does not
depend on the other rows.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import sqlite3
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
from openpyxl.utils.exceptions import IllegalCharacterError

from parties.reader.table import READERS
from tests.boundaries.tables import Cells, Kind, Row

Write = Callable[[Path, Kind, Sequence[Row]], Any]


class UnfitError(Exception):
    """A format has no such cell."""


@dataclass(frozen=True)
class Format:
    """write: makes a source of rows; cells: that it holds; kinds: of schemas, all if none."""

    name: str
    write: Write
    cells: Cells = "texts"
    kinds: tuple[str, ...] = ()


def text_of(cell: Any) -> str:
    """What an export to text makes of a cell."""
    return "" if cell is None else str(cell)


# -- text ----------------------------------------------------------------------------------------


def _delimited(ending: str, separator: str, quoting: Any = csv.QUOTE_MINIMAL) -> Write:
    def write(folder: Path, kind: Kind, rows: Sequence[Row]) -> Path:
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter=separator, lineterminator="\n", quoting=quoting)
        try:
            writer.writerow(kind.columns)
            writer.writerows([text_of(cell) for cell in row] for row in rows)
        except csv.Error:
            raise UnfitError from None
        data = _utf8(out.getvalue())
        path = folder / f"rows{ending}"
        path.write_bytes(gzip.compress(data, 1) if ending.endswith(".gz") else data)
        return path

    return write


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UnfitError from None


def _raw(folder: Path, kind: Kind, rows: Sequence[Row]) -> Path:
    """Typed by hand: nothing is quoted, so that a quotation mark stands as it is."""
    texts = [[text_of(cell) for cell in row] for row in rows]
    if any(set(text) & set(",\n\r") for row in texts for text in row):
        raise UnfitError
    path = folder / "rows.csv"
    path.write_bytes(_utf8("".join(",".join(row) + "\n" for row in [kind.columns, *texts])))
    return path


def _arff(quoted: str) -> Write:
    """quoted: by which marks; by apostrophes as Weka does, with backslashes; or none."""

    def cell(text: str) -> str:
        if text == "":
            return "?"
        if any(mark in text for mark in ",\n\r"):
            raise UnfitError
        if quoted == '"':
            return text if set(text) & {'"', "'"} else f'"{text}"'
        if quoted and any(not (c.isalnum() or c in ".+-_") for c in text):
            return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return text

    def write(folder: Path, kind: Kind, rows: Sequence[Row]) -> Path:
        head = "@relation t\n" + "".join(f"@attribute {name} string\n" for name in kind.columns)
        lines = [",".join(cell(text_of(value)) for value in row) + "\n" for row in rows]
        path = folder / "rows.arff"
        path.write_bytes(_utf8(head + "@data\n" + "".join(lines)))
        return path

    return write


# -- typed columns --------------------------------------------------------------------------------


def _arrow(kind: Kind, rows: Sequence[Row], as_texts: bool) -> pa.Table:
    """Columns of the type that the usual cells of a kind have, whatever these rows hold."""
    columns = {}
    for name, cells in zip(kind.columns, zip(*rows, strict=True), strict=True):
        usual = [cell for cell in kind.usual[name] if cell is not None][:1]
        try:
            if as_texts:
                texts = [None if cell is None else text_of(cell) for cell in cells]
                columns[name] = pa.array(texts, pa.string())
            else:
                columns[name] = pa.array(cells, pa.array(usual).type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError, UnicodeEncodeError):
            raise UnfitError from None
    return pa.table(columns)


def _parquet(as_texts: bool, dictionary: bool = False) -> Write:
    def write(folder: Path, kind: Kind, rows: Sequence[Row]) -> Path:
        table, path = _arrow(kind, rows, as_texts), folder / "rows.parquet"
        if dictionary:
            table = pa.table({n: table[n].dictionary_encode() for n in table.column_names})
        pa.parquet.write_table(table, path)
        return path

    return write


def _feather(as_texts: bool) -> Write:
    def write(folder: Path, kind: Kind, rows: Sequence[Row]) -> Path:
        path = folder / "rows.feather"
        pa.feather.write_feather(_arrow(kind, rows, as_texts), path, compression="uncompressed")
        return path

    return write


def _statistical(ending: str) -> Write:
    """Numbers as doubles; a column of other types than its usual one is not written."""

    def write(folder: Path, kind: Kind, rows: Sequence[Row]) -> Path:
        import pyreadstat

        held = {}
        for name, cells in zip(kind.columns, zip(*rows, strict=True), strict=True):
            usual = type(next(cell for cell in kind.usual[name] if cell is not None))
            numeric = issubclass(usual, (bool, int, float))
            due = (bool, int, float) if numeric else (usual,)
            if any(cell is not None and type(cell) not in due for cell in cells):
                raise UnfitError
            try:
                made = [math.nan if c is None else float(c) for c in cells] if numeric else cells
            except OverflowError:
                raise UnfitError from None
            held[name] = np.array(made, dtype=np.float64 if numeric else object)
        save = pyreadstat.write_dta if ending == ".dta" else pyreadstat.write_sav
        path = folder / f"rows{ending}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                save(pd.DataFrame(held), str(path))
        except (pyreadstat.PyreadstatError, pyreadstat.ReadstatError, ValueError, TypeError,
                OverflowError):  # fmt: skip
            raise UnfitError from None
        return path

    return write


# -- typed cells ----------------------------------------------------------------------------------


def _workbook(folder: Path, kind: Kind, rows: Sequence[Row]) -> Path:
    """A sheet ends with its last cell: no row without cells is below."""
    if all(cell is None or cell == "" for cell in rows[-1]):
        raise UnfitError
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    try:
        for row in [kind.columns, *rows]:
            sheet.append([None if isinstance(c, str) and c == "" else c for c in row])
        out = io.BytesIO()
        book.save(out)
    except (ValueError, TypeError, IllegalCharacterError, OverflowError, ArithmeticError):
        raise UnfitError from None
    path = folder / "rows.xlsx"
    path.write_bytes(out.getvalue())
    return path


def _sql(address: str, source: str) -> str:
    names = "'''"
    return (
        f"connection = {names}{address}{names}\n"
        f"query = {names}SELECT * FROM {source} ORDER BY rowid_{names}\n"
    )


def _sqlite(folder: Path, kind: Kind, rows: Sequence[Row]) -> Path:
    """No column has a type, as in many a database that grew."""
    path = folder / "rows.db"
    path.unlink(missing_ok=True)
    times = (date, datetime, time)
    plain = [
        [
            c.isoformat() if isinstance(c, times) else str(c) if isinstance(c, timedelta) else c
            for c in row
        ]
        for row in rows
    ]
    connection = sqlite3.connect(path)
    try:
        names = ", ".join(f'"{name}"' for name in kind.columns)
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"CREATE TABLE t (rowid_, {names})")
        holes = ", ".join("?" * (len(kind.columns) + 1))
        numbered = [(k, *row) for k, row in enumerate(plain)]
        connection.executemany(f"INSERT INTO t VALUES ({holes})", numbered)
        connection.commit()
    except (sqlite3.Error, OverflowError, UnicodeEncodeError, ValueError):
        raise UnfitError from None
    finally:
        connection.close()
    found = folder / "rows.toml"
    found.write_text(_sql(f"sqlite:///{path}", "t"))
    return found


def _duckdb(inner: Write, source: str) -> Write:
    """Over a file."""

    def write(folder: Path, kind: Kind, rows: Sequence[Row]) -> Path:
        numbered = Kind(kind.name, kind.schema, {"rowid_": tuple(range(9)), **kind.usual})
        inner(folder, numbered, [(k, *row) for k, row in enumerate(rows)])
        found = folder / "query.toml"
        found.write_text(_sql("duckdb:", source))
        return found

    return write


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """That writes databases: a new one for each takes three times as long."""
    return duckdb.connect()


def _duckdb_file(as_texts: bool) -> Write:
    """Of a table of its own."""

    def write(folder: Path, kind: Kind, rows: Sequence[Row]) -> Path:
        numbered = Kind(kind.name, kind.schema, {"rowid_": tuple(range(9)), **kind.usual})
        held = _arrow(numbered, [(k, *row) for k, row in enumerate(rows)], as_texts)
        path = folder / "rows.duckdb"
        path.unlink(missing_ok=True)
        connection = _connection()
        connection.register("held", held)
        connection.execute(f"ATTACH '{path}' AS own")
        connection.execute("CREATE TABLE own.t AS SELECT * FROM held")
        connection.execute("DETACH own")
        found = folder / "table.toml"
        found.write_text(_sql(f"duckdb:{path.name}", "t"))
        return found

    return write


# -- in memory ------------------------------------------------------------------------------------


def _frame(make: Callable[[str, list[Any], Kind], Any]) -> Write:
    def write(folder: Path, kind: Kind, rows: Sequence[Row]) -> pd.DataFrame:
        columns = zip(kind.columns, zip(*rows, strict=True), strict=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return pd.DataFrame({name: make(name, [*cells], kind) for name, cells in columns})
        except (ValueError, TypeError, OverflowError, ArithmeticError, pa.ArrowException,
                UnicodeEncodeError):  # fmt: skip
            raise UnfitError from None

    return write


def _as_objects(name: str, cells: list[Any], kind: Kind) -> Any:
    found = np.empty(len(cells), dtype=object)
    found[:] = cells
    return pd.Series(found, dtype=object)


def _as_inferred(name: str, cells: list[Any], kind: Kind) -> Any:
    """As a constructor types it: one cell decides."""
    return pd.Series(cells)


def _as_texts(name: str, cells: list[Any], kind: Kind) -> Any:
    return pd.array([None if c is None else text_of(c) for c in cells], dtype="string")


def _as_nullable(name: str, cells: list[Any], kind: Kind) -> Any:
    usual = next(cell for cell in kind.usual[name] if cell is not None)
    dtypes = {bool: "boolean", int: "Int64", float: "Float64", date: "datetime64[s]"}
    return pd.array(cells, dtype=dtypes.get(type(usual), "string"))


def _as_arrow(name: str, cells: list[Any], kind: Kind) -> Any:
    usual = [cell for cell in kind.usual[name] if cell is not None][:1]
    return pd.arrays.ArrowExtensionArray(pa.array(cells, pa.array(usual).type))


def _as_categories(name: str, cells: list[Any], kind: Kind) -> Any:
    """pandas itself takes 1, True and 1.0 for one category."""
    plain = [c if isinstance(c, (str, int, float, type(None))) else str(c) for c in cells]
    if len({c for c in plain if c == c}) < len({repr(c) for c in plain if c == c}):
        raise UnfitError
    return pd.Categorical(plain)


def _array(dtype: Any) -> Write:
    """A pair (X, y); the columns of X are x1, x2, …."""

    def write(folder: Path, kind: Kind, rows: Sequence[Row]) -> Any:
        if dtype is not object and any(type(c) not in (int, float, bool, type(None)) for row in
                                       rows for c in row):  # fmt: skip
            raise UnfitError
        cells = np.empty((len(rows), len(kind.columns)), dtype=object)
        for k, row in enumerate(rows):
            for m, cell in enumerate(row):
                cells[k, m] = np.nan if cell is None and dtype is not object else cell
        try:
            found = cells.astype(dtype)
        except (OverflowError, ValueError, TypeError):
            raise UnfitError from None
        return found[:, :-1].copy(), found[:, -1].copy()

    return write


_FORMATS = (
    Format("csv", _delimited(".csv", ",")),
    Format("csv quoted", _delimited(".csv", ",", csv.QUOTE_ALL)),
    Format("csv raw", _raw),
    Format("csv.gz", _delimited(".csv.gz", ",")),
    Format("tsv", _delimited(".tsv", "\t")),
    Format("tsv.gz", _delimited(".tsv.gz", "\t")),
    Format("arff", _arff("'")),
    Format("arff double", _arff('"')),
    Format("arff raw", _arff("")),
    Format("parquet", _parquet(False), "typed"),
    Format("parquet texts", _parquet(True)),
    Format("parquet dictionaries", _parquet(False, True), "typed"),
    Format("feather", _feather(False), "typed"),
    Format("feather texts", _feather(True)),
    Format("xlsx", _workbook, "values"),
    Format("dta", _statistical(".dta"), "typed"),
    Format("sav", _statistical(".sav"), "typed"),
    Format("sqlite", _sqlite, "values"),
    Format("duckdb csv", _duckdb(_delimited(".csv", ","), "'rows.csv'")),
    Format("duckdb csv raw", _duckdb(_raw, "'rows.csv'")),
    Format("duckdb parquet", _duckdb(_parquet(False), "'rows.parquet'"), "typed"),
    Format("duckdb parquet texts", _duckdb(_parquet(True), "'rows.parquet'")),
    Format("duckdb table", _duckdb_file(False), "typed"),
    Format("duckdb table texts", _duckdb_file(True)),
    Format("frame object", _frame(_as_objects), "values"),
    Format("frame inferred", _frame(_as_inferred), "values"),
    Format("frame string", _frame(_as_texts)),
    Format("frame nullable", _frame(_as_nullable), "typed"),
    Format("frame arrow", _frame(_as_arrow), "typed"),
    Format("frame categories", _frame(_as_categories), "values"),
    Format("array float", _array(np.float64), "floats", ("numbers",)),
    Format("array object", _array(object), "values", ("refuse", "filled", "classes", "numbers")),
)
FORMATS = {
    each.name: each
    for each in _FORMATS
    if (not each.name.startswith("feather") or ".feather" in READERS)
    and (each.name not in ("dta", "sav") or find_spec("pyreadstat"))
}
