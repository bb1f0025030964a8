"""The quadratic-gradient study on a toy ring: its folds, its scaling, its files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from parties.data.encode import encode_shard
from protocols.errors import DataError, ParameterError
from sims.config import SimulationConfig
from sims.studies import quadratic
from sims.studies.quadratic import cross_validate, curve_and_config
from sims.studies.quadratic_data import Table, unit_schema

CONFIG = SimulationConfig(
    parties=2,
    update="quadratic-nag",
    rounds=2,
    degree=5,
    radius=8.0,
    seed=1,
    profile="fast-insecure",
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    x = rng.uniform([0, -3, 10], [1, 5, 90], (61, 3))
    score = 4 * (x[:, 0] - 0.5) + 0.5 * (x[:, 1] - 1)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame["y"] = (score + rng.logistic(size=61) > 0).astype(int)
    path = tmp_path_factory.mktemp("data") / "tiny.csv"
    frame.to_csv(path, index=False)
    return path


def test_columns_are_scaled_to_the_unit_interval(file: Path) -> None:
    table = Table.load(file, "y")
    x = encode_shard(table.frame, table.schema).x
    np.testing.assert_allclose(x[:, :-1].min(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(x[:, :-1].max(axis=0), 1.0, atol=1e-12)
    raw = table.frame[["a", "b", "c"]].to_numpy()
    wanted = (raw - raw.min(axis=0)) / (raw.max(axis=0) - raw.min(axis=0))
    np.testing.assert_allclose(x[:, :-1], wanted, atol=1e-12)
    constant = unit_schema(table.frame.assign(c=7.0), "y")
    assert not encode_shard(table.frame.assign(c=7.0), constant).x[:, 2].any()


def test_folds_are_disjoint_and_of_floor_size(file: Path) -> None:
    table = Table.load(file, "y")
    order = np.random.default_rng(1).permutation(61)
    parts = [table.fold(order, 5, k) for k in range(5)]
    assert [len(test) for _, test in parts] == [12] * 5
    tested = np.concatenate([test.index for _, test in parts])
    assert len(set(tested)) == 60
    for train, test in parts:
        assert sorted([*train.index, *test.index]) == list(range(61))


def test_refusals_name_the_cure(file: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'z' must exist"):
        Table.load(file, "z")
    with pytest.raises(DataError, match="hold 0 and 1"):
        Table.load(file, "a")
    with pytest.raises(ParameterError, match="folds=62"):
        next(cross_validate(Table.load(file, "y"), 62, CONFIG))


def test_the_curve_climbs_and_keeps_to_its_interval(file: Path) -> None:
    table = Table.load(file, "y")
    curves = {u: curve_and_config(table, u, 12, CONFIG)[0] for u in quadratic.UPDATES}
    assert all(curve.likelihood.shape == (12,) for curve in curves.values())
    assert curves["quadratic-nag"].likelihood[-1] > curves["nag"].likelihood[-1] > -np.log(2)


def test_an_interval_too_small_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quadratic, "INTERVALS", (0.1,))
    with pytest.raises(ParameterError, match="logits leave"):
        curve_and_config(Table.load(file, "y"), "nag", 8, CONFIG)


def test_the_command_writes_encrypted_scores_beside_the_twin(file: Path, tmp_path: Path) -> None:
    words = "--folds 2 --parties 2 --iterations 2 --points 3 --profile fast-insecure --label y"
    import typer

    app = typer.Typer()
    app.command()(quadratic.main)
    out = tmp_path / "out"
    result = CliRunner().invoke(app, [*words.split(), "--data", str(file), "--out", str(out)])
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader((out / "runs.csv").read_text().splitlines()))
    assert [(r["part"], r["update"], r["iterations"]) for r in rows] == [
        ("fold 1", "quadratic-nag", "2"),
        ("fold 2", "quadratic-nag", "2"),
        *(("all rows", update, "3") for update in quadratic.UPDATES),
    ]
    body = json.loads((out / "results.json").read_text())
    curves = {curve["update"]: curve["likelihood"] for curve in body["curves"]}
    for row in rows:
        assert abs(float(row["loss"]) - float(row["twin_loss"])) < 1e-3
        assert float(row["cpu_seconds"]) > 0
        if row["part"] == "all rows":
            point = curves[row["update"]][int(row["iterations"]) - 1]
            assert point == pytest.approx(-float(row["loss"]), abs=1e-3)
    assert "tiny  encrypted" in (out / "table.txt").read_text()
    assert (out / "convergence.svg").read_text().startswith("<?xml")
    assert (out / "convergence.png").stat().st_size > 10_000
