"""Tables read in batches: the same rows, counts and messages whatever the batches are."""

from __future__ import annotations

import gzip
import tracemalloc
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from parties.reader.cells import text_cells
from parties.reader.schema import CategoricalColumn, Label, NumericColumn, Offset, Schema, Weight
from parties.reader.shard import encode_shard
from parties.reader.views import (
    by_range,
    encode_with_views,
    missing_schema,
    shard_by_range,
)
from protocols.errors import DataError, SchemaError
from protocols.names import EMPTY_VIEW as MISSING
from protocols.names import RANGES_VIEW as RANGES
from tests.parties.reader import test_malformed

ROWS = 60
SCHEMA = Schema(
    columns=(
        NumericColumn(name="count", low=0, high=40, typical=10, spread=9),
        NumericColumn(name="dose", low=0, high=10, typical=2, spread=1, missing="indicator"),
        NumericColumn(name="seen", low=0, high=1, typical=1, spread=1, missing="typical"),
        CategoricalColumn(name="code", categories=("01", "02", "A1")),
        CategoricalColumn(name="ward", categories=("1", "2"), missing="indicator"),
        CategoricalColumn(name="moved", categories=("True", "False"), missing="indicator"),
    ),
    label=Label(name="died", positive="yes", negative="no"),
    scaling="standard",
    row_norm=1.5,
    weight=Weight(name="times", bound=4),
    offset=Offset(name="years", low=1, high=9, log=True),
)
SIZES = (1, 7, 1000)


def table() -> pd.DataFrame:
    """Columns whose kind a batch alone does not tell; batches of 7 rows without and with gaps."""
    k = np.arange(ROWS)
    return pd.DataFrame(
        {
            "count": np.where(k < 30, k, k / 4),  # whole numbers first
            "dose": np.where(k // 7 == 3, np.nan, k / 8),
            "seen": np.where(k < 20, 1.0, np.where(k % 2, np.nan, 0.0)),
            "code": np.where(k < 50, np.where(k % 2, "01", "02"), "A1"),  # texts of digits first
            "ward": [[1, 2, None, 3][i % 4 if i > 14 else i % 2] for i in k],
            "moved": pd.Series([True, False, None], dtype=object).iloc[
                np.where(k < 21, k % 2, k % 3)
            ].to_numpy(),
            "times": k % 5,
            "years": 1 + k % 9,
            "died": np.where(k % 3, "yes", "no"),
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found, frame = tmp_path_factory.mktemp("tables"), table()
    text = frame.to_csv(index=False)
    (found / "t.csv").write_text(text)
    # Quotation marks, blank lines above the names and at the end, a blank column at the end.
    loose = text.replace("\n", ",\n").replace("A1", '"A1"')
    (found / "loose.csv").write_text(f"\n{loose}\n \n")
    (found / "t.tsv.gz").write_bytes(gzip.compress(frame.to_csv(index=False, sep="\t").encode()))
    frame.to_parquet(found / "t.parquet", row_group_size=25)
    frame.to_excel(found / "t.xlsx", index=False)
    names = "".join(f"@attribute {name} string\n" for name in frame)
    lines = text.split("\n", 1)[1].replace(",,", ",?,").replace(",,", ",?,")
    (found / "t.arff").write_text(f"{names}@data\n{lines}")
    sql = f"SELECT * FROM '{found}/t.parquet' ORDER BY ALL"
    (found / "t.toml").write_text(f'connection = "duckdb:"\nquery = "{sql}"\n')
    return found


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "name", ["t.csv", "loose.csv", "t.tsv.gz", "t.parquet", "t.xlsx", "t.arff", "t.toml", ""]
)
def test_the_same_shard(name: str, size: int, folder: Path) -> None:
    frame = table()
    if name == "t.toml":
        frame = frame.sort_values(list(frame), na_position="last")
    due = encode_shard(frame, SCHEMA, batch_rows=ROWS)
    found = encode_shard(folder / name if name else frame, SCHEMA, batch_rows=size)
    assert found.fingerprint() == due.fingerprint()
    assert found.counts == due.counts
    assert due.counts.filled and due.counts.unknown and due.counts.clamped


def said(path: Path, size: int) -> str:
    with pytest.raises((DataError, SchemaError)) as caught:
        encode_shard(path, test_malformed.SCHEMA, strict=True, batch_rows=size)
    return f"{type(caught.value).__name__}: {caught.value}"


@pytest.mark.parametrize("case", test_malformed.CASES)
def test_the_same_message(case: str, tmp_path: Path) -> None:
    name, content, _ = test_malformed.CASES[case]
    (tmp_path / name).write_bytes(content)
    assert said(tmp_path / name, 1) == said(tmp_path / name, 2) == said(tmp_path / name, 1000)


def test_what_is_wrong_is_said_of_all_batches(tmp_path: Path) -> None:
    """Row numbers without a file's own, counts, and causes that later batches alone would have."""
    frame = pd.DataFrame(
        {
            "age": [41.0, 52, None, 60, None],
            "dose": ["1,5", "2 mg", "1", "2", "3 mg"],
            "ward": ["C", "A", "A", " b", "A"],
            "died": ["maybe", "yes", "no", "no", "YES"],
        }
    )
    frame.to_parquet(tmp_path / "t.parquet")
    words = said(tmp_path / "t.parquet", 1)
    assert words == said(tmp_path / "t.parquet", 2) == said(tmp_path / "t.parquet", 1000)
    assert "2 of 5 rows (rows 3, 5)" in words and "3 of 5 rows (rows 1, 2, 5): correct or" in words
    assert "in 2 of 5 rows (rows 1, 5): correct them or the schema" in words
    frame.assign(age=1.0, dose=1.0, died="no").to_parquet(tmp_path / "t.parquet")
    assert "are of no declared category (rows 1, 4): correct" in said(tmp_path / "t.parquet", 1)


def test_memory_is_that_of_the_rows(tmp_path: Path) -> None:
    rows = 16_000
    frame = pd.DataFrame(np.random.default_rng(1).random((rows, 6)), columns=list("abcdef"))
    frame.assign(y=np.arange(rows) % 2).to_csv(tmp_path / "t.csv", index=False)
    columns = tuple(NumericColumn(name=name, low=0, high=1) for name in "abcdef")
    schema = Schema(columns=columns, label=Label(name="y", positive="1", negative="0"),
                    scaling="range")  # fmt: skip

    tracemalloc.start()
    try:
        encode_shard(tmp_path / "t.csv", schema, batch_rows=500)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Once in parts, once whole, whose pages are not used before the parts go.
    assert peak < 2.6 * rows * 8 * 8


def test_views_are_of_the_rows_as_they_were_at_the_start(tmp_path: Path) -> None:
    path, frame = tmp_path / "t.csv", table()
    frame.to_csv(path, index=False)
    shard, views = encode_with_views(path, SCHEMA)
    assert shard.fingerprint() == encode_shard(path, SCHEMA).fingerprint()
    due = {private: shard_by_range(path, SCHEMA, private=private) for private in (False, True)}
    path.unlink()
    empty = views.find(MISSING, missing_schema(SCHEMA).digest())
    held = frame[["dose", "seen", "ward", "moved"]]
    assert empty is not None
    np.testing.assert_array_equal(empty._value.x[:, :-1] == 1, held.isna())
    for private, rows in due.items():
        found = views.find(RANGES, by_range(SCHEMA, private=private).digest())
        assert found is not None and found.fingerprint() == rows.fingerprint()


@pytest.mark.parametrize(
    ("cells", "odd", "categories"),
    [
        (("TRUE", "FALSE"), "unknown", ("True", "False")),
        (("1.0", "2.0"), "?", ("1", "2")),
        (("01", "02"), "?", ("01", "02")),
        (("0.1", "1e3"), "?", ("0.1", "1000")),
        (("1", "2"), "True", ("1", "2")),
    ],
)
def test_a_cell_says_nothing_of_other_rows(
    tmp_path: Path, cells: tuple[str, str], odd: str, categories: tuple[str, ...]
) -> None:
    """Epsilon is about one row: a text in a column of numbers may not change what those are."""
    schema = Schema(
        columns=(CategoricalColumn(name="code", categories=categories),),
        label=Label(name="died", positive="yes", negative="no"),
        scaling="range",
    )
    path, found = tmp_path / "table.csv", []
    for last in (cells[0], odd):
        rows = [f"{cells[k % 2]},{'yes' if k % 3 else 'no'}" for k in range(20)]
        path.write_text("\n".join(["code,died", *rows, f"{last},no"]) + "\n", encoding="utf-8")
        found += [encode_shard(path, schema, batch_rows=size).x for size in SIZES]
    usual, others = found[: len(SIZES)], found[len(SIZES) :]
    assert all((x == usual[0]).all() for x in usual)
    assert all((x[:-1] == usual[0][:-1]).all() and not x[-1, :-1].any() for x in others)
    assert usual[0][:, :-1].sum() == len(usual[0])


def test_a_cell_says_nothing_of_other_rows_empty_cells(tmp_path: Path) -> None:
    """A whole number beyond 2^63 makes pandas read a column's empty cells as texts."""
    column = CategoricalColumn(name="code", categories=("1", "2"), missing="indicator")
    label = Label(name="died", positive="yes", negative="no")
    schema = Schema(columns=(column,), label=label, scaling="range")
    found = []
    for last in ("1", str(2**63)):
        path = tmp_path / "table.csv"
        path.write_text("code,died\n" + ",yes\n1,no\n" * 9 + f"{last},no\n", encoding="utf-8")
        found += [encode_shard(path, schema, batch_rows=size).x[:-1] for size in SIZES]
    assert all((x == found[0]).all() for x in found)
    assert np.unique(found[0], axis=0).shape[0] == 2


@pytest.mark.parametrize("first", ["1.0", "1", "1.00"])
def test_decimals_that_are_equal_are_one_category(first: str) -> None:
    cells = pd.Series([Decimal(text) for text in (first, "1", "1.0", "2")], dtype=object)
    codes, texts = text_cells(cells)
    assert [texts[code] for code in codes] == ["1", "1", "1", "2"]


def test_true_and_1_are_two_categories_whichever_comes_first() -> None:
    """They are equal to Python."""
    for cells in ([True, 1, 0], [1, True, 0]):
        codes, texts = text_cells(pd.Series(cells, dtype=object))
        assert [texts[code] for code in codes] == [str(cell) for cell in cells]


def test_categories_that_a_column_of_numbers_cannot_tell_apart_are_refused() -> None:
    """Or one cell would decide which of them all others are."""
    column = CategoricalColumn(name="code", categories=("01", "1"))
    schema = Schema(columns=(column,), label=Label(name="died", positive="yes", negative="no"))
    with pytest.raises(SchemaError, match="the same number"):
        encode_shard(pd.DataFrame({"code": ["01"], "died": ["yes"]}), schema)
