"""The example across machines: rows and schema of its study."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pandas as pd

from parties.reader.schema import Schema
from tests.support.scripts import load


def test_the_example_has_rows_and_a_schema_of_stays(tmp_path: Path) -> None:
    script = load("examples/hazard_ratios.py")
    script.prepare(tmp_path, Namespace(rows=60, covariates=3))
    schema = Schema.load(tmp_path / "schema.json")
    assert [column.name for column in schema.columns] == ["x0", "x1", "x2"]
    assert schema.label.names == ("months", "died") and schema.label.columns[0].low == 0  # type: ignore[union-attr]
    rows = [pd.read_csv(tmp_path / f"{name}.csv") for name in script.NAMES]
    assert sum(map(len, rows)) == 60 and "hospital" not in rows[0]
