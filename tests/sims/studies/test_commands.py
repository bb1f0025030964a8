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

from sims.studies import accelerated, accuracy, aggregation, coordinate, epsilon, quadratic


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def accelerated_says(out: Path, text: str) -> None:
    rows = rows_of(out / "results.csv")
    assert {row["iterations"] for row in rows if row["method"] == "HB"} == {"5", "9"}
    steps = sum(int(row["iterations"]) for row in rows)
    assert steps == len(rows_of(out / "traces.csv"))  # of so short a run all are kept
    assert "standard error" in text


def quadratic_says(out: Path, text: str) -> None:
    """Encrypted scores beside the twin's, and on the curve."""
    rows, body = rows_of(out / "runs.csv"), json.loads((out / "results.json").read_text())
    assert [(r["part"], r["update"], r["iterations"]) for r in rows] == [
        ("fold 1", "quadratic-nag", "2"),
        ("fold 2", "quadratic-nag", "2"),
        *(("all rows", update, "3") for update in quadratic.UPDATES),
    ]
    curves = {curve["update"]: curve["likelihood"] for curve in body["curves"]}
    for row in rows:
        assert abs(float(row["loss"]) - float(row["twin_loss"])) < 1e-3
        assert float(row["cpu_seconds"]) > 0
        if row["part"] == "all rows":
            point = curves[row["update"]][int(row["iterations"]) - 1]
            assert point == pytest.approx(-float(row["loss"]), abs=1e-3)
    assert "tiny  encrypted" in text


def coordinate_says(out: Path, text: str) -> None:
    for row in rows_of(out / "coordinate.csv"):
        assert f"{float(row['error_mean']):.4f} +- {float(row['error_std']):.4f}" in text
        assert row["configurations_tried"] == ("4" if "4 x" in row["method"] else "1")
        assert row["neighbours"] in text and row["seeds"] == "2"


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
COORDINATE = (
    *("problem", "metric", "method", "neighbours", "epsilon", "delta", "error_mean", "error_std"),
    *("error_median", "seeds", "configurations_tried", "configurations_available", "choice"),
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
    "accelerated": Study(
        accelerated.main,
        "--runs 2 --rows 300 --jobs 2",
        {
            "traces.csv": (128, ("method", "c", "T", "iteration", "mean_suboptimality")),
            "results.csv": (
                24,
                ("method", "c", "T", "iterations", "log10_mean_suboptimality", "standard_error"),
            ),
        },
        ("suboptimality_c_0.1", "suboptimality_c_1"),
        "table.txt",
        accelerated_says,
    ),
    "quadratic": Study(
        quadratic.main,
        "--folds 2 --parties 2 --iterations 2 --points 3 --profile fast-insecure "
        "--label y --data {data}",
        {"runs.csv": (4, tuple(quadratic.Run.__dataclass_fields__))},
        ("convergence",),
        "table.txt",
        quadratic_says,
        ("results.json",),
    ),
    "coordinate": Study(
        coordinate.main,
        "--seeds 2 --tries 1 --epsilon 2",
        {"coordinate.csv": (14, COORDINATE)},
        ("coordinate-diabetes", "coordinate-phishing-like"),
        "coordinate.txt",
        coordinate_says,
    ),
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
def test_files(name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerated.all_cells, "__defaults__", ((5, 9), (0.1, 1.0)))
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
