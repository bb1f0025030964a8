"""Ledgers of simulated parties: a value of a column names a party, and never a path."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocols.errors import ParameterError
from sims.config import SimulationConfig
from sims.ledgers import open_ledger


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
