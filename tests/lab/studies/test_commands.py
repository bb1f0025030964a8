"""Every study runs as a command, and leaves the files, columns and figures that it documents."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sims.lab.studies import accuracy, aggregation, epsilon
from tests.lab.papers.test_p000 import frame

AGGREGATION = (
    *("arm", "parties", "features", "round", "seconds", "cpu_seconds", "coordinator_seconds"),
    *("party_seconds", "bytes_down", "bytes_up"),
)


def run(main: Callable[..., None], flags: str, **values: Any) -> str:
    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, [flag.format(**values) for flag in flags.split()])
    assert done.exit_code == 0, done.output
    return done.stdout.replace("\r", "")


def test_aggregation(tmp_path: Path) -> None:
    out, arms = tmp_path / "new", ["encrypted sum", "plain sum", "Flower SecAgg+"]
    run(aggregation.main, "--parties 3 --features 4 --rounds 2 --sweep --out {out}", out=out)
    names = {path.name for path in out.iterdir()}
    files = {"rounds.csv", "table.txt", "aggregation.json"}
    assert names == {*files, "aggregation.svg", "aggregation.png"}
    rows = list(csv.DictReader((out / "rounds.csv").read_text().splitlines()))
    assert len(rows) == 12 and tuple(rows[0]) == AGGREGATION
    assert all(value for row in rows for value in row.values())
    assert {row["arm"] for row in rows} == set(arms)
    assert (out / "aggregation.svg").read_text().startswith("<?xml")
    assert (out / "aggregation.png").read_bytes().startswith(b"\x89PNG")
    text = (out / "table.txt").read_text()
    assert all(words in text for words in (*arms, "2 parties, 4 values", "3 parties, 4 values"))
    content = json.loads((out / "aggregation.json").read_text())
    assert [r["arm"] for r in content["results"]] == 2 * arms
    assert content["secagg"]["threshold"] == 7


def test_accuracy(tmp_path: Path) -> None:
    data = tmp_path / "tiny.csv"
    frame(120).to_csv(data, index=False)
    flags = "--data {data} --label y --seeds 4 --splits 2 --epsilon 4 --delta 1e-2 --parties 3"
    (found,) = json.loads(run(accuracy.main, f"{flags} --update gd --json", data=data))
    assert (found["method"], found["seeds"]) == ("ridge", 4)
    assert "always one label" in run(accuracy.main, f"{flags} --update gd", data=data)


def test_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    case = epsilon.Case(protocol="secure-aggregation", update="scd", schedule="cyclic")
    monkeypatch.setattr(epsilon, "cases", lambda: iter([case]))
    line = json.loads(run(epsilon.main, "--runs 20000 --json"))
    assert line["holds"] and line["claimed"] >= line["accounted"] * (1 - 1e-6)
    assert "scd" in run(epsilon.main, "--runs 20000")
