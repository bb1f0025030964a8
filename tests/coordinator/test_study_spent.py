"""Noisy sums that gave no result: of every study a document says what they cost, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import sims.study
from ciphercohort.after.sums import SpentError
from ciphercohort.study import deployed
from ciphercohort.study.deployed import KINDS
from ciphercohort.verify.folder import verify_run
from parties.agent.vault import Vault
from protocols.errors import ParameterError
from tests.coordinator.test_inference import Hospitals
from tests.coordinator.test_study import folder_of, made_clinics
from tests.parties.agents import PASSPHRASE

MADE = {
    "describe": "ciphercohort.study.description.Description",
    "survival": "ciphercohort.study.survival.Survival",
    "cox": "ciphercohort.study.private_cox.read",
}
"""What each calls when its sums, or some of them, are open."""
WHY = "nothing can be estimated"


def nothing(*args: Any, **given: Any) -> None:
    raise ParameterError(WHY)


def test_every_study_with_epsilon_is_held() -> None:
    """Glm takes exact sums alone."""
    assert {*MADE} == {*KINDS} - {"glm"}


@pytest.mark.parametrize("study", MADE)
def test_a_deployment_keeps_and_verifies_it(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinics: Hospitals = made_clinics(tmp_path, Vault(PASSPHRASE), monkeypatch)
    monkeypatch.setattr(MADE[study], nothing)
    with pytest.raises(SpentError, match=f"{WHY}.*count epsilon=8, delta=1e-05 as spent") as found:
        getattr(deployed, study)(folder_of(clinics, True), epsilon=8.0)
    (path,) = clinics.settings.folder.rglob(KINDS[study].name)
    held = json.loads(path.read_text())
    assert held["refused"] == str(found.value) and held["asked"]["epsilon"] == 8.0
    assert held["sessions"][0] == path.parent.name
    assert [each.detail for each in verify_run(path.parent) if not each.passed] == []
    path.write_text(path.read_text().replace("epsilon=8", "epsilon=1"))
    assert [each.name for each in verify_run(path.parent) if not each.passed] == ["documents"]


@pytest.mark.parametrize("study", MADE)
def test_a_simulation_keeps_it(study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 2000
    rows = pd.DataFrame(
        {
            "months": [float(1 + k % 50) for k in range(size)],
            "died": [float(k % 3 > 0) for k in range(size)],
            "age": [40.0 + k % 41 for k in range(size)],
            "sex": ["fm"[k % 7 > 3] for k in range(size)],
        }
    )
    monkeypatch.setattr(MADE[study], nothing)
    times = {} if study == "describe" else {"time": "months", "event": "died"}
    asked: dict[str, Any] = {**times, "epsilon": 20.0, "seed": 1, "out": tmp_path / "out"}
    with pytest.raises(SpentError, match=f"{WHY}.*count epsilon=20, delta=1e-05 as spent") as found:
        getattr(sims.study, study)(rows, **asked)
    held = json.loads((tmp_path / "out" / KINDS[study].name).read_text())
    assert held["refused"] == str(found.value) and held["privacy"]["epsilon"] == 20.0
    assert held["notes"] and "NOT PRIVATE" in held["notes"][0]
    if study == "cox":
        return  # seven sums of so few rows leave no interval
    monkeypatch.undo()
    getattr(sims.study, study)(rows, **asked)  # which gives way
    assert "refused" not in json.loads((tmp_path / "out" / KINDS[study].name).read_text())
