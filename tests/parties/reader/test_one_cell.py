"""One cell changes one row: every format, kind of column and odd cell; and formats agree.

Epsilon is about one row, so a row's vector is the same bit for bit alone, among others, beside a
row with an odd cell, in any place; and whether it is accepted depends on itself.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parties.reader import cells as module
from parties.reader.cells import OTHER, cell_text, missing_cells, number, numeric_cells, plain
from parties.reader.schema import (
    CategoricalColumn,
    Classes,
    Label,
    NumericColumn,
    Offset,
    Schema,
    Targets,
    Weight,
)
from parties.reader.shard import encode_shard
from parties.reader.table import Table, batches, read_table
from protocols.errors import DataError

Cells = dict[str, list[Any]]
NAMES = ("count", "dose", "moved", "smoker", "day", "span", "code", "times", "years", "died")
SCHEMA = Schema(
    columns=(
        NumericColumn("count", 0, 40, 10, 9, missing="typical"),
        NumericColumn("dose", 0, 10, 2, 1, missing="indicator"),
        CategoricalColumn("moved", ("True", "False"), missing="indicator"),
        CategoricalColumn("smoker", ("yes", "no"), missing="indicator"),
        CategoricalColumn("day", ("2024-05-01", "2024-05-02"), missing="indicator"),
        CategoricalColumn("span", ("27:30:00", "01:00:00"), missing="indicator"),
        CategoricalColumn("code", ("1", "0", "2.5"), missing="indicator"),
    ),
    label=Label("died", "yes", "no"),
    row_norm=1.7,
    weight=Weight("times", 4),
    offset=Offset("years", 1, 9, log=True),
)
ROWS = 7
ODD: tuple[Any, ...] = (
    "unknown", "tRUE", "TRUE", "O'Neil", "'", 'a "b", c', "3+0j", "1_000", "1,5", " 1 ", "01",
    "1.0", "1e400", "nan", "NaN", "NA", "None", "", "-0", "inf", "2024-05-01 00:00:00",
    None, True, False, 0, 1, 1.0, -0.0, 2.5, float("nan"), float("inf"), 2**53 + 1, 2**63, -(2**70),
    Decimal("1.50"), Decimal(1), date(2024, 5, 1), datetime(2024, 5, 1),
    datetime(2024, 5, 1, 13, 45),
    timedelta(hours=27, minutes=30), time(7, 30),
)  # fmt: skip


def usual() -> Cells:
    """A table of usual cells, each column of one kind."""
    k = range(ROWS)
    return {
        "count": [3 * i for i in k],
        "dose": [i / 4 for i in k],
        "moved": [i % 2 == 0 for i in k],
        "smoker": ["yes", "no"] * 3 + ["yes"],
        "day": [date(2024, 5, 1 + i % 2) for i in k],
        "span": [timedelta(hours=27, minutes=30), timedelta(hours=1)] * 3 + [timedelta(hours=1)],
        "code": [i % 2 for i in k],
        "times": [1 + i % 3 for i in k],
        "years": [1 + i for i in k],
        "died": ["no", "yes"] * 3 + ["no"],
    }


def written(cell: Any) -> str:
    """As an export writes it."""
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, timedelta):
        hours, seconds = divmod(round(cell.total_seconds()), 3600)
        return f"{hours:02d}:{seconds // 60:02d}:{seconds % 60:02d}"
    return str(cell)


# -- formats: how a table is kept in each ---------------------------------------------------------


def delimited(separator: str) -> Callable[[Cells], bytes]:
    def made(cells: Cells) -> bytes:
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter=separator)
        writer.writerow(cells)
        writer.writerows([map(written, row) for row in zip(*cells.values(), strict=True)])
        return out.getvalue().encode()

    return made


def arff(cells: Cells) -> bytes:
    def quoted(cell: Any) -> str:
        text = written(cell).replace("\\", "\\\\").replace("'", "\\'")
        return f"'{text}'" if any(c in text for c in " ,'\"") else text or "?"

    names = "".join(f"@attribute {name} string\n" for name in cells)
    rows = zip(*cells.values(), strict=True)
    return f"{names}@data\n{''.join(','.join(map(quoted, row)) + chr(10) for row in rows)}".encode()


def arrow(cells: Cells) -> pa.Table:
    """Of the type that all cells of a column have, else texts."""
    columns = {}
    for name, column in cells.items():
        kinds = {type(cell) for cell in column if cell is not None}
        try:
            if len(kinds) > 1:  # Arrow would cut a time of day off among dates
                raise ValueError
            columns[name] = pa.array(column)
        except (pa.ArrowException, ValueError, OverflowError):
            columns[name] = pa.array([None if cell is None else written(cell) for cell in column])
    return pa.table(columns)


def parquet(cells: Cells) -> bytes:
    out = io.BytesIO()
    pa.parquet.write_table(arrow(cells), out, row_group_size=3)
    return out.getvalue()


def feather(cells: Cells) -> bytes:
    out = io.BytesIO()
    pa.feather.write_feather(arrow(cells), out, compression="uncompressed")
    return out.getvalue()


def xlsx(cells: Cells) -> bytes:
    book, out = openpyxl.Workbook(), io.BytesIO()
    book.active.append(list(cells))
    for row in zip(*cells.values(), strict=True):
        is_odd = (isinstance(c, float) and (c != c or abs(c) == np.inf) for c in row)
        book.active.append([written(c) if o else c for c, o in zip(row, is_odd, strict=True)])
    book.save(out)
    return out.getvalue()


FILES: dict[str, Callable[[Cells], bytes]] = {
    "t.csv": delimited(","),
    "t.tsv.gz": lambda cells: gzip.compress(delimited("\t")(cells)),
    "t.arff": arff,
    "t.parquet": parquet,
    "t.feather": feather,
    "t.xlsx": xlsx,
}
DUCKDB = {"duckdb csv": "t.csv", "duckdb parquet": "t.parquet"}
FRAMES: dict[str, Callable[[Cells], pd.DataFrame]] = {
    "frame of objects": lambda cells: pd.DataFrame(cells, dtype=object),
    "frame as pandas types it": lambda cells: pd.DataFrame(cells),
    "frame as pandas converts it": lambda cells: pd.DataFrame(cells).convert_dtypes(),
    "frame of categories": lambda cells: pd.DataFrame(
        {name: pd.Series(column, dtype=object).astype("category") for name, column in cells.items()}
    ),
}
SLOW = dict.fromkeys(("t.xlsx", "sqlite", *DUCKDB), ("dose", "moved"))
"""Columns of formats that take long to write."""
FORMATS = (*FILES, *DUCKDB, "sqlite", *FRAMES)


def kept(how: str, cells: Cells, folder: Path) -> Table:
    """The table in a format."""
    if how in FRAMES:
        return FRAMES[how](cells)
    file = DUCKDB.get(how, how)
    if how == "duckdb parquet":  # it reads Arrow's durations as whole numbers
        spans = {n: [isinstance(c, timedelta) for c in column] for n, column in cells.items()}
        cells = {n: [written(c) if s else c for c, s in zip(column, spans[n], strict=True)]
                 for n, column in cells.items()}  # fmt: skip
    if file in FILES:
        (folder / file).write_bytes(FILES[file](cells))
    if how in DUCKDB:
        query = {"connection": "duckdb:", "query": f"SELECT * FROM '{file}' ORDER BY years::INT"}
    elif how == "sqlite":
        path = folder / "t.db"
        path.unlink(missing_ok=True)
        plain_types = (str, int, float, type(None))
        rows = [
            [c if isinstance(c, plain_types) and abs(c if isinstance(c, int) else 0) < 2**63
             else written(c) for c in row]
            for row in zip(*cells.values(), strict=True)
        ]  # fmt: skip
        with sqlite3.connect(path) as connection:
            connection.execute(f"CREATE TABLE t ({', '.join(cells)})")
            marks = ", ".join("?" * len(cells))
            connection.executemany(f"INSERT INTO t VALUES ({marks})", rows)
        query = {"connection": f"sqlite:///{path}", "query": "SELECT * FROM t ORDER BY rowid"}
    else:
        return folder / file
    (folder / "t.toml").write_text("\n".join(f"{k} = {json.dumps(v)}" for k, v in query.items()))
    return folder / "t.toml"


def row(cells: Cells, k: int) -> Cells:
    return {name: [column[k]] for name, column in cells.items()}


def encoded(table: Table, size: int = 3) -> list[bytes] | None:
    """Each row's bytes, all that it has; None: refused."""
    try:
        shard = encode_shard(table, SCHEMA, batch_rows=size)
    except DataError:
        return None
    parts = np.column_stack([shard.x, shard.y, shard.weight, shard.offset])
    return [each.tobytes() for each in parts]


def usual_of(how: str, folder: Path) -> list[bytes]:
    found = encoded(kept(how, usual_in(how), folder))
    assert found is not None
    return found


def usual_in(how: str) -> Cells:
    """Sqlite has no truth values: it keeps 1 and 0, which are others than TRUE."""
    cells = usual()
    if how == "sqlite":
        cells["moved"] = [str(cell) for cell in cells["moved"]]
    return cells


# -- tests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", FORMATS)
def test_formats_agree_and_rows_alone_are_the_same(how: str, tmp_path: Path) -> None:
    cells = usual_in(how)
    found = usual_of(how, tmp_path)
    assert found == encoded(pd.DataFrame(usual(), dtype=object), 1000)
    for k in range(ROWS):
        assert encoded(kept(how, row(cells, k), tmp_path)) == [found[k]]


# pandas itself makes one category of 1 and True, and one type of a column that has both.
@pytest.mark.parametrize("how", [how for how in FORMATS if how not in tuple(FRAMES)[2:]])
def test_an_odd_cell_changes_no_other_row(how: str, tmp_path: Path) -> None:
    base, cells, apart = usual_of(how, tmp_path), usual_in(how), tmp_path / "apart"
    apart.mkdir()
    plain_frame = read_all(kept(how, cells, tmp_path))
    accepted = 0
    for name in SLOW.get(how, [column.name for column in SCHEMA.columns]):
        for odd in ODD:
            changed = {**cells, name: [*cells[name][:-1], odd]}
            table = kept(how, changed, tmp_path)
            found, alone = encoded(table), encoded(kept(how, row(changed, -1), apart))
            case = f"{odd!r} in {name}"
            assert (found is None) == (alone is None), case
            if found is not None:
                accepted += 1
                assert found[:-1] == base[:-1], case
                assert alone == found[-1:], case
                continue
            # Refused on the owner's screen; every other cell means what it meant.
            frame = read_all(table)
            values, texts = numeric_cells(frame[name])
            due, _ = numeric_cells(plain_frame[name])
            assert values[:-1].tobytes() == due[:-1].tobytes() and texts.sum() <= 1, case
            assert not texts[:-1].any() and not missing_cells(frame[name])[:-1].any(), case
    assert accepted > 50


def read_all(table: Table) -> pd.DataFrame:
    return pd.concat(batches(table, rows=1000))


@pytest.mark.parametrize(
    ("cell", "value", "text"),
    [
        (True, 1.0, "True"),
        ("TRUE", 1.0, "True"),
        (np.bool_(False), 0.0, "False"),
        ("tRUE", None, "tRUE"),
        (1, 1.0, "1"),
        (np.float32(0.1), float(np.float32(0.1)), repr(float(np.float32(0.1)))),
        (" 01 ", 1.0, "1"),
        ("1e2", 100.0, "100"),
        (-0.0, -0.0, "0"),
        (2**53 + 1, 2.0**53, str(2**53)),
        (str(2**53 + 1), 2.0**53, str(2**53)),
        (np.int64(2**53 + 3), 2.0**53 + 4, str(2**53 + 4)),
        (10**400, np.inf, "inf"),
        ("-1e400", -np.inf, "-inf"),
        (Decimal("0.1"), 0.1, "0.1"),
        (Decimal("sNaN"), np.nan, None),
        (np.datetime64("NaT"), np.nan, None),
        (pd.NA, np.nan, None),
        ("n/a", np.nan, None),
        ("1_000", None, "1_000"),
        ("١", None, "١"),
        (date(2024, 5, 1), None, "2024-05-01"),
        (pd.Timestamp("2024-05-01"), None, "2024-05-01"),
        (np.datetime64("2024-05-01T13:45:00"), None, "2024-05-01 13:45:00"),
        ("2024-05-01T13:45:00.500", None, "2024-05-01 13:45:00.5"),
        ("2024-05-01T00:00:00Z", None, "2024-05-01 00:00:00+00:00"),
        (pd.Timedelta(hours=27.5), None, "27:30:00"),
        (timedelta(seconds=-1.5), None, "-00:00:01.5"),
        (time(7, 30), None, "07:30:00"),
        (pd.Interval(0, 1), None, "(0, 1]"),
    ],
)
def test_what_a_cell_means(cell: Any, value: float | None, text: str | None) -> None:
    found = number(cell)
    assert (found is None) == (value is None)
    if found is not None and value is not None:
        assert np.float64(found).tobytes() == np.float64(value).tobytes() or found != found
    assert cell_text(cell) == text
    for beside in ("1", "x", 1, None):  # whichever way a column is read
        values, bad = numeric_cells(pd.Series([beside, cell], dtype=object))
        assert bad[1] == (value is None)
        assert np.array_equal(values[1:], [np.nan if found is None else found], equal_nan=True)


@pytest.mark.parametrize("cell", [[1], {}, b"1", 1j, np.datetime64("99999-01-01"), object()])
def test_what_is_neither_a_number_nor_a_text(cell: Any) -> None:
    assert plain(cell) is OTHER and number(cell) is None
    with pytest.raises(TypeError, match="holds an object"):
        cell_text(cell)


cell_values = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.decimals(allow_nan=True)
    | st.text(max_size=6) | st.from_regex(r"[+-]?[0-9]{1,3}\.?[0-9]{0,2}(e[0-9])?", fullmatch=True)
    | st.sampled_from(ODD) | st.dates() | st.datetimes() | st.timedeltas()
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(cell_values, min_size=1, max_size=8), st.randoms())
def test_columns_are_their_cells(column: list[Any], random: Any) -> None:
    """In any order, and again after others: nothing that was seen before has a say."""
    alone = [number(cell) for cell in column]
    texts = module.text_cells(pd.Series(column, dtype=object))
    order = list(range(len(column)))
    random.shuffle(order)
    values, bad = numeric_cells(pd.Series([column[k] for k in order], dtype=object))
    for place, k in enumerate(order):
        own = alone[k]
        due = np.float64(np.nan if own is None else own)
        assert bad[place] == (own is None)
        assert values[place].tobytes() == due.tobytes() or due != due
    for code, cell in zip(texts[0], column, strict=True):
        assert (None if code < 0 else texts[1][code]) == cell_text(cell)


def test_a_table_in_memory_for_people_means_the_same(tmp_path: Path) -> None:
    """`read_table` makes arrays of columns; rows are the same."""
    for how in ("t.csv", "t.arff", "duckdb csv"):
        table = kept(how, usual(), tmp_path)
        assert read_table(table)["count"].dtype == np.int64
        assert encoded(read_table(table)) == encoded(table)


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 16, 33, 100])
@pytest.mark.parametrize("kind", ["label", "classes", "targets"])
def test_rows_are_the_same_bit_for_bit_in_company(columns: int, kind: str) -> None:
    """Norms, scales, logarithms: products of matrices are not the same alone and in company."""
    rng, rows = np.random.default_rng(columns), 200
    names = [f"c{k}" for k in range(columns)]
    frame = pd.DataFrame(rng.normal(0, 3, (rows, columns)), columns=names)
    frame["w"], frame["o"] = rng.uniform(0, 2, rows), rng.uniform(1, 9, rows)
    frame["y"] = rng.integers(0, 3, rows) if kind == "classes" else rng.integers(0, 2, rows)
    labels: dict[str, Any] = {
        "label": Label("y", "1", "0"),
        "classes": Classes("y", ("0", "1", "2")),
        "targets": Targets((NumericColumn("y", 0, 3),)),
    }
    schema = Schema(
        columns=tuple(NumericColumn(name, -10, 10, 0.1, 3) for name in names),
        label=labels[kind],
        row_norm=0.7 * columns**0.5,
        weight=Weight("w", 2),
        offset=None if kind == "classes" else Offset("o", 1, 9, log=True),
    )

    def parts(table: pd.DataFrame, size: int) -> list[bytes]:
        shard = encode_shard(table, schema, batch_rows=size)
        found = np.column_stack([shard.x, shard.y, shard.weight, shard.offset])
        return [each.tobytes() for each in found]

    whole, order = parts(frame, 1000), rng.permutation(rows)
    assert parts(frame, 7) == whole
    assert parts(frame.iloc[order], 64) == [whole[k] for k in order]
    assert all(parts(frame.iloc[[k]], 64) == [whole[k]] for k in range(0, rows, 9))
