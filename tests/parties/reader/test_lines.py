"""A row is one line or none, whatever its cells hold: none takes others into it, splits or goes."""

from __future__ import annotations

import datetime
import decimal
import gzip
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parties.reader import LINES, SHEET_ROWS, TEXT_ROWS
from parties.reader.cells import OTHER, cell_text, number, plain
from parties.reader.schema import CategoricalColumn, Label, NumericColumn, Schema
from parties.reader.shard import encode_shard
from parties.reader.table import READERS, batches, read_table
from protocols.errors import DataError

NAMES = ("age", "note", "ward")
ROWS = 60
TEXTS = ("csv", "tsv", "csv.gz", "tsv.gz", "arff", "duckdb csv", "duckdb tsv", "duckdb csv.gz")
WAYS = (
    "FROM '{}'",
    'FROM "{}"',
    "SELECT * FROM read_csv('{}')",
    "SELECT * FROM read_csv_auto(['{}'])",
    "SELECT * FROM (SELECT * FROM '{}')",
    "WITH q AS (SELECT * FROM '{}') SELECT * FROM q",
    "SELECT t.* FROM range(1), LATERAL (SELECT * FROM '{}') t",
)


def written(
    folder: Path, how: str, rows: list[list[str]], newline: str = "\n", way: str = WAYS[0]
) -> Path:
    """Cells joined as they are, with no mark around them."""
    ending = how.removeprefix("duckdb ")
    separator = "\t" if ending.startswith("tsv") else ","
    lines = [separator.join(row) for row in rows]
    if ending == "arff":
        head = [*(f"@attribute {name} string" for name in NAMES), "@data"]
    else:
        head = [separator.join(NAMES)]
    path = folder / f"rows.{ending}"
    text = (newline.join([*head, *lines]) + newline).encode()
    path.write_bytes(gzip.compress(text) if ending.endswith(".gz") else text)
    return path if ending == how else queried(folder, way.format(path.name))


def queried(folder: Path, sql: str, database: str = "") -> Path:
    path = folder / "rows.toml"
    path.write_text(f"connection = 'duckdb:{database}'\nquery = '''{sql} ORDER BY ALL'''\n")
    return path


def fine() -> list[list[str]]:
    return [[f"{k:02}", "fine", "A"] for k in range(ROWS)]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("how", [how for how in TEXTS if how != "arff"])
def test_a_stray_mark_takes_no_row_with_it(tmp_path: Path, how: str, newline: str) -> None:
    """In a column that nobody uses; another mark, far below, would close it."""
    rows = fine()
    rows[3][1], rows[50][1] = '"see', 'height 5"'
    with pytest.raises(DataError, match="line 5 has a quotation mark that is closed in a line"):
        read_table(written(tmp_path, how, rows, newline))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["duckdb csv", "duckdb tsv"])
def test_duckdb_reads_no_text_file_itself(tmp_path: Path, how: str, way: str) -> None:
    rows = fine()
    assert len(read_table(written(tmp_path, how, rows, way=way))) == ROWS
    rows[3][1], rows[50][1] = '"see', 'height 5"'
    with pytest.raises(DataError, match="line 5 has a quotation mark"):
        read_table(written(tmp_path, how, rows, way=way))


OPTIONS = ("quote=''", "ignore_errors=true", "null_padding=true", "types={'age': 'INT'}", "skip=1",
           "sample_size=-1", "columns={'age': 'INT'}", "header=false", "comment='#'", "escape='x'",
           "nullstr='A'", "strict_mode=false", "auto_detect=true", "max_line_size=9")  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
def test_no_option_reads_text_by_other_rules(tmp_path: Path, option: str) -> None:
    written(tmp_path, "csv", fine())
    with pytest.raises(DataError, match=f"option {option.split('=')[0]}: only delim is taken"):
        read_table(queried(tmp_path, f"FROM read_csv('rows.csv', {option})"))


@pytest.mark.parametrize("option", ["delim='|'", "sep='|'"])
def test_a_delim_of_its_own(tmp_path: Path, option: str) -> None:
    (tmp_path / "rows.txt").write_text("age|note\n1|a\n2|b\n")
    found = read_table(queried(tmp_path, f"FROM read_csv('rows.txt', {option})"))
    assert found["note"].tolist() == ["a", "b"]


ROUND = (
    "FROM rows.csv",
    "FROM main.rows.csv",
    "FROM 'rows.csv?x'",
    "FROM '*.csv'",
    "FROM read_csv('*.csv')",
    "FROM read_csv(['rows.csv', 'rows.csv'])",
    "FROM read_csv('rows.' || 'csv')",
    "FROM query('FROM ''rows.csv''')",
    "FROM query_table('rows.csv')",
    "FROM 'rows.json'",
    "FROM read_json('rows.json')",
    "FROM read_json_auto('rows.json')",
    "FROM read_ndjson('rows.json')",
    "FROM read_text('rows.csv')",
    "FROM read_blob('rows.csv')",
    "FROM sniff_csv('rows.csv')",
    "FROM 'rows.txt'",
    "FROM read_parquet('rows.csv')",
    "FROM view",
    "FROM macro()",
    "SELECT * FROM own, (SELECT * FROM view)",
    "FROM words",
)


@pytest.mark.parametrize("sql", ROUND)
def test_no_way_round(tmp_path: Path, sql: str) -> None:
    """Not by a pattern, a name in parts, another function, or what stands in the database."""
    duckdb = pytest.importorskip("duckdb")
    path = written(tmp_path, "csv", fine())
    for name in ("rows.csv?x", "rows.txt"):
        (tmp_path / name).write_bytes(path.read_bytes())
    (tmp_path / "rows.json").write_text('[{"age": 1}]')
    with duckdb.connect(str(tmp_path / "own.db")) as made:
        made.execute("CREATE TABLE own AS SELECT 1 AS age")
        made.execute(f"CREATE VIEW view AS FROM '{path}'")
        made.execute(f"CREATE MACRO macro() AS TABLE FROM '{path}'")
    assert read_table(queried(tmp_path, "FROM own", "own.db"))["age"].tolist() == [1]
    with pytest.raises(DataError):
        read_table(queried(tmp_path, sql, "own.db"))


@pytest.mark.parametrize(
    "source",
    ["'a.parquet'", "'*.parquet'", "read_parquet('a.parquet')", "parquet_scan('?.parquet')",
     "read_parquet(['a.parquet', 'b.parquet'], union_by_name=true)"],
)  # fmt: skip
def test_parquet_files_by_name_list_and_pattern(tmp_path: Path, source: str) -> None:
    pd.DataFrame({"k": [1, 2]}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame({"k": [3]}).to_parquet(tmp_path / "b.parquet")
    due = [1, 2] if "*" not in source and "?" not in source and "b" not in source[5:] else [1, 2, 3]
    assert read_table(queried(tmp_path, f"FROM {source}"))["k"].tolist() == due


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    odd=st.lists(
        st.tuples(
            st.integers(0, ROWS - 1),
            st.integers(0, 2),
            st.text("a\" ,\t;\\'%{}#?\r\n\x0b\x85\u2028", max_size=5),
        ),
        max_size=4,
    ),
    how=st.sampled_from(TEXTS),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
)
@example(odd=[(3, 0, "%")], how="arff", newline="\n")
@example(odd=[(3, 2, "x\ry")], how="csv", newline="\n")
@example(odd=[(3, 1, '"a'), (9, 1, 'a"')], how="duckdb csv", newline="\n")
@example(odd=[(0, k, cell) for k, cell in enumerate(["", "x\r\ny,,", ""])], how="tsv", newline="\r")
def test_a_table_that_is_taken_has_a_row_for_each_line(
    tmp_path_factory: pytest.TempPathFactory,
    odd: list[tuple[int, int, str]],
    how: str,
    newline: str,
) -> None:
    """Or for each cell with the file's own line end, which is a line more."""
    rows = fine()
    for row, column, cell in odd:
        rows[row][column] = cell
    path = written(tmp_path_factory.getbasetemp(), how, rows, newline)
    try:
        [frame] = batches(path)
    except DataError:
        return
    separator = "\t" if "tsv" in how else ","
    text = newline.join(separator.join(row) for row in rows)
    ends = text.count("\r") if newline == "\r" else text.count("\n")
    assert len(frame) == ends + 1
    assert frame.index.name == (TEXT_ROWS if how.startswith("duckdb") else LINES)
    kept = set(map(tuple, frame.to_numpy(dtype=object).tolist()))
    changed = {row for row, _, _ in odd}
    assert kept >= {tuple(rows[k]) for k in range(ROWS) if k not in changed}


@pytest.mark.parametrize("how", TEXTS)
def test_blank_lines_at_the_end_alone(tmp_path: Path, how: str) -> None:
    """In between, a line would be a row or none by what it holds."""
    blank = [[""]]
    assert len(read_table(written(tmp_path, how, fine() + 2 * blank))) == ROWS
    for place in (0, 7, ROWS - 1):
        rows = fine()
        rows[place : place + 1] = blank
        if place < ROWS - 1:
            with pytest.raises(DataError, match="is blank, above other rows"):
                read_table(written(tmp_path, how, rows))


@pytest.mark.parametrize("empty", [None, "", " "])
def test_empty_rows_of_a_sheet(tmp_path: Path, empty: str | None) -> None:
    def sheet(*rows: tuple[Any, ...]) -> pd.DataFrame:
        book = openpyxl.Workbook()
        for row in ((empty, empty), ("a", "b"), *rows):
            book.active.append(row)
        book.save(tmp_path / "t.xlsx")
        return read_table(tmp_path / "t.xlsx")

    none = (empty, empty)
    found = sheet((1, 2), none, ("NA", "null"), (3, 4), none, none)
    assert found.index.name == SHEET_ROWS and found.index.tolist() == [3, 4, 5, 6]
    assert found.isna().all(axis=1).tolist() == [False, True, True, False]
    assert len(sheet((1, 2), ("NA", "NA"))) == 2


# -- exceptions that are not the reader's own ------------------------------------------------------

SECRET = "Zaphod7741"
FAULTS = (
    RuntimeError,
    OverflowError,
    KeyError,
    MemoryError,
    RecursionError,
    StopIteration,
    OSError,
)


def raising(fault: type[Exception], base: type, *methods: str) -> type:
    def fails(*_: object, **__: object) -> Any:
        raise fault(SECRET)

    return type("Odd", (base,), dict.fromkeys(methods, fails))


CELLS: dict[str, Any] = {
    "float": lambda fault: raising(fault, float, "__float__")(3.0),
    "int": lambda fault: raising(fault, int, "__int__", "__float__", "__str__")(3),
    "str": lambda fault: raising(fault, str, "strip", "__str__")("3"),
    "Decimal": lambda fault: raising(fault, decimal.Decimal, "is_nan", "__float__", "__str__")("3"),
    "date": lambda fault: raising(fault, datetime.date, "isoformat")(2020, 1, 1),
    "zone": lambda fault: datetime.datetime(
        2020, 1, 1, tzinfo=raising(fault, datetime.tzinfo, "utcoffset")()
    ),
    "duration": lambda fault: raising(fault, datetime.timedelta, "__truediv__")(1),
    "object": lambda fault: raising(fault, object, "__str__", "__repr__", "__float__")(),
}  # fmt: skip


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_cell_that_raises_is_a_cell(fault: type[Exception], kind: str) -> None:
    """It is read or refused by its row; its own words are nowhere."""
    cell = CELLS[kind](fault)
    value = plain(cell)
    assert value is OTHER or type(value) in (float, int, str, decimal.Decimal, datetime.date)
    number(cell)
    if value is not OTHER:
        cell_text(cell)
    columns = NumericColumn("a", 0, 9), CategoricalColumn("a", ("3", "x"))
    cells = pd.Series([*[1.0] * 9, cell], dtype=object)
    frame = pd.DataFrame({"a": cells, "y": ["p", "n"] * 5})
    for column in columns:
        schema = Schema(columns=(column,), label=Label("y", "p", "n"), scaling="range")
        try:
            assert encode_shard(frame, schema).rows == 10
        except DataError as error:
            assert "row 10" in str(error) and SECRET not in told(error)


def told(error: BaseException | None) -> str:
    """All that a traceback would show."""
    chain = []
    while error is not None:
        chain.append(repr(error))
        error = error.__cause__ or error.__context__
    return " ".join(chain)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("how", ["csv", "arff", "toml", "xlsx", "parquet", "a reader"])
def test_a_library_that_raises_is_not_quoted(
    how: str, fault: type[Exception], first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first batch or after it."""
    good = pd.DataFrame({"a": [1], "y": ["p"]})

    def read(*_: object, **__: object) -> Iterator[pd.DataFrame]:
        yield from itertools.repeat(good, first)
        raise fault(SECRET)

    path = tmp_path / f"t.{how}"
    path.write_text("x")
    monkeypatch.setitem(READERS, f".{how}", read)
    source: Any = read if how == "a reader" else path
    columns = (NumericColumn("a", 0, 9),)
    schema = Schema(columns=columns, label=Label("y", "p", "n"), scaling="range")
    for call in (lambda: list(batches(source)), lambda: encode_shard(source, schema)):
        with pytest.raises(DataError, match="cannot be read") as caught:
            call()
        if fault is not OSError:
            assert SECRET not in told(caught.value)


@pytest.mark.parametrize("columns", ["numeric", "text"])
def test_an_interval_beyond_python(columns: str, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "own.db")) as made:
        made.execute("CREATE TABLE own AS SELECT INTERVAL 99999999 MONTH AS a, 'p' AS y")
    with pytest.raises(DataError, match="cannot be read") as caught:
        read_table(queried(tmp_path, "SELECT * FROM own", "own.db"))
    assert "99999999" not in told(caught.value) and "Overflow" not in told(caught.value)


def test_frames_that_raise() -> None:
    odd = raising(RuntimeError, object, "__array__", "__len__")()
    for source in ((np.zeros((2, 1)), odd), (odd, [1, 2])):
        with pytest.raises(DataError) as caught:
            read_table(source)
        assert SECRET not in told(caught.value)
