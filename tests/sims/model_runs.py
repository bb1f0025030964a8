"""The command, tables of two targets, and the runs that the tests of regressions share."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from click.testing import Result
from typer.testing import CliRunner

from ciphercohort.cli import app as cli
from ciphercohort.results.documents import to_json
from ciphercohort.verify.folder import verify_run
from parties.reader.infer import infer_schema
from tests.sims.fake_run import place, reseal

TOY = ("--profile", "fast-insecure")
RUNS = {
    "linear": "--model linear --no-privacy --iterations 60 --as-trained",
    "linear-home": "--model linear --protocol encrypted-model --no-privacy --iterations 12 "
    "--as-trained",
    "improved": "--model improved-lffr --epsilon 5 --colluders 1 --iterations 9",
    "lffr": "--model lffr --no-privacy --iterations 6",
    "lffr-private": "--model lffr --epsilon 5 --colluders 1 --iterations 4",
    "poisson": "--model poisson --no-privacy --iterations 8 --as-trained",
}
PRIVATE = ("improved", "lffr-private")


def make_frame(rows: int = 300, seed: int = 1) -> pd.DataFrame:
    """Two targets that are linear in three columns, but for some noise."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.uniform(-1, 1, (rows, 2)), columns=["a", "b"])
    frame["ward"] = rng.choice(["A", "B"], rows)
    frame["cost"] = 50 + 30 * frame["a"] - 10 * frame["b"] + rng.normal(0, 2, rows)
    frame["days"] = 5 + 2 * frame["b"] + (frame["ward"] == "B") + rng.normal(0, 0.2, rows)
    return frame


def make_counts(rows: int = 300, seed: int = 1) -> pd.DataFrame:
    """Counts with a mean that is log-linear in the same columns."""
    frame = make_frame(rows, seed).drop(columns=["cost", "days"])
    mean = np.exp(0.8 + 0.6 * frame["a"] - 0.4 * frame["b"] + 0.3 * (frame["ward"] == "B"))
    return frame.assign(visits=np.random.default_rng(seed + 10).poisson(mean))


def public_schema(sample: Any, label: str | list[str], **options: Any) -> Path:
    """File of a schema that stands for a public one."""
    path = Path(tempfile.mkdtemp()) / "schema.json"
    infer_schema(sample, label, **options).save(path)
    return path


def cohort(*words: object) -> Result:
    return CliRunner().invoke(cli.app, [str(word) for word in words])


@dataclass(frozen=True)
class Tables:
    train: Path
    test: Path
    schema: Path
    targets: str = "cost,days"

    def simulate(self, *words: object) -> Result:
        files = ("--data", self.train, "--test", self.test, "--schema", self.schema)
        return cohort("simulate", *files, *TOY, "--target", self.targets, *words)


@dataclass(frozen=True)
class Run:
    folder: Path
    summary: dict[str, Any]
    stderr: str
    tables: Tables

    def read(self, name: str) -> Any:
        return json.loads(place(self.folder, name).read_text())

    @property
    def report(self) -> str:
        return (self.folder / "private/report.html").read_text()

    def course(self) -> list[dict[str, Any]]:
        lines = (self.folder / "private/metrics.jsonl").read_text().splitlines()
        return [line for line in map(json.loads, lines) if line["kind"] == "iteration"]

    def tampered(self, folder: Path, name: str, *path: Any, value: Any) -> set[str]:
        """Names of the checks that fail once a field is changed and the digests are repaired."""
        copy = Path(shutil.copytree(self.folder, folder / "run"))
        fields = json.loads(place(copy, name).read_text())
        inner = fields
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        place(copy, name).write_text(to_json(fields))
        reseal(copy)
        return {check.name for check in verify_run(copy) if not check.passed}
