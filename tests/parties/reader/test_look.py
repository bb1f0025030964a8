"""Warnings about one party's table, and in a simulation about all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciphercohort.job.config import SimulationConfig
from parties.reader.look import cohort_warnings, party_warnings
from parties.reader.schema import CategoricalColumn, Label, NumericColumn, Schema
from parties.reader.shard import Shard, encode_shard
from sims.prepare import prepare

SCHEMA = Schema(
    columns=(
        NumericColumn(name="age", low=0, high=100),
        CategoricalColumn(name="ward", categories=("A", "B")),
    ),
    label=Label(name="died", positive="1", negative="0"),
    scaling="range",
)


def table(rows: int = 60, seed: int = 1, **changes: Any) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    cells = {
        "age": rng.normal(50, 10, rows),
        "ward": np.where(np.arange(rows) % 2, "A", "B"),
        "died": np.arange(rows) // 2 % 2,
    }
    return pd.DataFrame(cells | changes)


def shard(*args: Any, **changes: Any) -> Shard:
    return encode_shard(table(*args, **changes), SCHEMA)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (table(), []),
        (table(3), ["3 rows are fewer than the 4 columns"]),
        (table(died=1), ["all rows have one value of label 'died'"]),
        (table(ward=["A"] * 58 + ["B"] * 2), ["fewer than 5 rows have 'ward=B': merge rare"]),
        (table(ward=["A"] * 55 + ["B"] * 5), []),
        (table(ward="A"), []),
    ],
)
def test_one_party(frame: pd.DataFrame, words: list[str]) -> None:
    found = party_warnings(encode_shard(frame, SCHEMA))
    assert len(found) == len(words)
    assert all(text in given for text, given in zip(words, found, strict=True))


def test_parties_alike_give_no_warning() -> None:
    alike = {f"h{k}": shard(60, seed=k) for k in range(8)}
    assert cohort_warnings(alike, "even") == []


def test_another_unit_at_one_party() -> None:
    """Said of that party alone."""
    alike = {f"h{k}": shard(seed=k) for k in range(8)}
    mixed = {**alike, "east": shard(age=90.0)}
    (found,) = cohort_warnings(mixed, "even")
    assert "at 'east': 'age': look for another unit" in found


def test_a_few_rows_are_no_shift() -> None:
    """Their mean is far off by chance; more than five standard errors it is not."""
    few = {"north": shard(500), "south": shard(3, seed=4, age=62.0)}
    assert not any("differ" in words for words in cohort_warnings(few, "even"))


def test_sixty_eight_hospitals() -> None:
    """A column of many values is no column of sites: it is said, with parties of one class."""
    frame = table(680, town=np.repeat([f"t{k}" for k in range(68)], 10))
    frame.loc[frame["town"] == "t3", "died"] = 1
    config = SimulationConfig(
        data=frame, label="died", split="by:town", parties=None, test_share=0.1
    )
    notes = prepare(config, np.random.default_rng(1)).notes
    many = [note for note in notes if "makes 68 parties, the smallest of" in note]
    assert many and "is that column one of sites?" in many[0]
    assert any(note.startswith("rows of one class only at") and "'t3'" in note for note in notes)
