"""The accuracy study on scikit-learn's data: certified, repeatable, within its bound."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from parties.reader.schema import Schema
from sims.lab.studies import accuracy
from sims.lab.studies.accuracy import run_study
from sims.lab.studies.noise.grid import Cell
from sims.lab.studies.noise.source import Source

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


@lru_cache
def found(update: str, seeds: int = 12, **changes: Any) -> dict[str, Any]:
    cell = Cell(parties=3, epsilon=4.0, delta=1e-3, update=update, rounds=25)
    return run_study(replace(cell, **changes), Source(), seeds=seeds, splits=2)


@pytest.mark.parametrize("update", ["barrier", "gd"])
def test_certified_models_learn(update: str) -> None:
    study = found(update)
    assert study["seeds"] == 12
    assert study["accuracy_mean"] > 0.85 > 0.7 > study["baseline"]
    assert 0 < study["accuracy_std"] < 0.1
    assert study["largest_norm"] <= study["radius"]


def test_the_same_seed_repeats_and_others_differ() -> None:
    once, again = (run_study(Cell(rounds=5), Source(), seeds=4, splits=2) for _ in range(2))
    assert once == again
    assert run_study(Cell(rounds=5), Source(), seeds=6, splits=2)["auc_mean"] != once["auc_mean"]
    held = [accuracy.open_pool(Source().held_out_by(k), None).test.x for k in (0, 1)]
    assert (held[0] != held[1]).any()


@pytest.mark.parametrize(
    ("name", "features", "digits"),
    [
        *(("adult", 48, 1), ("credit", 30, 1), ("edin", 10, 2)),
        *(("lbw", 10, 2), ("pcs", 10, 2), ("uis", 9, 2)),
    ],
)
def test_the_public_schemas_are_sound(name: str, features: int, digits: int) -> None:
    """Of one norm; no figure is finer than somebody knows without looking at the rows."""
    schema = Schema.load(SCHEMAS / f"{name}.json")
    assert (schema.num_features, schema.norm_bound) == (features, 1.0)
    for column in (c for c in schema.to_dict()["columns"] if c["kind"] == "numeric"):
        assert column["low"] <= column["typical"] <= column["high"]
        for field in ("typical", "spread"):
            told = f"{column[field]:e}".split("e")[0].rstrip("0").strip("-").replace(".", "")
            assert len(told) <= digits, f"{column['name']}: {field}"
