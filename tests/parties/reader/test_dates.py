"""Columns of days: what a cell means, what a sample is described as, and what a model says."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciphercohort import simulate
from parties.reader.cells import days_since
from parties.reader.infer import infer_schema
from parties.reader.schema import DateColumn, Label, Schema
from parties.reader.shard import encode_shard
from parties.reader.views import by_range, cells_schema
from protocols.errors import DataError, SchemaError
from tests.sims.model_runs import cohort

ORIGIN = date(2020, 1, 1)
CAME = DateColumn("came", 0.0, 800.0, 400.0, 200.0, origin="2020-01-01")


def schema_of(column: DateColumn) -> Schema:
    return Schema(columns=(column,), label=Label("y", "1", "0"), scaling="range")


@pytest.mark.parametrize(
    "cell",
    [
        date(2021, 3, 4), datetime(2021, 3, 4, 23, 59), pd.Timestamp(2021, 3, 4, 5),
        datetime(2021, 3, 4, 23, tzinfo=timezone(timedelta(hours=-5))),
        np.datetime64("2021-03-04"), "2021-03-04", " 2021-03-04 ", "2021-03-04 13:45:00",
        "2021-03-04T13:45", "2021-03-04T13:45:00.25Z", "2021-03-04 13:45:00+02:00",
    ],
)  # fmt: skip
def test_a_day_is_its_number_whatever_carries_it(cell: Any) -> None:
    assert days_since(cell, ORIGIN) == (pd.Timestamp("2021-03-04") - pd.Timestamp(ORIGIN)).days
    assert days_since(cell, date(2021, 3, 5)) == -1


@pytest.mark.parametrize(
    "cell",
    [
        "04.03.2021", "3/4/2021", "2021-13-01", "2021-02-30", "2021-3-4", "20210304", "2021",
        "yesterday", 44259, 44259.0, True, timedelta(days=3), b"2021-03-04", "2021-03-04x", "0",
    ],
)  # fmt: skip
def test_what_is_no_day_is_refused(cell: Any) -> None:
    assert days_since(cell, ORIGIN) is None
    with pytest.raises(DataError, match="has no date where one is due in 1 of 2 rows .*2024-05-31"):
        encode_shard(pd.DataFrame({"came": ["2020-05-01", cell], "y": [1, 0]}), schema_of(CAME))


@pytest.mark.parametrize("cell", [None, "", "NA", math.nan, pd.NaT])
def test_an_empty_cell_is_missing(cell: Any) -> None:
    assert math.isnan(days_since(cell, ORIGIN) or 0.0)


def test_rows_hold_days_scaled_by_public_figures() -> None:
    frame = pd.DataFrame({"came": ["2020-01-01", "2021-02-04", "2030-01-01"], "y": [1, 0, 1]})
    shard = encode_shard(frame, schema_of(CAME))
    assert shard.x[:, 0].tolist() == [-1.0, 0.0, 1.0]
    assert shard.counts.outside == {"came": 1}


def test_the_schema_says_it_to_everybody_by_the_same_digest() -> None:
    schema = schema_of(CAME)
    again = Schema.from_json(schema.to_json())
    assert again == schema and again.digest() == schema.digest()
    assert '"kind": "date"' in schema.to_json() and '"origin": "2020-01-01"' in schema.to_json()
    moved = schema_of(DateColumn("came", 0.0, 800.0, 400.0, 200.0, origin="2020-01-02"))
    assert moved.digest() != schema.digest()
    for view in (by_range(schema), cells_schema(schema)):
        assert isinstance(view.columns[0], DateColumn) and view.columns[0].first == ORIGIN
    with pytest.raises(SchemaError, match="origin='1.1.2020' of column 'came' is no day"):
        DateColumn("came", 0.0, 800.0, origin="1.1.2020")
    with pytest.raises(SchemaError, match="origin=.* is no day"):
        Schema.from_json(schema.to_json().replace("2020-01-01", "soon"))


def sample(rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    days = rng.integers(0, 900, rows)
    died = rng.random(rows) < 1 / (1 + np.exp(-(days - 450) / 200))
    came = [(date(2019, 5, 1) + timedelta(days=int(k))).isoformat() for k in days]
    frame = pd.DataFrame({"patient_id": np.arange(rows), "came": came, "days": days})
    return frame.assign(age=rng.integers(20, 90, rows), died=died.astype(int))


@pytest.mark.parametrize("suffix", ["csv", "parquet", "xlsx"])
def test_a_sample_is_described_in_days(suffix: str, tmp_path: Path) -> None:
    path, out = tmp_path / f"rows.{suffix}", tmp_path / "schema.json"
    frame = sample().drop(columns="days")
    if suffix != "csv":
        frame["came"] = pd.to_datetime(frame["came"])
    write = {"csv": frame.to_csv, "parquet": frame.to_parquet, "xlsx": frame.to_excel}[suffix]
    write(path, index=False)
    asked = ("--label", "died", "--date", "came", "--id", "patient_id", "--out", out)
    shown = cohort("schema", "init", path, *asked)
    said = " ".join(shown.output.split())
    assert shown.exit_code == 0, said
    assert "patient_id is in no row that is encoded" in said and "holds dates" not in said
    came, age = Schema.load(out).columns
    assert isinstance(came, DateColumn) and came.origin == "2019-01-01" and age.name == "age"
    assert came.low <= 120 and 1019 <= came.high <= 1100
    table = cohort("schema", "show", out).output
    assert "days since" in table and "2019-01-01" in table
    assert cohort("schema", "check", out, path).exit_code == 0


def test_what_is_to_be_a_date_and_is_none_is_refused_by_count() -> None:
    frame = sample().assign(came=["soon", *sample().came[1:]])
    with pytest.raises(SchemaError, match="'came' is to hold dates, and 1 of its 300 cells hold"):
        infer_schema(frame, "died", dates=["came"], exclude=["patient_id"])
    with pytest.raises(SchemaError, match="'cane' is not in the table.*'came'"):
        infer_schema(frame, "died", dates=["cane"])


def test_only_the_columns_that_are_named_are_used(tmp_path: Path) -> None:
    """By a sample's description, and by a simulation that describes its own rows."""
    frame, out = sample(), tmp_path / "schema.json"
    frame.to_csv(tmp_path / "rows.csv", index=False)
    asked = ("--label", "died", "--include", "age", "--include", "days")
    cohort("schema", "init", tmp_path / "rows.csv", *asked, "--out", out)
    assert [column.name for column in Schema.load(out).columns] == ["days", "age"]
    quick: dict[str, Any] = {"protocol": "secure-aggregation", "update": "gd", "iterations": 1}
    run = simulate(data=frame, label="died", include="age", no_privacy=True, **quick)
    assert [column.name for column in run.schema.columns] == ["age"]
    built_in = simulate(include="mean radius,mean texture", no_privacy=True, **quick)
    assert len(built_in.schema.columns) == 2


def test_a_model_of_dates_is_that_of_their_days(tmp_path: Path) -> None:
    """The coefficient is a day's."""
    frame, found = sample(), {}
    quick: dict[str, Any] = {"protocol": "secure-aggregation", "no_privacy": True, "seed": 1}
    for name, dates in (("came", ["came"]), ("days", [])):
        schema = infer_schema(frame, "died", include=[name, "age"], dates=dates, row_norm=None)
        schema.save(tmp_path / name)
        run = simulate(data=frame, schema=tmp_path / name, **quick)
        found[name] = run.inference
    for one, other in zip(found["came"].rows(), found["days"].rows(), strict=True):
        if one["name"] != "intercept":
            assert one["coef"] == pytest.approx(other["coef"], rel=1e-6)
            assert one["se"] == pytest.approx(other["se"], rel=1e-4)  # of the last point
