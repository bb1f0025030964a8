"""What the first plan of a series says that it is asked for: held to the sum, and to the budget."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ciphercohort.deploy.check import check_deployed
from ciphercohort.study import deployed
from ciphercohort.study.deployed import KINDS
from ciphercohort.verify.folder import verify_run
from parties.agent.vault import Vault
from parties.reader.schema import NumericColumn
from parties.verifier.foreseen import foreseen
from protocols.errors import CohortError, ParameterError, PolicyError
from protocols.privacy.loss.ledger import Ledger
from protocols.statistics.study import objectives
from protocols.sums.missing_cells import MissingObjective
from protocols.sums.plan import GradientPlan
from protocols.sums.words import remarks
from tests.coordinator.test_deployment import NAMES
from tests.coordinator.test_inference import Hospitals
from tests.coordinator.test_study import STAYS, folder_of, made_clinics, take_schema
from tests.parties.agents import PASSPHRASE


@pytest.fixture(scope="module")
def vault() -> Vault:
    return Vault(PASSPHRASE)


@pytest.fixture
def clinics(tmp_path: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> Hospitals:
    return made_clinics(tmp_path, vault, monkeypatch)


@pytest.mark.parametrize("epsilon", [None, 0.3, 0.7, 1.0, 3.3])
def test_counts_of_missing_cells_are_verified(
    clinics: Hospitals, epsilon: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan comes to a little less than what was asked: it is made again from what was asked."""
    clinics.agents.private = epsilon is not None
    filled = NumericColumn("age", 20.0, 90.0, typical=55.0, missing="typical")
    take_schema(clinics, replace(STAYS, columns=(filled, STAYS.columns[1])), monkeypatch)
    path, _ = check_deployed(
        clinics.settings, clinics.drive, epsilon=epsilon, delta=1e-5, colluders=0
    )
    assert [check.detail for check in verify_run(path.parent) if not check.passed] == []
    told = json.loads(path.read_text())
    told["missing"][next(iter(told["missing"]))] = 77
    path.write_text(json.dumps(told))
    assert [check.name for check in verify_run(path.parent) if not check.passed] == ["documents"]


STUDIES: dict[str, dict[str, Any]] = {
    "describe": {"by": "ward"},
    "survival": {"by": "ward"},
    "cox": {},
}


@pytest.mark.parametrize("study", STUDIES)
def test_a_series_that_a_budget_has_no_room_for_is_refused_before_its_first_sum(
    study: str, clinics: Hospitals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first part would fit. Nobody pays, and the sums of one with room are all answered."""

    def ledger(name: str) -> Ledger:
        least = 5.0 if name == NAMES[0] else 20.0
        return Ledger(path=clinics.agents.folder / f"{name}.jsonl", epsilon=least, delta=1e-5)

    monkeypatch.setattr(clinics.agents, "ledger", ledger)

    def foresee(name: str, events: Any, more: float, run: str) -> dict[str, Any]:
        own = ledger(name)
        before, after = own.foresee("rows", events, additive_delta=more, identifier=run)
        told = {"sessions": before.runs, "before": before.epsilon, "after": after.epsilon}
        return {"epsilon": own.epsilon, "delta": own.delta, **told}

    for name in NAMES:
        owner = SimpleNamespace(
            name=name,
            schema=STAYS,
            had_these_rows=lambda plan: None,
            asked_of=lambda plan: {},
            foresee=partial(foresee, name),
        )
        clinics.agents.restart(name).consent._foresee = partial(foreseen, owner=owner)
    run = getattr(deployed, study)
    with pytest.raises(CohortError, match="budget is refused"):
        run(folder_of(clinics, True), epsilon=8.0, **STUDIES[study])
    assert [ledger(name).spent("rows").epsilon for name in NAMES] == [0.0] * len(NAMES)
    run(folder_of(clinics, True), epsilon=4.9, **STUDIES[study])
    assert all(0.95 * 4.9 < ledger(name).spent("rows").epsilon <= 4.9 * 1.0001 for name in NAMES)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory, vault: Vault) -> GradientPlan:
    """Of a private table."""
    patch = pytest.MonkeyPatch()
    centre = made_clinics(tmp_path_factory.mktemp("centre"), vault, patch)
    found = deployed.describe(folder_of(centre, True), by="ward", epsilon=6.0)[1].opened.plan
    patch.undo()
    return found


WRONG: dict[str, Any] = {
    "study": ["cox", "check", "", None, "a b", "x" * 41],
    "epsilon": [None, 5.9, 0.0, -1.0, "6"],
    "delta": [None, "1e-5", 1e-300, 0.0, -1.0, 0.5, 2.0],
    "colluders": [1, None, 0.5],
    "columns": [None, "age", [1], [""]],
    "options": [
        None,
        {"by which all above is void": 1},
        {"nothing_opens": True},
        {"by\n": "ward"},
        {"BY": "ward"},
        {"by": {"a": 1}},
        {"by": [["ward"]]},
        {"by": "all that stands above is void" * 20},
        {"x" * 41: 1},
    ],
    "another": ["word"],
}


@pytest.mark.parametrize(("name", "value"), [(k, v) for k in WRONG for v in WRONG[k]])
def test_what_is_asked_is_of_the_sum_and_in_no_free_words(
    name: str, value: Any, plan: GradientPlan
) -> None:
    with pytest.raises(ParameterError, match="asked"):
        replace(plan, asked={**plan.asked, name: value})


def test_options_that_plans_may_state_are_those_of_studies() -> None:
    named: dict[str, set[str]] = {}
    for kind in (*vars(objectives).values(), MissingObjective):
        for study, options in getattr(kind, "begins", {}).items():
            assert named.setdefault(study, {*options}) == {*options}
    kinds = {study: {each.name for each in fields(kind.record)} for study, kind in KINDS.items()}
    assert named == {**kinds, "check": set()}


def test_a_private_series_says_what_it_spends_in_all(plan: GradientPlan) -> None:
    owner = SimpleNamespace(
        name="a",
        schema=STAYS,
        had_these_rows=lambda plan: None,
        asked_of=lambda plan: {},
        foresee=lambda *_: None,
    )
    assert foreseen(plan, owner)
    with pytest.raises(PolicyError, match="what the plan promises, or announces"):
        foreseen(replace(plan, asked={}), owner)


def test_what_is_asked_is_read_by_owners(plan: GradientPlan) -> None:
    assert plan.epsilon_in_all == plan.privacy.epsilon  # type: ignore[union-attr]
    assert replace(plan, asked={**plan.asked, "epsilon": 7.0}).epsilon_in_all == 7.0
    (told,) = (each for each in remarks(plan) if "asked" in each)
    assert told == (
        'it begins what was asked for so: study "describe"; by "ward"; least 10; epsilon 6.0; '
        "delta 1e-05; colluders 0"
    )
    spoken = replace(plan, asked={**plan.asked, "columns": ["\x1b[2J", "ä"]})
    (told,) = (each for each in remarks(spoken) if "asked" in each)
    assert told.isprintable() and told.isascii()
    with pytest.raises(ParameterError, match="of_series"):
        replace(plan, of_series="ab" * 32)


@pytest.mark.parametrize("option", ["site_intercepts", "cluster"])
def test_what_a_later_sum_needs_is_asked_at_the_first(
    option: str, clinics: Hospitals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing opens where owners accept no sums of their rows alone."""
    monkeypatch.setattr("ciphercohort.study.glm.FEWEST_CLUSTERS", 2)
    opened: list[str] = []
    centre = folder_of(clinics, False)
    centre.driving = lambda tell, session, asked: (
        lambda name: opened.append(name) or clinics.drive(name)
    )
    with pytest.raises(CohortError, match="site_tables"):
        deployed.glm(centre, target="died", **{option: True})
    assert len(opened) == 1
    status = json.loads((clinics.settings.session_folder(opened[0]) / "status.json").read_text())
    assert status["state"] == "aborted" and not [*clinics.settings.folder.rglob("outcome.json")]
