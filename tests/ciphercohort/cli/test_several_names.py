"""Options of several names: each takes them repeated, or separated by commas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ciphercohort.cli.app import app
from ciphercohort.cli.options import each_name
from ciphercohort.job.config import SimulationConfig
from ciphercohort.results.predict import ReleasedModel
from parties.reader.infer import infer_schema
from parties.reader.schema import Schema
from protocols.errors import SchemaError
from sims.prepare import public_schema

runner = CliRunner()


def options(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from options(inner, (*path, name))
    for each in command.params:
        if isinstance(each, click.Option) and each.multiple and each.type is click.STRING:
            yield f"{' '.join(path)} {each.opts[0]}", (command, each)


@pytest.mark.parametrize(
    ("command", "option"),
    [pytest.param(*found, id=name) for name, found in options(get_command(app))],
)
def test_a_list_of_names(command: click.Command, option: click.Option) -> None:
    context = click.Context(command)
    for given in (("a,b", "c"), ("a, b ,c",), ("a", "b", "c")):
        assert option.process_value(context, given) == ["a", "b", "c"]
    assert option.process_value(context, ('"height, cm",b',)) == ["height, cm", "b"]
    assert "a,b" in str(option.help).lower() or "y1,y2" in str(option.help).lower()


def test_names_may_be_none() -> None:
    assert each_name(None) == each_name(()) == each_name(("",)) == []


FRAME = pd.DataFrame(
    {
        "id": np.arange(40) * 3 % 41, "age": np.arange(40) % 7, "day": ["2024-05-01"] * 40,
        "w": np.ones(40), "y": np.arange(40) % 2,
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"include": ["age", "id"], "exclude": ["id"]}, "column 'id' is to be left out"),
        ({"include": ["age", "w"], "weight": "w"}, "column 'w' is to be left out"),
        ({"dates": ["day"], "exclude": ["day", "id"]}, "column 'day' is to be left out"),
        ({"include": ["age"], "dates": ["day"]}, "date 'day' is not among the columns to include"),
        ({"exclude": ["y"]}, "label 'y' is among"),
        ({"exclude": ["id", "age", "day", "w"]}, "no column is left"),
        ({"include": ["agee"]}, "did you mean 'age'"),
    ],
)
def test_columns_are_chosen_without_contradiction(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        infer_schema(FRAME, "y", **given)


def test_schema_init_takes_commas(tmp_path: Path) -> None:
    sample = tmp_path / "s.csv"
    FRAME.to_csv(sample, index=False)
    words = ["schema", "init", str(sample), "--label", "y", "--id", "id", "--date", "day"]
    for more, left in (
        (["--exclude", "w,age"], ["day"]),
        (["--include", "age,day"], ["age", "day"]),
    ):
        done = runner.invoke(app, [*words, *more])
        assert done.exit_code == 0, done.output
        columns = json.loads(done.stdout)["columns"]
        assert [column["name"] for column in columns] == left


def test_predict_tells_of_categories_that_nobody_declared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    schema = Schema.from_dict(
        {
            "version": 1, "scaling": "range", "row_norm": None,
            "label": {"name": "y", "positive": "1", "negative": "0"},
            "columns": [{"kind": "categorical", "name": "ward", "categories": ["A", "B"]}],
        }
    )  # fmt: skip
    model = ReleasedModel(schema=schema, weights=np.zeros(3))
    model.predict(pd.DataFrame({"ward": ["A", "B"]}))
    assert not caplog.messages
    model.score(pd.DataFrame({"ward": ["A", "C", "D"], "y": [0, 1, 1]}))
    model.predict(pd.DataFrame({"ward": ["A", "C", "D"]}))
    (told,) = caplog.messages
    assert "2 cells of no declared category in 'ward': such rows count as of none" in told


def test_columns_are_chosen_in_a_schema_or_beside_none(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    infer_schema(FRAME[["age", "w", "y"]], "y").save(path)

    def read(**chosen: Any) -> Any:
        return public_schema(SimulationConfig(data="x.csv", label="y", schema=path, **chosen))

    assert read() == read(exclude=("id",)) == read(include=("age", "w"))
    for chosen in ({"exclude": ("age", "id")}, {"include": ("age",)}, {"include": ("id",)}):
        with pytest.raises(SchemaError, match="says otherwise of"):
            read(**chosen)
