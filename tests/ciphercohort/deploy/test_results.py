"""A hospital has model, plan, certificate and report of a finished run in its own folder."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ciphercohort.deploy.deployed import training_plans
from ciphercohort.deploy.results import party_results
from ciphercohort.results.predict import load_model
from ciphercohort.verify.folder import verify_run
from parties.agent.owner import MOST_OUTCOME, Owner
from parties.agent.settings import OUTCOME, RESULTS, SCHEMA
from parties.agent.vault import Vault
from parties.policy import Policy
from protocols.errors import ParameterError, PolicyError
from tests.parties.agents import PASSPHRASE, Agents
from tests.protocols.privacy.test_whitened_ledger import calibration
from tests.support.sessions import record


def keeping(folder: Path, known: bool = True) -> Any:
    store = SimpleNamespace(record=lambda session: object() if known else None)
    rows = SimpleNamespace(fingerprint=lambda: "of rows")
    return Owner(
        name="a",
        rows=rows,
        views=rows,
        schema=None,
        signing_key=Ed25519PrivateKey.generate(),
        store=store,  # type: ignore[arg-type]
        terms=Policy().terms(),
        peers=dict,
        results=folder / RESULTS,
    ).keep


PLAN = "ab" * 32
UNSTATED = {"slot bound"}
"""Of the toy plan, which states none; plans of commands do."""


def failed(folder: Path) -> set[str]:
    return {check.name for check in verify_run(folder) if not check.passed}


def kept(folder: Path) -> tuple[Agents, Path]:
    """Agents, one of which keeps outcomes, and its folder."""
    agents = Agents(folder / "agents", Vault(PASSPHRASE))
    name = next(iter(agents.agents))
    agents.agents[name]._keep = keeping(folder / name)
    (folder / name).mkdir(exist_ok=True)
    agents.session.parties[name].run.rows._value.schema.save(folder / name / SCHEMA)
    return agents, folder / name


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Folder of one owner after a run, and what the coordinator released."""
    folder = tmp_path_factory.mktemp("run")
    agents, own = kept(folder)
    return own, agents.session.run(agents.ask)


def test_it_is_the_model_that_the_coordinator_released(home: tuple[Path, Any]) -> None:
    folder, outcome = home
    (found,) = party_results(folder)
    plan = json.loads((found / "plan.json").read_text())
    assert plan["digest"] == outcome.plan.digest() and found.name == outcome.plan.session
    model = json.loads((found / "model.json").read_text())
    assert np.array_equal(model["released"], outcome.weights)
    assert load_model(found).session == outcome.plan.session
    assert "What it cost" not in (found / "report.html").read_text()
    assert (found / OUTCOME).stat().st_mode & 0o777 == 0o600
    checks = verify_run(found)
    assert failed(found) == UNSTATED
    assert {"plan digest", "plan valid", "model", "schema"} <= {check.name for check in checks}
    assert list(party_results(folder)) == [found]


@pytest.mark.parametrize("name", ["plan.json", "model.json"])
def test_an_edited_document_does_not_verify(home: tuple[Path, Any], name: str) -> None:
    (found,) = party_results(home[0])
    path, good = found / name, (found / name).read_text()
    fields = json.loads(good)
    changes = {"plan.json": {"rounds": 9}, "model.json": {"released": [0.5] * 3}}
    try:
        path.write_text(json.dumps({**fields, **changes[name]}))
        assert failed(found) - UNSTATED
        path.write_text("[")
        assert failed(found) - UNSTATED
    finally:
        path.write_text(good)


def test_a_coordinators_documents_are_checked_beside_its_messages(tmp_path: Path) -> None:
    """A certificate that was changed, or is another run's, passed beside honest messages."""
    agents, own = kept(tmp_path)
    folder = tmp_path / "session"
    record(folder, agents.session, ask=agents.ask)
    (found,) = party_results(own)
    for name in ("plan.json", "model.json"):
        (folder / name).write_text((found / name).read_text())
    names = {check.name for check in verify_run(folder)}
    assert {"re-execution", "schema"} <= names
    # It has neither session.json nor outcome.json.
    assert failed(folder) == UNSTATED | {"session"}
    certificate = {"inputs": {"schema": "inferred"}, "unmet": [], "figures": {}}
    (folder / "certificate.json").write_text(json.dumps(certificate))
    assert {"certificate", "schema"} <= failed(folder)


WRONG = ("weights", "deep", "folder")


@pytest.mark.parametrize(
    "left",
    [
        '{"plan": {"version": 7}}',
        "[",
        '{"plan": null, "weights": [1.0]}',
        "weights",
        "deep",
        "none",
    ],
)
def test_what_cannot_be_read_keeps_no_other_from_its_documents(
    left: str, home: tuple[Path, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A session of another release, or one whose centre told other numbers than its plan has."""
    (found,) = party_results(home[0])
    beside = found.with_name("0")
    beside.mkdir()
    if left == "weights":
        fields = json.loads((found / OUTCOME).read_text())
        left = json.dumps({**fields, "weights": fields["weights"][1:]})
    if left == "folder":
        (beside / OUTCOME).mkdir()
    else:
        (beside / OUTCOME).write_text("[" * 100_000 if left == "deep" else left)
    try:
        assert list(party_results(home[0])) == [found]
        assert "session 0 is left out" in caplog.text
    finally:
        shutil.rmtree(beside)


@pytest.mark.parametrize("session", ["", "../x", "a/b", "a" * 65])
def test_whoever_drives_the_kernel_names_no_other_file(session: str, tmp_path: Path) -> None:
    keep = keeping(tmp_path)
    with pytest.raises(PolicyError):
        keep(session, PLAN, "{}")
    with pytest.raises(PolicyError):
        keep("a", PLAN, "x" * (MOST_OUTCOME + 1))
    with pytest.raises(PolicyError):
        keeping(tmp_path, known=False)("a", PLAN, "{}")
    assert not list(tmp_path.iterdir())


def test_a_whitened_training_is_charged_with_its_second_moment(tmp_path: Path) -> None:
    """By the digest in its plan, whatever session.json says."""
    found = calibration("quadratic-gd")
    first = replace(found.first, session="a")
    training = replace(found.template, session="b", moment_plan=first.digest())
    settings: Any = SimpleNamespace(session_folder=tmp_path.joinpath)

    def plans(before: str | None, moment: Any) -> list[str]:
        for plan in (replace(moment, session=before or "a"), training):
            folder = tmp_path / plan.session
            folder.mkdir(exist_ok=True)
            weights = np.zeros(getattr(plan, "shape", 0)).tolist()
            told = {"plan": plan.to_dict(), "weights": weights}
            (folder / OUTCOME).write_text(json.dumps(told))
            said = before if plan.session == "b" else None
            (folder / "session.json").write_text(json.dumps({"before": said}))
        return [plan.session for plan in training_plans(settings, "b")]

    assert plans("a", first) == ["b", "a"]
    for before, moment in ((None, first), ("a", found.template)):
        with pytest.raises(ParameterError, match="is not in the session before b"):
            plans(before, moment)
    assert training_plans(settings, "elsewhere") == []
