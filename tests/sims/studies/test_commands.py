"""Every study runs as a command, and leaves the files, columns and figures that it documents."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from sims.studies import accuracy, aggregation, epsilon


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def aggregation_says(out: Path, text: str) -> None:
    arms = ["encrypted sum", "plain sum", "Flower SecAgg+"]
    assert all(arm in text for arm in arms)
    assert "2 parties, 4 values" in text and "3 parties, 4 values" in text
    assert {row["arm"] for row in rows_of(out / "rounds.csv")} == set(arms)
    content = json.loads((out / "aggregation.json").read_text())
    assert [r["arm"] for r in content["results"]] == 2 * arms
    assert content["secagg"]["threshold"] == 7


AGGREGATION = (
    *("arm", "parties", "features", "round", "seconds", "cpu_seconds", "coordinator_seconds"),
    *("party_seconds", "bytes_down", "bytes_up"),
)


@dataclass(frozen=True)
class Study:
    """flags: tiny ones; tables: rows and columns by file; figures: stems; text: shown as well.

    says: checks what the files hold.
    """

    main: Callable[..., None]
    flags: str
    tables: dict[str, tuple[int, tuple[str, ...]]]
    figures: tuple[str, ...]
    text: str
    says: Callable[[Path, str], None]
    others: tuple[str, ...] = ()


STUDIES = {
    "aggregation": Study(
        aggregation.main,
        "--parties 3 --features 4 --rounds 2 --sweep",
        {"rounds.csv": (12, AGGREGATION)},
        ("aggregation",),
        "table.txt",
        aggregation_says,
        ("aggregation.json",),
    ),
}


def run(main: Callable[..., None], flags: str, **values: Any) -> str:
    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, [flag.format(**values) for flag in flags.split()])
    assert done.exit_code == 0, done.output
    return done.stdout.replace("\r", "")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    x = rng.uniform([0, -3, 10], [1, 5, 90], (120, 3))
    score = 4 * (x[:, 0] - 0.5) + 0.5 * (x[:, 1] - 1)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame["y"] = (score + rng.logistic(size=120) > 0).astype(int)
    path = tmp_path_factory.mktemp("data") / "tiny.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("name", STUDIES)
def test_files(name: str, data: Path, tmp_path: Path) -> None:
    study, out = STUDIES[name], tmp_path / "new"
    shown = run(study.main, f"{study.flags} --out {{out}}", data=data, out=out)
    figures = {f"{stem}.{kind}" for stem in study.figures for kind in ("svg", "png")}
    wanted = {*study.tables, *study.others, *figures, study.text}
    assert {path.name for path in out.iterdir()} == wanted
    for file, (count, columns) in study.tables.items():
        rows = rows_of(out / file)
        assert len(rows) == count and tuple(rows[0]) == columns, file
        assert all(value for row in rows for value in row.values()), file
    for stem in study.figures:
        assert (out / f"{stem}.svg").read_text().startswith("<?xml")
        assert (out / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
    text = (out / study.text).read_text()
    assert text.strip() in shown or name == "aggregation"  # whose width is the console's
    study.says(out, text)


def test_accuracy(data: Path) -> None:
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
