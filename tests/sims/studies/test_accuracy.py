"""The accuracy study on scikit-learn's data: certified, repeatable, and the twin's arithmetic."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from sklearn.datasets import load_breast_cancer
from typer.testing import CliRunner

from parties.data.schema import Schema
from protocols.privacy.calibrate.figures import Wanted
from protocols.privacy.calibrate.rows import choose_rows
from protocols.train import PlainGradient, train_plain
from sims.config import SimulationConfig
from sims.figures import figures_of
from sims.many_twins import train_many
from sims.prepare import prepare
from sims.studies import accuracy
from sims.studies.accuracy import Study, run_study

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


def _config(update: str = "gd") -> SimulationConfig:
    return SimulationConfig(parties=3, epsilon=4.0, delta=1e-3, update=update, rounds=25)


@lru_cache
def _study(update: str) -> Study:
    return run_study(_config(update), seeds=12, splits=2)


@pytest.mark.parametrize("update", ["barrier", "gd"])
def test_certified_models_learn(update: str) -> None:
    study = _study(update)
    assert study.certificate.satisfied
    assert study.accuracy.shape == study.auc.shape == (12,)
    assert study.accuracy.mean() > 0.85 > 0.7 > study.baseline
    assert study.largest_norm <= study.certificate.figures["R"]
    assert 0 < study.accuracy.std() < 0.1


def test_the_same_seed_repeats() -> None:
    once, again = (run_study(_config(), seeds=4, splits=1) for _ in range(2))
    assert np.array_equal(once.auc, again.auc)
    other = run_study(_config(), seeds=4, splits=1, base_seed=1)
    assert not np.array_equal(once.auc, other.auc)


@pytest.mark.parametrize("update", ["barrier", "gd"])
def test_without_noise_it_is_the_twin(update: str) -> None:
    """In blocks and for all seeds at once, or row by row for one: the same weights."""
    data = prepare(_config(update), np.random.default_rng(0))
    figures = figures_of(data.schema, (shard.rows for shard in data.shards.values()))
    chosen = choose_rows(figures, Wanted.of(_config(update)))
    link, features = chosen.link.polynomial, data.rows.shape[1]
    oracle = accuracy._Oracle(
        rows=data.rows, labels=data.labels, link=link, std=0.0, rng=np.random.default_rng(0)
    )
    many = train_many(chosen.rule, oracle, runs=2, features=features)
    gradient = PlainGradient(data.rows, data.labels, np.zeros((25, features)), link)
    assert np.abs(many - train_plain(chosen.rule, gradient, features)).max() < 1e-10


def test_the_command(tmp_path: Path) -> None:
    frame: pd.DataFrame = load_breast_cancer(as_frame=True).frame
    path = tmp_path / "cancer.csv"
    frame.to_csv(path, index=False)
    app = typer.Typer()
    app.command()(accuracy.main)
    flags = ["--data", str(path), "--label", "target", "--seeds", "4", "--splits", "1"]
    flags += ["--epsilon", "4", "--delta", "1e-3", "--parties", "3", "--update", "gd"]
    result = CliRunner().invoke(app, [*flags, "--json"])
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)
    assert found["method"] == "ridge"
    assert found["seeds"] == 4
    words = CliRunner().invoke(app, flags).stdout
    assert "always one label" in words


@pytest.mark.parametrize(("name", "features"), [("adult", 48), ("credit", 30)])
def test_the_public_schemas_are_sound(name: str, features: int) -> None:
    schema = Schema.load(SCHEMAS / f"{name}.json")
    assert schema.num_features == features
    assert schema.norm_bound == 1.0
    for column in schema.to_dict()["columns"]:
        for field in ("typical", "spread") if column["kind"] == "numeric" else ():
            digits = f"{column[field]:e}".split("e")[0].rstrip("0").replace("-", "")
            assert len(digits) <= 2, f"{column['name']}: {field} has more than one digit"
    assert replace(schema, row_norm=None).norm_bound > 3
