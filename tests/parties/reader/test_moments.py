"""Dates, times and durations in a sample: named, with the cure, in every format and command."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from parties.reader.infer import infer_schema
from parties.reader.moments import CURE, holds_moments
from parties.reader.schema import NumericColumn
from protocols.errors import SchemaError
from tests.sims.model_runs import cohort

DAYS = [datetime(2024, 1, 1, 8) + timedelta(days=7 * k, minutes=13 * k) for k in range(60)]
FORMS = {
    "%Y-%m-%d": True, "%Y/%m/%d": True, "%d.%m.%Y": True, "%m/%d/%y": True, "%d-%m-%Y": True,
    "%d %b %Y": True, "%B %d, %Y": True, "%d-%b-%Y": True, "%Y-%m-%d %H:%M:%S": True,
    "%Y-%m-%dT%H:%M:%SZ": True, "%d.%m.%Y %H:%M": True, "%H:%M": True, "%I:%M %p": True,
    "ward %d": False, "%A": False, "%b": False,
}  # fmt: skip


def texts(form: str) -> list[str]:
    return [day.strftime(form) for day in DAYS]


def frame(cells: Any) -> pd.DataFrame:
    age = np.linspace(20, 90, len(cells)).round(1)
    return pd.DataFrame({"age": age, "admitted": cells, "died": np.arange(len(cells)) % 2})


@pytest.mark.parametrize(("form", "is_moment"), FORMS.items())
def test_what_is_a_date(form: str, is_moment: bool) -> None:
    found = set(texts(form))
    assert holds_moments(found) == is_moment
    assert holds_moments({*found, "unknown"}) == is_moment


@pytest.mark.parametrize("others", [["1:10", "1:20", "1:40"], ["120/80", "90/60"], ["1.2", "3.4"]])
def test_what_is_none(others: list[str]) -> None:
    assert not holds_moments(others)


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%Y", "%d %b %Y"])
def test_few_are_kept_and_named_and_many_are_refused_with_the_cure(form: str) -> None:
    with pytest.warns(UserWarning, match="'admitted' holds dates or times") as caught:
        schema = infer_schema(frame(texts(form)), "died")
    assert CURE in str(caught[0].message) and "60 different" in str(caught[0].message)
    assert sum(column.name == "admitted" for column in schema.columns) == 1
    many = [(date(2020, 1, 1) + timedelta(days=k)).strftime(form) for k in range(400)]
    with pytest.raises(SchemaError, match="'admitted' holds 400 different dates") as refused:
        infer_schema(frame(many), "died")
    assert CURE in str(refused.value)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "xlsx"])
def test_every_format_says_it(suffix: str, tmp_path: Path) -> None:
    """A file of texts warns, one with dates of its own is refused: by the same cure."""
    path = tmp_path / f"rows.{suffix}"
    rows = frame(pd.to_datetime(DAYS) if suffix != "csv" else texts("%Y-%m-%d"))
    {"csv": rows.to_csv, "parquet": rows.to_parquet, "xlsx": rows.to_excel}[suffix](
        path, index=False
    )
    shown = cohort("schema", "init", path, "--label", "died", "--out", tmp_path / "schema.json")
    assert shown.exit_code == (0 if suffix == "csv" else 2)
    said = " ".join(shown.output.split())
    assert said.count("'admitted' holds dates") == 1 and CURE in said
    if suffix == "csv":
        for words in (
            ("show", tmp_path / "schema.json"),
            ("check", tmp_path / "schema.json", path),
        ):
            again = " ".join(cohort("schema", *words).output.split())
            assert again.count("'admitted' holds dates") == 1 and CURE in again
        run = cohort(
            "simulate", "--data", path, "--label", "died", "--protocol", "secure-aggregation",
            "--no-privacy", "--iterations", 2, "--exclude", "age",
        )  # fmt: skip
        assert " ".join(run.output.split()).count("'admitted' holds dates") == 1, run.output


def test_the_cure_cures() -> None:
    days = pd.Series(pd.to_datetime(DAYS)) - pd.Timestamp("2020-01-01")
    schema = infer_schema(
        frame(days.dt.days.sample(frac=1, random_state=1).clip(lower=1475).to_numpy()), "died"
    )
    (column,) = (each for each in schema.columns if each.name == "admitted")
    assert isinstance(column, NumericColumn)
    left_out = infer_schema(frame(texts("%Y-%m-%d")), "died", exclude=["admitted"])
    assert [each.name for each in left_out.columns] == ["age"]
