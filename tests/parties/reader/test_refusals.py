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

from parties.reader.cells import cell_text, missing_cells
from parties.reader.schema import CategoricalColumn, Label, NumericColumn, Schema
from parties.reader.shard import encode_scored, encode_shard
from parties.reader.table import read_table
from protocols.errors import CohortError, DataError, SchemaError
from tests.parties.reader import test_malformed

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
        ({"age": [1, "3,5", SECRET_TEXT, ""]}, "in 2 of 4 rows (rows 2, 3)"),
        ({"age": [1, [SECRET_TEXT], {}, 4]}, "'age' has text where a number is due in 2 of 4"),
        (
            {"age": np.array([1, 10**400, 3, 4], dtype=object)},
            "'age' is infinite or too large for a number in 1 of 4 rows (row 2)",
        ),
        ({"age": pd.date_range("1986-07-05", periods=4)}, "dates: convert them to numbers"),
        ({"age": np.full(4, 1j)}, "'age' has text where a number is due in 4 of 4 rows"),
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
    text = refused(DataError, lambda: encode_scored(bad, SCHEMA)[0])
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
    assert encode_scored(table().drop(columns="ill"), SCHEMA)[0].shape == (4, 4)


def test_empty_shard() -> None:
    assert "0 rows" in refused(DataError, lambda: encode_shard(table().head(0), SCHEMA))
    assert "0 rows" in refused(DataError, lambda: encode_scored(table().head(0), SCHEMA)[0])


def test_strict_refuses_what_is_clamped_otherwise() -> None:
    bad = table(age=[1, SECRET_NUMBER, -3, 4], ward=["A", SECRET_TEXT, "B", "B"])
    assert encode_shard(bad, SCHEMA).counts.summary()
    text = refused(DataError, lambda: encode_shard(bad, SCHEMA, strict=True))
    assert "2 of 4 values of column 'age' are outside its range" in text
    assert "1 of 4 values of column 'ward' are of no declared category" in text


@pytest.mark.parametrize("case", test_malformed.CASES)
def test_bad_files(tmp_path: Path, case: str) -> None:
    name, content, message = test_malformed.CASES[case]
    (tmp_path / name).write_bytes(content)
    schema = test_malformed.SCHEMA
    assert message in refused(CohortError, lambda: encode_shard(tmp_path / name, schema))


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_no_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    text = refused(DataError, lambda: read_table(path))
    assert "does not exist" in text and name in text
    path.mkdir()
    assert "cannot be read" in refused(DataError, lambda: read_table(path))


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
    assert list(read_table((x, [0, 1]), label="z").columns) == ["x1", "x2", "z"]
    assert list(read_table(x).columns) == ["x1", "x2"]


@pytest.mark.parametrize(
    "content",
    [
        "age, ward ,ill\n1, A, yes\n2,B,no\n",
        "\ufeffage,ward,ill\r\n1,A,yes\r\n2,B,no\r\n",
        '"age","ward","ill",\n1,"A",yes,\n2,B,no,\n',
        "\nage,ward,ill\n1,A,yes\n2,B,no\n\n",
    ],
)
def test_csv_dialects(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.CSV").write_bytes(content.encode())
    frame = read_table(str(tmp_path / "t.CSV"))
    assert list(frame) == ["age", "ward", "ill"]
    found = [[cell_text(cell) for cell in frame[name]] for name in frame]
    assert found == [["1", "2"], ["A", "B"], ["yes", "no"]]


def test_words_for_missing_cells(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,ward\n1,None\nNA,?\n,nan\n")
    frame = read_table(tmp_path / "t.csv")
    assert missing_cells(frame["age"]).tolist() == [False, True, True]
    assert [cell_text(cell) for cell in frame["ward"]] == ["None", "?", None]


@pytest.mark.parametrize("header", ["0,1,2", "id,2019,2020", ",a,b"])
def test_numbers_as_column_names(tmp_path: Path, header: str) -> None:
    (tmp_path / "t.csv").write_text(header + "\n5,6,7\n")
    names = [name or "Unnamed: 0" for name in header.split(",")]
    assert list(read_table(tmp_path / "t.csv").columns) == names


def test_parquet(tmp_path: Path) -> None:
    table().to_parquet(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.parquet"), table())
