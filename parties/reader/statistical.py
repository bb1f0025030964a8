"""Tables of Stata (.dta) and SPSS (.sav): numbers and texts as stored, dates by their formats.

A number with a label of its own stays the number. What a package counts as missing is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from parties.reader import Problems, check_distinct
from parties.reader.cells import OTHER
from parties.reader.delimited import of_columns
from protocols.errors import DataError

STATA, SPSS = date(1960, 1, 1), date(1582, 10, 14)
"""Days, and for SPSS seconds, count from here."""
_SPSS_DAYS = ("DATE", "ADATE", "EDATE", "JDATE", "SDATE", "QYR", "MOYR", "WKYR")
_SPSS_MOMENTS, _SPSS_TIMES = ("DATETIME", "YMDHMS"), ("TIME", "DTIME", "MTIME")
Convert = Callable[[Any], Any]


def read_statistical(path: Path, problems: Problems, rows: int | None) -> Iterator[pd.DataFrame]:
    """The whole table, at once.

    Raises:
        DataError: the extra is not installed, the file is none, or a name is repeated.
    """
    try:
        import pyreadstat
    except ImportError:
        raise DataError(
            "needs the extra stata (pip install 'ciphercohort[stata]'), or save it as .csv"
        ) from None
    is_stata = path.name.lower().endswith(".dta")
    read = pyreadstat.read_dta if is_stata else pyreadstat.read_sav
    try:
        # Of Python's own types, a list a column: no look at a column types its cells.
        found, about = read(str(path), output_format="dict", disable_datetime_conversion=True)
    except (pyreadstat.ReadstatError, UnicodeError, ValueError):
        raise DataError(
            f"is not a readable {'Stata' if is_stata else 'SPSS'} table: save it again"
        ) from None
    names = list(about.column_names)
    check_distinct(names)
    of = _stata if is_stata else _spss
    columns = []
    for name in names:
        convert = of(str(about.original_variable_types.get(name)))
        cells = [_cell(cell, convert) for cell in found[name]]
        columns.append(cells)
    yield of_columns(names, columns)


def _cell(cell: Any, convert: Convert | None) -> Any:
    if convert is None or cell is None or isinstance(cell, str):
        return cell
    try:
        return convert(cell)
    except (OverflowError, ValueError):
        return None if cell != cell else OTHER


def _stata(form: str) -> Convert | None:
    if form.startswith(("%td", "%d")):
        return lambda cell: STATA + timedelta(days=cell)
    if form.startswith(("%tc", "%tC")):
        return lambda cell: _at(STATA) + timedelta(milliseconds=cell)
    return None


def _spss(form: str) -> Convert | None:
    kind = form.rstrip("0123456789.")
    if kind in _SPSS_DAYS:
        return lambda cell: (_at(SPSS) + timedelta(seconds=cell)).date()
    if kind in _SPSS_MOMENTS:
        return lambda cell: _at(SPSS) + timedelta(seconds=cell)
    return (lambda cell: timedelta(seconds=cell)) if kind in _SPSS_TIMES else None


def _at(day: date) -> datetime:
    return datetime(day.year, day.month, day.day)
