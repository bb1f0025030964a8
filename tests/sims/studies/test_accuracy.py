"""The accuracy study on scikit-learn's data: certified, repeatable, within its bound."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from parties.data.schema import Schema
from protocols.errors import PrivacyError
from sims.studies import accuracy
from sims.studies.accuracy import run_study
from sims.studies.noise.grid import Cell
from sims.studies.noise.source import Source

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


def test_nothing_certified_is_refused() -> None:
    with pytest.raises(PrivacyError, match="certified"):
        found("nag", seeds=2, epsilon=1e-3)


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
