"""Runs that are made once and read by many tests; INSECURE toy rings."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ciphercohort.results.result import RunResult
from tests.sims.fake_run import finished_run
from tests.sims.model_runs import RUNS, Run, Tables, cohort, make_counts, make_frame
from tests.support.pictures import drawn


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    """A run folder without cryptography, and what it holds."""
    path = tmp_path_factory.mktemp("runs") / "run"
    return path, finished_run(path)


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Training rows, test rows, a public schema; of two targets."""
    return make_tables(tmp_path_factory.mktemp("data"), make_frame, "cost,days")


@pytest.fixture(scope="session")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The same of one target, which counts."""
    return make_tables(tmp_path_factory.mktemp("counts"), make_counts, "visits")


def make_tables(folder: Path, made: Any, targets: str) -> Tables:
    train, test, schema = folder / "train.csv", folder / "test.csv", folder / "schema.json"
    made(240).to_csv(train, index=False)
    made(100, seed=2).to_csv(test, index=False)
    shown = cohort("schema", "init", train, "--target", targets, "--out", schema)
    assert shown.exit_code == 0, shown.stderr
    return Tables(train, test, schema, targets)


@pytest.fixture(scope="session")
def runs(tables: Tables, counts: Tables) -> Any:
    """Finished runs of regressions by name, see `RUNS`; read only."""

    @cache
    def made(name: str) -> Run:
        own = counts if name == "poisson" else tables
        out = own.train.with_name(name)
        with drawn():
            result = own.simulate(*RUNS[name].split(), "--out", out, "--keep-messages", "--json")
        assert result.exit_code == 0, result.stderr
        return Run(out, json.loads(result.stdout), result.stderr, own)

    return made
