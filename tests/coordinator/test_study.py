"""A study across machines: the tables of a simulation, consent, and series that go on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciphercohort.study import deployed
from ciphercohort.study.description import ALL
from parties.agent.manifest import describe_plan
from parties.agent.vault import Vault
from parties.policy import Policy
from protocols.errors import ProtocolError
from protocols.plan.kinds import plan_from_dict
from sims.study import describe
from tests.coordinator.test_deployment import NAMES
from tests.coordinator.test_inference import FRAMES, SCHEMA, Hospitals
from tests.parties.agents import PASSPHRASE
from tests.sims.model_runs import cohort


@pytest.fixture(scope="module")
def vault() -> Vault:
    return Vault(PASSPHRASE)


@pytest.fixture
def centre(tmp_path: Path, vault: Vault) -> Hospitals:
    return Hospitals(tmp_path, vault)


def folder_of(centre: Hospitals, private: bool) -> Any:
    """What `ciphercohort.study.deployed` needs of a coordinator."""
    centre.agents.private = private
    return SimpleNamespace(settings=centre.settings, driving=lambda tell: centre.drive)


def pooled() -> pd.DataFrame:
    return pd.concat([frame.assign(site=name) for name, frame in FRAMES.items()])


@pytest.mark.parametrize("by", [None, "ward", "died"])
def test_a_description_is_that_of_a_simulation(
    centre: Hospitals, tmp_path: Path, by: str | None
) -> None:
    path, found = deployed.describe(folder_of(centre, False), by=by)
    SCHEMA.save(tmp_path / "schema.json")
    expected = describe(pooled(), by=by, schema=tmp_path / "schema.json", split="by:site")
    told = json.loads(path.read_text())
    due = json.loads(json.dumps(expected.groups))
    assert told["groups"].keys() == due.keys() and told["sessions"] == [path.parent.name]
    for group in due:
        for name, figures in due[group]["columns"].items():
            own = told["groups"][group]["columns"][name]
            assert own.keys() == figures.keys()
            for key, value in figures.items():
                assert own[key] == (pytest.approx(value) if isinstance(value, float) else value)
    assert told["groups"][ALL]["columns"]["age"]["missing"] == pooled().age.isna().sum()
    assert (path.parent / "table-1.tex").is_file() and found.num_rows == len(pooled())


def test_owners_consent_to_exact_cells_and_to_tables_of_their_own(
    centre: Hospitals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ciphercohort.deploy.coordinator.drive", lambda settings, name, say: centre.drive(name)
    )
    centre.agents.private = False
    shown = cohort("coordinator", "describe", centre.settings.folder, "--by", "ward", "--json")
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert found["groups"]["A"]["n"] == (pooled().ward == "A").sum()
    folder = centre.settings.session_folder(found["session"])
    plan = plan_from_dict(json.loads((folder / "outcome.json").read_text())["plan"])
    text = describe_plan(plan, NAMES[0], SCHEMA.norm_bound)
    assert "how often each column has which value" in text and "shows this row" in text
    with pytest.raises(ProtocolError, match="rows alone"):
        deployed.describe(folder_of(centre, False), sites=(NAMES[0],))
    party = centre.agents.session.parties[NAMES[1]]
    party._policy = Policy(max_epsilon=None, accept_unbounded=True, allow_insecure=True)
    with pytest.raises(ProtocolError, match="exact"):
        deployed.describe(folder_of(centre, False))


def test_a_private_description_is_in_the_ledgers(centre: Hospitals) -> None:
    path, found = deployed.describe(folder_of(centre, True), by="ward", epsilon=8.0)
    told = json.loads(path.read_text())
    assert told["privacy"]["epsilon"] <= 8 and "EXACT SUMS" not in told
    assert abs(found.groups["A"]["n"] - (pooled().ward == "A").sum()) < 5 * told["noise_std"]
    assert np.isfinite(found.groups[ALL]["columns"]["age"]["mean"])
    for name in NAMES:
        assert 0.97 * 8 < centre.agents.ledger(name).spent("rows").epsilon <= 8 * (1 + 1e-9)
