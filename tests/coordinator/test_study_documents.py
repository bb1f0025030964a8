"""Documents that a sum's plan makes due: removed, changed or forged, each is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ciphercohort.deploy.check import check_deployed
from ciphercohort.study import deployed
from ciphercohort.study.deployed import KINDS
from ciphercohort.verify.session import CENTRE, session_checks
from parties.agent.vault import Vault
from parties.reader.schema import NumericColumn
from protocols.errors import ParameterError
from tests.coordinator.test_inference import Hospitals
from tests.coordinator.test_study import STAYS, folder_of, made_clinics, take_schema
from tests.parties.agents import PASSPHRASE


@pytest.fixture(scope="module")
def vault() -> Vault:
    return Vault(PASSPHRASE)


@pytest.fixture
def clinics(tmp_path: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> Hospitals:
    return made_clinics(tmp_path, vault, monkeypatch)


def study(name: str, **options: Any) -> Callable[..., Path]:
    def run(clinics: Hospitals, patch: pytest.MonkeyPatch) -> Path:
        path: Path = getattr(deployed, name)(folder_of(clinics, False), **options)[0]
        return path

    return run


def check(clinics: Hospitals, patch: pytest.MonkeyPatch) -> Path:
    clinics.agents.private = False
    filled = NumericColumn("age", 20.0, 90.0, typical=55.0, missing="typical")
    take_schema(clinics, replace(STAYS, columns=(filled, STAYS.columns[1])), patch)
    path, _ = check_deployed(clinics.settings, clinics.drive, epsilon=None, delta=1e-5, colluders=0)
    return path


WEIGHTED = {"target": "died", "propensity": "ward=B", "include": ["ward"]}
RUNS: dict[str, Callable[..., Path]] = {
    "describe": study("describe", by="ward"),
    "survival": study("survival", by="ward"),
    "cox": study("cox", curves="ward"),
    "glm": study("glm", propensity_columns=["age"], **WEIGHTED),
    "check": check,
}


def documents(folder: Path) -> tuple[list[str], str]:
    """Failed checks' names, and what is said of documents."""
    checks = [*session_checks(folder)]
    (said,) = (each.detail for each in checks if each.name == "documents")
    return [each.name for each in checks if not each.passed], said


@pytest.mark.parametrize("name", RUNS)
def test_every_document_of_every_study(
    name: str, clinics: Hospitals, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {*RUNS} == {*KINDS, "check"}
    path = RUNS[name](clinics, monkeypatch)
    folder = path.parent
    texts = {
        each: each.read_bytes()
        for each in folder.iterdir()
        if each.stat().st_size and each.is_file() and each.name not in CENTRE
    }
    assert documents(folder)[0] == [] and path in texts
    for each, text in texts.items():
        changed = text + b" "
        if each == path:
            changed = json.dumps({**json.loads(text), "rows": 7}).encode()
        states: dict[str, dict[Path, bytes | None]] = {
            "removed": {each: None},
            "changed": {each: changed},
            "changed, and nothing says of what": {
                path: None,
                each: changed if each != path else None,
            },
            "removed with it": {path: None, each: None},
        }
        for state, held in states.items():
            for other, own in held.items():
                other.unlink() if own is None else other.write_bytes(own)
            failed, said = documents(folder)
            assert failed == ["documents"], (state, each.name)
            assert all(other.name in said for other in held), (state, each.name)
            for other in held:
                other.write_bytes(texts[other])
    for stray in ("km.csv", "cox-2.tex", "b.SVG", "index.html", "glm.json", "missing.json"):
        if (own := folder / stray) not in texts:
            own.write_text("{}")
            assert documents(folder) == (
                ["documents"],
                f"{stray}: nothing that this session opened makes it",
            )
            own.unlink()


def test_a_series_that_was_interrupted_has_no_documents_yet(clinics: Hospitals) -> None:
    begun: list[str] = []

    def dying(session: str) -> dict[str, Any]:
        if len(begun) == 2:
            raise KeyboardInterrupt
        begun.append(session)
        return clinics.drive(session)

    stopped = SimpleNamespace(
        settings=clinics.settings, driving=lambda tell, session, asked=None: dying
    )
    clinics.agents.private = False
    with pytest.raises(KeyboardInterrupt):
        deployed.cox(stopped)
    first, second = (clinics.settings.session_folder(each) for each in begun)
    with pytest.raises(
        ParameterError, match=f"survival.json .* not written .*--session {begun[0]}"
    ):
        [*session_checks(first)]
    assert documents(second) == ([], "none here: of a sum a series has them at its first session")
    (second / "report.html").write_text("all of it")
    assert documents(second)[0] == ["documents"]
    (second / "report.html").unlink()
    path, _ = deployed.cox(folder_of(clinics, False), session=begun[0])
    assert path.parent == first and documents(first)[0] == []
