"""Sixty malformed tables through the command line: each its message, no traceback, no cell."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest
from scipy.io.arff import loadarff
from typer.testing import CliRunner

from ciphercohort.cli.app import app
from parties.reader.cells import numeric_cells
from parties.reader.schema import CategoricalColumn, Label, NumericColumn, Schema
from parties.reader.table import read_table

SECRET = "Zaphod7741"
SCHEMA = Schema(
    columns=(
        NumericColumn(name="age", low=0, high=120),
        NumericColumn(name="dose", low=0, high=10),
        CategoricalColumn(name="ward", categories=("A", "B")),
    ),
    label=Label(name="died", positive="yes", negative="no"),
    scaling="range",
)
HEAD = "age,dose,ward,died\n"
GOOD = "41,1.5,A,yes\n", "52,2.5,B,no\n", "63,3.5,A,no\n"


def text(*lines: str, head: str = HEAD) -> bytes:
    return (head + "".join(lines)).encode()


def column(name: str, *cells: str) -> bytes:
    """The good table with other cells in one column."""
    names = HEAD.strip().split(",")
    rows = [line.strip().split(",") for line in GOOD]
    for row, cell in zip(rows, cells, strict=True):
        row[names.index(name)] = cell
    return text(*(",".join(row) + "\n" for row in rows))


def sheet(*rows: tuple[Any, ...], other: bool = False) -> bytes:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    if other:
        book.create_sheet("notes")["A1"] = "see above"
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def parquet(**columns: Any) -> bytes:
    cells = {"age": [41, 52], "dose": [1.5, 2.5], "ward": ["A", "B"], "died": ["yes", "no"]}
    out = io.BytesIO()
    pd.DataFrame(cells | columns).to_parquet(out)
    return out.getvalue()


def arff(*rows: str, head: str = "@data\n") -> bytes:
    names = "@relation t\n@attribute age numeric\n@attribute dose real\n"
    return (names + "@attribute ward {A,B}\n@attribute died {yes,no}\n" + head
            + "".join(rows)).encode()  # fmt: skip


NAMES = ("age", "dose", "ward", "died")
# file name, content, what the message says
CASES: dict[str, tuple[str, bytes, str]] = {
    # -- the file as a whole
    "no table's ending": ("t.docx", b"x", "is none of .csv, .csv.gz, .tsv"),
    "empty": ("t.csv", b"", "is empty: export the table again"),
    "blank lines": ("t.csv", b"\n \n\n", "is blank: it has neither names nor rows"),
    "header alone": ("t.csv", HEAD.encode(), "the table has 0 rows: at least 1 is needed"),
    "Latin-1": ("t.csv", text(*GOOD, "1,2,É,no\n").decode().encode("latin-1"),
                "is not UTF-8 text (line 5), probably Windows-1252"),
    "UTF-16": ("t.csv", text(*GOOD).decode().encode("utf-16"), "is UTF-16 or binary, not UTF-8"),
    "UTF-16 without mark": ("t.csv", text(*GOOD).decode().encode("utf-16-le"), "is UTF-16 or bin"),
    "NUL byte": ("t.csv", text(*GOOD, "6\0,1,A,no\n"), "NUL bytes in line 5: export the table"),
    "a workbook named .csv": ("t.csv", sheet(NAMES), "is a workbook or a ZIP archive, not text"),
    "an old workbook named .csv": ("t.csv", b"\xd0\xcf\x11\xe0 x", "(.xls), not text: save it as"),
    "Parquet named .csv": ("t.csv", parquet(), "is a Parquet file, not text: name it .parquet"),
    "gzip named .csv": ("t.csv", gzip.compress(text(*GOOD)), "is compressed: name it .csv.gz"),
    "PDF": ("t.csv", b"%PDF-1.7 x", "is a PDF document, not a table"),
    "SQLite": ("t.csv", b"SQLite format 3\0", "is an SQLite database, not text"),
    "a web page": ("t.csv", b"<!DOCTYPE html><p>log in", "is a web page or XML, not a table"),
    "broken gzip": ("t.csv.gz", gzip.compress(text(*GOOD))[:30], "is not a whole gzip file"),
    "no gzip": ("t.tsv.gz", text(*GOOD), "is not a whole gzip file: compress or copy it again"),
    "nothing in gzip": ("t.csv.gz", gzip.compress(b""), "is empty when unpacked"),
    # -- separators and quotation marks
    "semicolons": ("t.csv", text(*GOOD).replace(b",", b";"),
                   "not separated by commas but by semicolons: save it with commas, and numbers"),
    "tabs": ("t.csv", text(*GOOD).replace(b",", b"\t"), "but by tabs: save it with commas, or nam"),
    "bars": ("t.csv", text(*GOOD).replace(b",", b"|"), "not separated by commas but by bars"),
    "commas in .tsv": ("t.tsv", text(*GOOD), "but by commas: save it with tabs, or name it .csv"),
    "Excel's sep=": ("t.csv", b"sep=,\n" + text(*GOOD), "begins with Excel's line sep=: remove"),
    "never closed": ("t.csv", text(GOOD[0], '5,2,"B,no\n', GOOD[2]),
                     "a quotation mark that opens in line 3 is never closed: close or double it"),
    "names never closed": ("t.csv", text(*GOOD, head='age,"dose,ward,died\n'), "a quotation mark"
                           " that opens in line 1 is never closed: close or double it; has no line "
                           "of names that can be read"),
    "stray mark": ("t.csv", text(GOOD[0], '5,2,"B"x,no\n'), "line 3 has a stray quotation mark"),
    # -- lines
    "short line": ("t.csv", text(*GOOD, "44,1.5\n"), "line 5 has 2 cells where the header has 4"),
    "long line": ("t.csv", text(GOOD[0], "1,2,A,no,7\n", GOOD[2]), "line 3 has 5 cells where the"),
    "short and long": ("t.csv", text("4\n", GOOD[0], "1,2,A,no,7\n", "5\n"),
                       "lines 2, 5 have 1 cell where the header has 4: correct them, and put"),
    "blank lines count": ("t.csv", text(GOOD[0], "\n\n", "1,2\n"), "line 5 has 2 cells where"),
    "a cell of two lines counts": ("t.csv", text('4,2,"A\nB",no\n', "1,2\n"), "line 4 has 2 cells"),
    "decimal commas unquoted": ("t.csv", text("41,1,5,A,yes\n", "52,2,5,B,no\n"),
                                "every line has 5 cells where the header has 4: numbers with deci"),
    "a title above": ("t.csv", b"Export of May\n" + text(*GOOD),
                      "the header has 1 cell and every line below 4 cells: remove what stands ab"),
    "header pasted again": ("t.csv", text(GOOD[0], HEAD, GOOD[1]), "line 3 repeats the header"),
    "many lines": ("t.csv", text(*GOOD, *("7\n" for _ in range(9))),
                   "lines 5, 6, 7, 8, 9 and 4 more have 1 cell where the header has 4"),
    # -- names
    "no header": ("t.csv", text(*GOOD, head=""), "has no column names: its first line looks like"),
    "no header above texts": ("t.csv", f"39,{SECRET},13\n50,x,14\n".encode(), "looks like data"),
    "a name twice": ("t.csv", text(*GOOD, head="age,age,ward,died\n"),
                     "has one name for columns 1, 2: give each its own"),
    "a column is not there": ("t.csv", text(*GOOD, head="age,dose,station,died\n"),
                              "column 'ward' of the schema is not in the table"),
    "another case": ("t.csv", text(*GOOD, head="Age,dose,ward,died\n"),
                     "column 'age' of the schema is not in the table; did you mean 'Age'?"),
    "no label": ("t.csv", text(*GOOD, head="age,dose,ward,outcome\n"),
                 "column 'died' of the schema is not in the table"),
    # -- cells
    "missing": ("t.csv", column("age", "41", "", "NA"), "column 'age' is missing (empty or NaN) in "
                "2 of 3 rows (lines 3, 4): fill in or drop these rows, or let the schema say"),
    "a word for missing": ("t.csv", column("age", "41", "-", "unknown"),
                           "in 2 of 3 rows (lines 3, 4): words for a missing value: leave the ce"),
    "text": ("t.csv", column("age", "41", SECRET, "63"), "column 'age' has text where a number is "
             "due in 1 of 3 rows (line 3): correct or drop these rows"),
    "decimal commas": ("t.csv", column("dose", '"1,5"', '"2,5"', '"3,5"'),
                       "(lines 2, 3, 4): numbers with a decimal comma: write decimal points"),
    "thousands": ("t.csv", column("dose", "1", "2", '"3,500.0"'), "separators of thousands: tak"),
    "a unit": ("t.csv", column("dose", "1", "2 mg", "3 mg"), "numbers with a unit: take the unit"),
    "percent": ("t.csv", column("dose", "1 %", "2 %", "3 %"), "percentages: take the sign % out"),
    "below a limit": ("t.csv", column("dose", "1", "<0.5", "3"), "a sign such as < before them"),
    "dates": ("t.csv", column("age", "1980-05-17", "1970-01-02", "1960-12-31"), "dates: convert"),
    "errors of formulas": ("t.csv", column("dose", "1", "#DIV/0!", "#REF!"), "its formulas"),
    "infinite": ("t.csv", column("dose", "1", "inf", "-inf"),
                 "is infinite or too large for a number in 2 of 3 rows (lines 3, 4)"),
    "too large": ("t.csv", column("dose", "1", "2", "1e999"), "is infinite or too large "
                  "for a number in 1 of 3 rows (line 4)"),
    "missing category": ("t.csv", column("ward", "A", "", "B"),
                         "column 'ward' is missing in 1 of 3 rows (line 3)"),
    "missing label": ("t.csv", column("died", "yes", "no", ""), "label 'died' is missing in 1 of"),
    "another label": ("t.csv", column("died", "yes", "no", SECRET),
                      "label 'died' is neither 'yes' nor 'no' in 1 of 3 rows (line 4)"),
    "a label's spelling": ("t.csv", column("died", "yes", "No ", "YES"),
                           "(lines 3, 4): they differ in capitals only; correct them"),
    # -- all at once
    "several": ("t.csv", text("x,,C,maybe\n", "1,2,,no\n", "9\n", head="age,dose,ward,died\n"),
                "line 4 has 1 cell where the header has 4: correct them, and put cells with separa"
                "tors into quotation marks; column 'age' has text where a number is due in 1 of 2 "
                "rows (line 2): correct or drop these rows; column 'dose' is missing (empty or NaN)"
                " in 1 of 2 rows (line 2): fill in or drop these rows, or let the schema say "
                "missing: typical or indicator; column 'ward' is missing in 1 "
                "of 2 rows (line 3)"),
    # -- other formats
    "no workbook": ("t.xlsx", b"PK\x03\x04 x", "is not a readable workbook"),
    "two sheets": ("t.xlsx", sheet(NAMES, (41, 1.5, "A", "yes"), other=True), "has 2 sheets with"),
    "beyond the names": ("t.xlsx", sheet(NAMES, (41, 1, "A", "no"), (5, 1, "A", "no", "?")),
                         "row 3 has cells beyond the last column name"),
    "a text in a sheet": ("t.xlsx", sheet((), NAMES, (41, 1.5, "A", "yes"), (), (SECRET, 1, "A",
                          "no")), "'age' has text where a number is due in 1 of 3 rows (row 5)"),
    "dates in a sheet": ("t.xlsx", sheet(NAMES, (pd.Timestamp("2020-01-02"), 1, "A", "no")),
                         "number is due in 1 of 1 rows (row 2): dates: convert them to numbers"),
    "no Parquet": ("t.parquet", SECRET.encode(), "is not a readable Parquet table"),
    "Parquet, cut": ("t.parquet", f"PAR1{SECRET}PAR1".encode(), "is not a readable Parquet table"),
    "nothing in Parquet": ("t.parquet", b"", "is empty: export the table again"),
    "lists in Parquet": ("t.parquet", parquet(age=[[1], [2]]), "has text where a number is due"),
    "ARFF without data": ("t.arff", arff(head=""), "has no line @data: export the table again"),
    "ARFF attribute": ("t.arff", b"@attribute age\n" + arff(), "has in line 1 no @attribute with"),
    "sparse ARFF": ("t.arff", arff("{0 41, 3 yes}\n"), "has sparse rows ({…})"),
    "a comment in ARFF": ("t.arff", arff("41,1.5,A,yes\n", "% note\n"), "line 8 has a sign %"),
    "blank in ARFF": ("t.arff", arff("41,1.5,A,yes\n", "\n", GOOD[1]), "line 8 is blank, above"),
    "blank in CSV": ("t.csv", text(GOOD[0], "\n", GOOD[1], "\n"), "line 3 is blank, above other"),
    "two line ends": ("t.csv", text(GOOD[0], "41,1.5,A,yes\r41,1.5,A,no\n"), "line 3 has another"),
    "missing in ARFF": ("t.arff", arff("% note\n", "41,1.5,A,yes\n", "?,2.5,B,no\n"),
                        "column 'age' is missing (empty or NaN) in 1 of 2 rows (line 9)"),
    "no query": ("t.toml", b"conection = 'x'", "unknown field 'conection'; did you mean"),
}  # fmt: skip


@pytest.fixture(scope="module")
def schema_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("schema") / "schema.json"
    SCHEMA.save(path)
    return path


def checked(schema: Path, data: Path) -> tuple[int, str]:
    """Exit code, and all that `cohort schema check` says, in one line."""
    done = CliRunner().invoke(app, ["schema", "check", str(schema), str(data)])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, " ".join((done.stdout + done.stderr).split())


def test_there_are_sixty() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize("case", CASES)
def test_malformed(case: str, schema_file: Path, tmp_path: Path) -> None:
    name, content, words = CASES[case]
    (tmp_path / name).write_bytes(content)
    code, said = checked(schema_file, tmp_path / name)
    assert code == 2 and said.startswith("cohort: ") and words in said, said
    assert "Traceback" not in said and SECRET not in said


GOOD_FILES: dict[str, bytes] = {
    "t.csv": text(*GOOD),
    "bom.csv": b"\xef\xbb\xbf" + text(*GOOD).replace(b"\n", b"\r\n"),
    "mac.csv": text(*GOOD).replace(b"\n", b"\r"),
    "commas.csv": b"".join(line + b",\n" for line in text(*GOOD).split()),
    "t.tsv": text(*GOOD).replace(b",", b"\t"),
    "t.csv.gz": gzip.compress(text(*GOOD)),
    "T.TSV.GZ": gzip.compress(text(*GOOD).replace(b",", b"\t")),
    "t.xlsx": sheet(NAMES, (41, 1.5, "A", "yes"), (52, 2.5, " B", "no"), ("63", 3.5, "A", "no")),
    "t.parquet": parquet(age=[41, 52], dose=[1.5, 2.5]),
    "t.arff": arff(*GOOD),
    "quoted.arff": arff("41, 1.5, 'A', yes\n", *GOOD[1:], "\n", head="% a, note\n\n@data\n"),
}


@pytest.mark.parametrize("name", GOOD_FILES)
def test_good_files_of_each_format(name: str, schema_file: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(GOOD_FILES[name])
    code, said = checked(schema_file, tmp_path / name)
    rows = 2 if name == "t.parquet" else 3
    assert code == 0 and f"{rows} rows fit the schema" in said, said


@pytest.mark.parametrize(
    "head",
    [
        "0.5,2,ward,died\n",  # doses as names
        "250.0,401.9,ward,died\n",
        "age,1,3,died\n",
    ],
)
def test_names_of_numbers_are_names(head: str, tmp_path: Path) -> None:
    """They increase; what stands below has no say."""
    (tmp_path / "t.csv").write_text(head + "41,1.5,2,1\n52,x,3,0\n")
    assert list(read_table(tmp_path / "t.csv").columns) == head.strip().split(",")


def test_arff_is_what_scipy_reads(tmp_path: Path) -> None:
    (tmp_path / "t.arff").write_bytes(
        arff("41,1.5,A,yes\n", "?,2.5,B,no\n", "\n", head="% note\n@data\n")
    )
    theirs, _ = loadarff(tmp_path / "t.arff")
    ours = read_table(tmp_path / "t.arff")
    assert list(ours.columns) == list(theirs.dtype.names)
    for name in ("age", "dose"):
        np.testing.assert_array_equal(numeric_cells(ours[name])[0], theirs[name])
    assert ours["ward"].tolist() == [cell.decode() for cell in theirs["ward"]]
