"""What is given in the place of a folder or a model: the refusal says what is due there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ciphercohort.results.predict import ReleasedModel
from parties.reader.schema import Schema
from tests.coordinator.test_inference import MODEL
from tests.sims.model_runs import cohort

HOME = {"coordinator": "centre", "party": "hospital"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Folders of both roles, each with a session that trained, or not, and is not written out."""
    for role, name in HOME.items():
        session = tmp_path / name / "sessions" / "abc"
        session.mkdir(parents=True)
        (tmp_path / name / f"{role}.toml").touch()
        (session / "outcome.json").write_text("{}")
    (tmp_path / "plan.json").write_text(json.dumps({"kind": "rows"}))
    return tmp_path


COMMANDS = {
    "coordinator": (("run",), ("status",), ("check",), ("describe",), ("start",), ("abort",)),
    "party": (("start",), ("status",), ("results",), ("consent",), ("peers", "list")),
}


@pytest.mark.parametrize(
    ("role", "words"), [(role, words) for role, all_ in COMMANDS.items() for words in all_]
)
def test_a_folder_of_the_other_role_is_told_from_none(
    role: str, words: tuple[str, ...], home: Path
) -> None:
    other = next(each for each in HOME if each != role)
    for folder, cure in (
        (HOME[other], f"is the folder of a {other}: its commands are cohort {other}"),
        ("nowhere", f"give the folder that cohort {role} init made"),
    ):
        told = cohort(role, *words, home / folder)
        said = " ".join((told.stdout + told.stderr).split())
        assert told.exit_code == 2 and cure in said and "…" not in said, said


def test_verify_says_what_folder_is_due(home: Path) -> None:
    for name in HOME.values():
        told = cohort("verify", home / name)
        sessions = f"give one of its sessions, {home / name}/sessions/ID"
        assert told.exit_code == 2 and sessions in " ".join(told.stderr.split())
    told = cohort("verify", home / "plan.json")
    assert f"give the folder that it is in, {str(home)!r}" in " ".join(told.stderr.split())


def test_a_model_that_is_not_written_yet_is_named(home: Path) -> None:
    rows = home / "rows.csv"
    rows.write_text("x\n1\n")
    for model, cure in (
        (home / "hospital/sessions/abc", "cohort party results writes them"),
        (home / "hospital", f"give one of its sessions, {home / 'hospital'}/sessions/ID"),
        (home / "none.json", "check the path"),
        (home / "plan.json", "give model.json of a training"),
    ):
        told = cohort("predict", "--model", model, "--data", rows)
        assert told.exit_code == 2 and cure in " ".join(told.stderr.split()), cure


def test_a_budget_is_offered_where_there_is_one(tmp_path: Path) -> None:
    for command, offered in ((("plan",), True), (("coordinator", "init"), False)):
        told = " ".join(cohort(*command, "--help-all").output.replace("│", " ").split())
        assert ("any: with --within" in told) is offered, command
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(MODEL.schema.to_dict()))
    options = ("--schema", schema, "--protocol", "any", "--no-privacy")
    told = cohort("coordinator", "init", tmp_path / "centre", *options)
    said = " ".join(told.stderr.split())
    assert told.exit_code == 2 and "add --within" not in said and "encrypted-rows" in said
    assert not (tmp_path / "centre").exists()


def test_a_model_shows_itself_in_a_line_and_in_a_table() -> None:
    assert isinstance(MODEL, ReleasedModel) and isinstance(MODEL.schema, Schema)
    text = repr(MODEL)
    assert text.startswith("ReleasedModel(") and len(text) < 120 and "Schema(" not in text
    assert "<table>" in MODEL._repr_html_()


def test_exit_codes_are_in_the_help() -> None:
    assert "or a run was aborted" in " ".join(cohort("--help").output.split())
