"""What a coordinator would see of a run: `release/` is the same for tables that differ in one row.

Whole simulations on INSECURE toy rings. Files are the same, and what JSON files hold but for what
the protocol opens, which is booked (`release.OPENED`), and what no two runs share
(`release.FRESH`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from typer.testing import CliRunner

from ciphercohort.cli import app as cli
from ciphercohort.job.layout import PRIVATE, RELEASE
from ciphercohort.report.release import FRESH, OPENED
from parties.reader.schema import CategoricalColumn, Label, NumericColumn, Schema
from tests.boundaries.reading import BoundaryError

ROWS = 120
SCHEMA = Schema(
    columns=(
        NumericColumn("age", 0, 100, 50, 20, "typical"),
        NumericColumn("dose", 0, 10, 3, 2, "indicator"),
        CategoricalColumn("ward", ("A", "B")),
    ),
    label=Label("y", "yes", "no"),
    row_norm=1.5,
)
SHORT = ("--parties", "3", "--epsilon", "5", "--update", "gd", "--iterations", "2")
TOY = ("--profile", "fast-insecure", "--ring-dim", "1024")
OPTIONS = {
    "encrypted rows": ("--protocol", "encrypted-rows", *TOY),
    "encrypted model": ("--protocol", "encrypted-model", *TOY),
    "secure sums": ("--protocol", "secure-aggregation"),
}


@dataclass(frozen=True)
class OneRow:
    """Its place, and what stands there in D'."""

    at: int
    cells: tuple[Any, ...]


rows = st.builds(
    OneRow,
    at=st.integers(0, ROWS - 1),
    cells=st.tuples(
        st.sampled_from((None, 0, 100, 50, 1e6, -7)),
        st.sampled_from((None, 0.0, 10.0, 5e-324, -1e9)),
        st.sampled_from(("A", "B", "unknown", "a", "'")),
        st.sampled_from(("yes", "no")),
    ),
)


def table() -> pd.DataFrame:
    """D: nothing is missing, unknown or out of range."""
    rng = np.random.default_rng(3)
    age, dose = rng.uniform(10, 90, ROWS).round(1), rng.uniform(0, 9, ROWS).round(2)
    likely = 1 / (1 + np.exp(-(age - 50) / 20 + dose / 4))
    return pd.DataFrame(
        {
            "age": age.astype(object),
            "dose": dose.astype(object),
            "ward": rng.choice(["A", "B"], ROWS),
            "y": np.where(rng.random(ROWS) < likely, "yes", "no"),
        }
    )


class Folders:
    """Simulations with one set of options; that of D is made once."""

    def __init__(self, options: Iterable[str], folder: Path) -> None:
        self._options, self._folder, self._runs = [*SHORT, *options], folder, 0
        self._of_d: dict[str, Any] | None = None

    def check(self, row: OneRow) -> bool:
        """True; raises BoundaryError."""
        self._of_d = self._of_d or self._seen(table())
        other = table()
        other.iloc[row.at] = row.cells
        found = self._seen(other)
        if found.keys() != self._of_d.keys():
            raise BoundaryError(f"files {sorted(self._of_d)} where D' has {sorted(found)}")
        for name, own in self._of_d.items():
            if own != found[name]:
                raise BoundaryError(f"{name}: {_difference(own, found[name])}")
        return True

    def _seen(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Contents of release/, by name, but for what may differ."""
        self._runs += 1
        here = self._folder / f"run-{self._runs}"
        here.mkdir(parents=True)
        frame.to_csv(here / "rows.csv", index=False)
        SCHEMA.save(here / "schema.json")
        files = ("--data", here / "rows.csv", "--schema", here / "schema.json", "--out", here / "o")
        done = CliRunner().invoke(cli.app, ["simulate", *map(str, files), *self._options])
        if done.exit_code:
            raise RuntimeError(f"{done.output} {done.exception!r}")
        if not (here / "o" / PRIVATE).stat().st_mode & 0o77 == 0:
            raise BoundaryError("the private half is open to others")
        release = here / "o" / RELEASE
        return {
            str(path.relative_to(release)): _public(path)
            for path in release.rglob("*")
            if path.is_file()
        }


def _public(path: Path) -> Any:
    """What may not differ of a file."""
    name = path.name
    hidden = {field for table in (OPENED, FRESH) for field in table.get(name, ())}
    if name.endswith(".json"):
        return "*" if "*" in hidden else _without(json.loads(path.read_text()), hidden, "")
    if name.endswith(".jsonl"):
        lines = path.read_text().splitlines()
        return [_without(json.loads(line), hidden, "") for line in lines]
    if name.endswith(".msg"):
        return path.stat().st_size
    return None


def _without(value: Any, hidden: set[str], at: str) -> Any:
    if isinstance(value, list):
        return [_without(each, hidden, at) for each in value]
    if not isinstance(value, dict):
        return value
    paths = {name: f"{at}.{name}".removeprefix(".") for name in value}
    return {
        name: _without(own, hidden, paths[name])
        for name, own in value.items()
        if paths[name] not in hidden and name not in hidden
    }


def _difference(one: Any, two: Any) -> str:
    """The first place."""
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        return next(f"{k}: {_difference(one[k], two[k])}" for k in one if one[k] != two[k])
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        pairs = zip(one, two, strict=True)
        return next(_difference(a, b) for a, b in pairs if a != b)
    return f"{one!r} where D' has {two!r}"
