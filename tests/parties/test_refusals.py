"""Every bad table is refused: the message names the cause, and no private value leaks.

The sentinels below stand for private cells; they must not occur in the message, nor in any
exception that it was raised from.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from parties.data.columns import CategoricalColumn, NumericColumn
from parties.data.encode import encode_features, encode_shard
from parties.data.outcome import Label
from parties.data.schema import Schema
from parties.data.table import read_table
from protocols.errors import CohortError, DataError, SchemaError

SECRET_TEXT = "Zaphod7741"
SECRET_NUMBER = 8675309.25
SCHEMA = Schema(
    columns=(
        NumericColumn(name="age", low=0, high=100),
        CategoricalColumn(name="ward", categories=("A", "B")),
    ),
    label=Label(name="ill", positive="yes", negative="no"),
    scaling="range",
)


def table(**changes: Any) -> pd.DataFrame:
    rows = {"age": [1.0, 2, 3, 4], "ward": ["A", "B", "A", "B"], "ill": ["yes", "no"] * 2}
    return pd.DataFrame(rows | changes)


def refused(kind: type[CohortError], call: Callable[[], Any]) -> str:
    """Return the message of the refusal, after looking for leaks along its whole chain."""
    with pytest.raises(kind) as caught:
        call()
    error: BaseException | None = caught.value
    while error is not None:
        text = f"{error} {error.args!r}"
        assert "Zaphod" not in text and "7741" not in text and "8675309" not in text
        hidden = None if error.__suppress_context__ else error.__context__
        error = error.__cause__ or hidden
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"age": [1, np.nan, None, 4]},
            "column 'age' is missing (empty or NaN) in 2 of 4 rows (rows 2, 3)",
        ),
        (
            {"age": [1, SECRET_NUMBER, -np.inf, 4]},
            "'age' is infinite or too large for a number in 1 of 4 rows (row 3)",
        ),
        ({"age": [1, SECRET_TEXT, "2", 4]}, "'age' has text where a number is due in 1 of 4 rows"),
        ({"age": [None, SECRET_TEXT, 3, None]}, "due in 1 of 4 rows (row 2)"),
        ({"age": [1, "3,5", SECRET_TEXT, ""]}, "in 3 of 4 rows (rows 2, 3, 4)"),
        ({"age": [1, [SECRET_TEXT], {}, 4]}, "'age' has text where a number is due in 2 of 4"),
        (
            {"age": np.array([1, 10**400, 3, 4], dtype=object)},
            "'age' has text where a number is due",
        ),
        ({"age": pd.date_range("1986-07-05", periods=4)}, "'age' holds dates"),
        ({"age": np.full(4, 1j)}, "'age' holds complex numbers"),
        ({"ward": ["A", None, np.nan, SECRET_TEXT]}, "'ward' is missing in 2 of 4 rows"),
        ({"ward": [["A"], [SECRET_TEXT], 1, 2]}, "'ward' holds objects"),
        ({"ill": ["yes", "no", SECRET_TEXT, "Yes"]}, "neither 'yes' nor 'no' in 2 of 4 rows"),
        ({"ill": ["yes", SECRET_NUMBER, 1, 0]}, "'ill' is neither 'yes' nor 'no' in 3 of 4"),
        ({"ill": ["yes", "no", None, "no"]}, "'ill' is missing in 1 of 4 rows (row 3)"),
        ({"ill": [["yes"], [SECRET_TEXT], 1, 0]}, "'ill' holds objects"),
    ],
)
def test_bad_cells(changes: dict[str, Any], message: str) -> None:
    assert message in refused(DataError, lambda: encode_shard(table(**changes), SCHEMA))


def test_several_bad_columns_are_named_at_once() -> None:
    bad = table(age=[SECRET_TEXT] * 4, ward=[None] * 4)
    text = refused(DataError, lambda: encode_features(bad, SCHEMA))
    assert "'age'" in text and "'ward'" in text


def test_missing_columns() -> None:
    text = refused(
        SchemaError, lambda: encode_shard(table().rename(columns={"age": "Age"}), SCHEMA)
    )
    assert "column 'age' of the schema is not in the table; did you mean 'Age'?" in text
    text = refused(SchemaError, lambda: encode_shard(table()[["age"]], SCHEMA))
    assert "'ward'" in text and "'ill'" in text
    text = refused(SchemaError, lambda: encode_shard(table().drop(columns="ill"), SCHEMA))
    assert "'ill'" in text
    assert encode_features(table().drop(columns="ill"), SCHEMA).shape == (4, 4)


def test_empty_shard() -> None:
    assert "0 rows" in refused(DataError, lambda: encode_shard(table().head(0), SCHEMA))
    assert "0 rows" in refused(DataError, lambda: encode_features(table().head(0), SCHEMA))


def test_strict_refuses_what_is_clamped_otherwise() -> None:
    bad = table(age=[1, SECRET_NUMBER, -3, 4], ward=["A", SECRET_TEXT, "B", "B"])
    assert encode_shard(bad, SCHEMA).counts.summary()
    text = refused(DataError, lambda: encode_shard(bad, SCHEMA, strict=True))
    assert "2 of 4 values of column 'age' are outside its range" in text
    assert "1 of 4 values of column 'ward' are of no declared category" in text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "does not exist"),
        ("none.parquet", None, "does not exist"),
        ("table.xlsx", b"x", "not a readable workbook"),
        ("empty.csv", b"", "is empty"),
        ("empty.parquet", b"", "is empty"),
        ("table.doc", b"x", "none of .csv, .csv.gz, .tsv"),
        ("blank.csv", b"\n\n", "neither names nor rows"),
        ("latin.csv", f"age,{SECRET_TEXT}é\n1,2\n".encode("latin-1"), "not UTF-8"),
        ("cut.parquet", b"PAR1" + SECRET_TEXT.encode() + b"PAR1", "not a readable Parquet"),
        ("bad.parquet", f"age {SECRET_TEXT}".encode(), "not a readable Parquet"),
        (
            "ragged.csv",
            f"age,ward\n1,A\n2,B,{SECRET_TEXT}\n".encode(),
            "line 3 has 3 cells where the header has 2",
        ),
        (
            "wide.csv",
            f"age,ward\n1,A,{SECRET_TEXT}\n".encode(),
            "every line has 3 cells where the header has 2",
        ),
        ("semicolon.csv", f"age;ward\n1;{SECRET_TEXT}\n".encode(), "not separated by commas"),
        ("headless.csv", f"39,{SECRET_TEXT},13\n50,x,14\n".encode(), "looks like data"),
        ("headless2.csv", f"{SECRET_NUMBER},A\n2,B\n".encode(), "looks like data"),
        (
            "twice.csv",
            f"{SECRET_TEXT},b,{SECRET_TEXT}\n1,2,3\n".encode(),
            "one name for columns 1, 3",
        ),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    text = refused(DataError, lambda: read_table(tmp_path / name))
    assert message in text and name in text


@pytest.mark.parametrize("name", ["folder.csv", "folder.parquet"])
def test_a_folder_is_no_table(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert "cannot be read" in refused(DataError, lambda: read_table(tmp_path / name))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([[1, 2]], "cannot be read from a list"),
        (np.zeros(3), r"shape (3,) is not a table"),
        ((np.zeros((3, 2)), np.zeros(4)), "y has shape (4,) where X has 3 rows"),
        ((pd.DataFrame({"y": [1]}), [1]), "X has a column 'y' already"),
        (
            pd.DataFrame([[1, 2]], columns=["a", "a"]),
            "the table has one name for columns 1, 2",
        ),
        (pd.DataFrame([[1, 2]], columns=[1, "1"]), "the table has one name for columns 1, 2"),
        (pd.DataFrame({("a", "b"): [1]}), "several levels"),
    ],
)
def test_bad_objects(source: Any, message: str) -> None:
    assert message in refused(DataError, lambda: read_table(source))


def test_names_of_arrays() -> None:
    x = np.zeros((2, 2))
    assert list(read_table((x, [0, 1]), names=["a", "b"], label="z").columns) == ["a", "b", "z"]
    assert list(read_table(x).columns) == ["x1", "x2"]
    assert "3 names for 2 columns" in refused(
        DataError, lambda: read_table(x, names=["a", "b", "c"])
    )


@pytest.mark.parametrize(
    "content",
    [
        "age, ward ,ill\n1, A, yes\n2,B,no\n",
        "\ufeffage,ward,ill\r\n1,A,yes\r\n2,B,no\r\n",
        '"age","ward","ill",\n1,"A",yes,\n2,B,no,\n',
        "\nage,ward,ill\n\n1,A,yes\n2,B,no\n",
    ],
)
def test_csv_dialects(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.CSV").write_bytes(content.encode())
    frame = read_table(str(tmp_path / "t.CSV"))
    assert frame.to_dict("list") == {"age": [1, 2], "ward": ["A", "B"], "ill": ["yes", "no"]}


def test_words_for_missing_cells(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,ward\n1,None\nNA,?\n,nan\n")
    frame = read_table(tmp_path / "t.csv")
    assert frame["age"].isna().tolist() == [False, True, True]
    assert frame["ward"].tolist()[:2] == ["None", "?"] and frame["ward"].isna().iloc[2]


@pytest.mark.parametrize("header", ["0,1,2", "id,2019,2020", ",a,b"])
def test_numbers_as_column_names(tmp_path: Path, header: str) -> None:
    (tmp_path / "t.csv").write_text(header + "\n5,6,7\n")
    names = [name or "Unnamed: 0" for name in header.split(",")]
    assert list(read_table(tmp_path / "t.csv").columns) == names


def test_parquet(tmp_path: Path) -> None:
    table().to_parquet(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.parquet"), table())
