"""Ledgers of simulated parties: a value of a column names a party, and never a path."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciphercohort.job.config import SimulationConfig
from parties.kernel.keys.key_share import KeyShare
from protocols.errors import ParameterError, PrivacyError, ProtocolError
from sims.ledgers import check_whole, open_ledger, spent_lines
from sims.simulation import simulate


def test_a_hostile_value_stays_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "ledgers"
    config = SimulationConfig(split="by:hospital", parties=None, epsilon=1.0, ledger=folder)
    for name in ("../../x", "/x", "", "a b"):
        ledger = open_ledger(config, name)
        assert ledger is not None and ledger.spent("rows").runs == 0
        ledger.commit(ledger.reserve("rows", []))
        assert ledger.path.parent == folder and ledger.path.stat().st_mode & 0o777 == 0o600
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.parent != folder] == []
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_ledger_of_an_earlier_version_is_not_forgotten(tmp_path: Path) -> None:
    config = SimulationConfig(split="by:hospital", parties=None, epsilon=1.0, ledger=tmp_path)
    (tmp_path / "St Mary.jsonl").write_text("")
    with pytest.raises(ParameterError, match="rename it to .*St%20Mary.jsonl"):
        open_ledger(config, "St Mary")


def test_a_run_is_charged_and_a_second_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (1500, 3))
    y = (x @ [3.0, -2.0, 1.0] + 0.3 * rng.logistic(size=1500) > 0).astype(int)
    config = SimulationConfig(
        data=pd.DataFrame(np.c_[x, y], columns=list("abcy")),
        label="y",
        parties=2,
        update="barrier",
        epsilon=2.0,
        rounds=2,
        degree=3,
        seed=1,
        profile="fast-insecure",
        ring_dim=1024,
        ledger=tmp_path,
    )
    simulate(config)
    names = ("party-1", "party-2")
    lines = list(spent_lines(config, names))
    for name, line in zip(names, lines, strict=True):
        assert line.startswith(f"ledger of {name}: spent epsilon 1.9") and "in 1 session" in line

    def no_key(*_: object) -> None:
        raise AssertionError("a key was made")

    monkeypatch.setattr(KeyShare, "make", no_key)
    with pytest.raises(ProtocolError, match="'party-1'.*privacy budget is refused"):
        simulate(config)
    assert list(spent_lines(config, names)) == lines
    # Of several sessions the first would fit.
    (tmp_path / "budget.json").write_text('{"epsilon": 2.8, "delta": 1e-5}')
    several: list[dict[str, Any]] = [
        {"inference": True},
        {"evaluate": True, "held_out": 0.2, "however_noisy": True},
    ]
    for more in several:
        whole = replace(config, **more)
        alone = replace(whole.for_training(), inference=False, evaluate=False)
        check_whole(alone, names)
        with pytest.raises(PrivacyError, match=r"epsilon=2, are refused before the first.*raise"):
            simulate(whole)
    assert [line.partition(" of ")[0] for line in spent_lines(config, names)] == [
        line.partition(" of ")[0] for line in lines
    ]


def test_a_ledger_without_its_budget_is_refused(tmp_path: Path) -> None:
    (tmp_path / "budget.json").write_text("{}")
    with pytest.raises(ParameterError, match=r"budget\.json"):
        open_ledger(SimulationConfig(epsilon=1.0, ledger=tmp_path), "a")


def test_a_ledger_needs_a_promise(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="ledger needs a privacy promise"):
        SimulationConfig(ledger=tmp_path)
