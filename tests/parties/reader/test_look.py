"""Warnings about one party's table, and in a simulation about all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import ciphercohort
from ciphercohort.cli.app import app
from ciphercohort.job.config import SimulationConfig, configured
from ciphercohort.results.predict import ReleasedModel
from parties.agent.owner import Owner
from parties.agent.settings import Settings
from parties.agent.setup import init_party
from parties.reader.look import cohort_warnings, party_warnings
from parties.reader.schema import CategoricalColumn, Label, NumericColumn, Schema
from parties.reader.shard import Shard, encode_shard
from protocols.exchange.cards import Invitation
from sims.prepare import prepare
from sims.study import describe

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


ODD = Schema(
    columns=(
        NumericColumn("tx", 0.0, 1.0, binary=True),
        CategoricalColumn("ward", ("A", "B")),
        NumericColumn("age", 0.0, 100.0),
    ),
    label=Label("died", "1", "0"),
    scaling="range",
)
DOUBTS = {
    "ward": ("?", "2 cells of no declared category in 'ward': such rows count as of none"),
    "tx": (0.4, "2 cells between the two numbers in 'tx': they count as the nearer one"),
}


@pytest.mark.parametrize("column", DOUBTS)
@pytest.mark.parametrize(
    "way",
    [
        "schema check",
        "party init",
        "party start",
        "simulate",
        "evaluate",
        "predict",
        "describe",
        "private",
    ],
)
def test_cells_of_no_declared_value_are_told_wherever_rows_come_in(
    way: str, column: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To whoever has the rows, with the column and what becomes of them; of fitting ones, not."""
    odd, words = DOUBTS[column]
    rows = table().assign(tx=np.arange(60) % 2)
    schema, data = tmp_path / "schema.json", tmp_path / "rows.csv"
    ODD.save(schema)
    for is_odd in (False, True):
        if is_odd:
            rows[column] = rows[column].astype(object)
            rows.loc[[3, 8], column] = odd
        rows.to_csv(data, index=False)
        caplog.clear()
        told = entered(way, tmp_path / str(is_odd), schema, data, rows, caplog) + caplog.text
        # A check lists kinds and columns.
        due = (
            words.split(":")[0].split(" ", 1)[1].split(" in ")[0]
            if way == "schema check"
            else words
        )
        assert (due in told) is is_odd, told


def entered(
    way: str, folder: Path, schema: Path, data: Path, rows: pd.DataFrame, caplog: Any
) -> str:
    """What one way of reading rows prints."""
    folder.mkdir()
    if way == "schema check":
        done = CliRunner().invoke(app, [*way.split(), str(schema), str(data)])
        assert done.exit_code == 0
        return done.output.replace("\n", " ")
    if way.startswith("party"):
        path, own, passphrase = folder / "invitation.json", folder / "a", "a long passphrase"
        invitation = Invitation(
            coordinator_key="11" * 32, superlink="centre:9092", ca="ca", schema=ODD.to_dict()
        )
        path.write_text(invitation.to_json())
        init_party(own, path, passphrase, name="a", data=data)
        if way == "party start":
            caplog.clear()
            Owner.of(Settings.load(own), passphrase)
        return ""
    if way == "simulate":
        own = configured(data=data, schema=schema, parties=2, no_privacy=True, test_share=0)
        return " ".join(prepare(own, np.random.default_rng(1)).notes)
    model = ReleasedModel(schema=ODD, weights=np.zeros(ODD.num_features))
    if way in ("describe", "private"):
        found = describe(data, schema=schema, epsilon=1.0 if way == "private" else None)
        own_rows = [str(each) for each in found.tables()]
        assert way == "describe" or not any("cells" in each for each in own_rows)
        return " ".join(" ".join(each.split()) for each in own_rows)
    if way == "predict":
        model.predict(rows)
    else:
        ciphercohort.evaluate(model, data=data, parties=2, epsilon=None)
    return ""
