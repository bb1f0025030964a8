"""Whatever session a command of the centre is given: it goes on rightly, or says what does."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import ciphercohort.deploy.coordinator as deployed
from ciphercohort.cli.app import app
from ciphercohort.cli.options import each_name
from ciphercohort.deploy import drive
from ciphercohort.deploy.asked import Asked as Read
from ciphercohort.deploy.deployed import first_of, goes_on_by, plan_template, session_fields
from ciphercohort.report.status_page import LACKS_MORE, status_tables
from ciphercohort.study import deployed as studies
from coordinator.deployment import NUMBER, SERIES, create_session
from coordinator.settings import Settings
from coordinator.status import OVER, Status, read_status
from protocols.errors import ParameterError
from protocols.exchange.serialise import to_plain
from protocols.names import RANGES_VIEW
from protocols.plan.kinds import plan_from_dict
from tests.coordinator import test_inference as tables
from tests.coordinator.test_maximum_of_training import Centre
from tests.coordinator.test_study import STAYS

RUN, SUMS = "run", "infer"
STUDIES: dict[str, dict[str, Any]] = {
    "describe": {},
    "survival": {},
    "cox": {},
    "glm": {"target": "died", "family": "binomial"},
}


class DrivenError(Exception):
    """A session is seen through, in place of Flower."""


class Asked:
    """A trained model, whose exact sums do not follow yet, and every command of its centre."""

    def __init__(self, trained: Centre, patch: pytest.MonkeyPatch) -> None:
        self.centre, self.driven = trained.centre, list[str]()
        self.settings, self.training = trained.centre.settings, trained.folder
        path = self.settings.folder / "coordinator.toml"
        path.write_text(path.read_text().replace("as_trained = true\n", ""))
        self.centre.settings = self.settings = Settings.load(self.settings.folder)
        patch.setattr(deployed, "drive", self.drive)
        patch.setattr(deployed, "let_go", lambda *_: None)
        self.commands: dict[str, Callable[..., Any]] = {
            RUN: self.centre.run,
            SUMS: lambda **terms: self.centre.infer(self.training, **terms),
            "infer, private": lambda **t: self.centre.infer(self.training, epsilon=10.0, **t),
            "infer, elsewhere": lambda **terms: self.centre.infer(tables.MODEL, **terms),
            "evaluate": lambda **terms: self.centre.evaluate(self.training, **terms),
            "check": self.centre.check,
            **{name: self.study(name, given) for name, given in STUDIES.items()},
        }

    def drive(self, settings: Settings, session: str, tell: Any) -> Any:
        status = read_status(settings.session_folder(session)) or {}
        if status["state"] in OVER:
            return status
        self.driven.append(session)
        raise DrivenError

    def study(self, name: str, given: dict[str, Any]) -> Callable[..., Any]:
        def run(**terms: Any) -> None:
            schema = self.settings.folder / "schema.json"
            before = schema.read_text()
            schema.write_text(before if name == "describe" else STAYS.to_json())
            try:
                getattr(studies, name)(self.centre, **given, **terms)
            finally:
                schema.write_text(before)

        return run

    def by_line(self, line: list[str]) -> str:
        """As `outcome`, by the words of a command line."""
        self.driven.clear()
        schema = self.settings.folder / "schema.json"
        before = schema.read_text()
        if line[2] in ("survival", "glm"):
            schema.write_text(STAYS.to_json())
        try:
            done = CliRunner().invoke(app, line[1:])
        finally:
            schema.write_text(before)
        if isinstance(done.exception, DrivenError):
            return self.driven[-1]
        return " ".join(done.output.split())

    def outcome(self, command: str, session: str | None) -> str:
        """The session that it sees through, else why it refuses."""
        self.driven.clear()
        try:
            self.commands[command](session=session, tell=lambda words: None)
        except DrivenError:
            return self.driven[-1]
        except ParameterError as error:
            assert not self.driven
            return str(error)
        return "over"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    monkeypatch.setattr(tables, "FRAMES", dict(tables.FRAMES))
    yield Asked(Centre(tmp_path, monkeypatch), monkeypatch)


def test_every_command_goes_on_or_says_what_does(asked: Asked) -> None:
    settings, run = asked.settings, f"cohort coordinator run {asked.settings.folder} --session "
    begun = {name: (asked.outcome(name, None), name) for name in asked.commands}
    for name, (first, _) in [*begun.items()]:
        fields = session_fields(settings, first)
        if SERIES in fields["wanted"]:
            series = {SERIES: first, NUMBER: 1}
            second = create_session(settings, plan_from_dict(fields["plan"]), series)
            begun[f"{name}, its second"] = (second, name)
    moments = {"update": "quadratic-gd", "epsilon": 5.0, "colluders": 0}
    plan, wanted = plan_template(msgspec.structs.replace(settings, training=moments))
    assert plan.sums_moment
    begun["a second moment"] = (create_session(settings, plan, to_plain(wanted)), RUN)
    begun["a training that is over"] = (asked.training.name, RUN)
    assert len(begun) == 20
    for kind, (session, own) in begun.items():
        for name in asked.commands:
            found, what = asked.outcome(name, session), (kind, name)
            if session == asked.training.name and name == RUN:
                assert found == begun[SUMS][0], what  # the sums that were begun go on
            elif name == own or (name, own) in ((RUN, SUMS), (SUMS, "infer, private")):
                assert found == first_of(settings, session), what
            else:
                assert goes_on_by(settings, session) in found, what
        line = goes_on_by(settings, session)
        assert line.endswith(f" --session {first_of(settings, session)}"), kind
        assert line.startswith(run) == (own == RUN), kind
    for name in asked.commands:
        assert "there is no session 'none'" in asked.outcome(name, "none"), name


@pytest.mark.parametrize("second", [False, True])
def test_the_command_line_that_is_named_goes_on(asked: Asked, second: bool) -> None:
    """Of each command that begins a session: by nothing but the session, or the line as printed."""
    for name in asked.commands:
        session = first = asked.outcome(name, None)
        fields = session_fields(asked.settings, first)
        if second and SERIES in fields["wanted"]:
            series = {SERIES: first, NUMBER: 1}
            session = create_session(asked.settings, plan_from_dict(fields["plan"]), series)
        line = shlex.split(goes_on_by(asked.settings, session))
        assert line[:2] == ["cohort", "coordinator"] and line[-2:] == ["--session", first], name
        if "elsewhere" in name:
            continue  # its model is in memory alone
        assert asked.by_line(line) == first, name
        bare = [*line[:2], *name_of(line), str(asked.settings.folder), "--session", session]
        assert asked.by_line(bare) == first, name
        if name != RUN:
            found = asked.by_line([*bare, "--epsilon", "3.25"])
            assert "epsilon=3.25, and it began with" in found and shlex.join(line) in found, name


def name_of(line: list[str]) -> list[str]:
    """Of a command, its model of survival included."""
    return [*line[2:3], *(["--model", "cox"] if "cox" in line else [])]


def test_status_names_the_command_line(asked: Asked) -> None:
    moments = {"update": "quadratic-gd", "epsilon": 5.0, "colluders": 0}
    plan, wanted = plan_template(msgspec.structs.replace(asked.settings, training=moments))
    first = create_session(asked.settings, plan, to_plain(wanted))
    due = asked.outcome("infer, private", None)
    told = " ".join(str(each) for each in status_tables(asked.centre.status()))
    for session in (first, due):
        assert goes_on_by(asked.settings, session) in told
    assert f"run {asked.settings.folder} --session {first}" in told
    assert f"--model {asked.training / 'model.json'} --epsilon 10.0 --session {due}" in told


def test_a_finished_session_whose_command_has_more_to_do_says_so(asked: Asked) -> None:
    """A second moment without its training, a training without its exact sums: before another."""
    settings, training = asked.settings, asked.training.name

    def told() -> list[str]:
        said = list[str]()
        drive.let_go(settings, said.append)
        shown = " ".join(str(each) for each in status_tables(asked.centre.status()))
        assert all(LACKS_MORE in text for text in said) and bool(said) == (LACKS_MORE in shown)
        return said

    (words,) = told()
    assert words.startswith(f"session {training} is finished") and "now another" in words
    assert goes_on_by(settings, training) in words
    path = asked.training / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"view": RANGES_VIEW}))
    assert not told()
    moments = {"update": "quadratic-gd", "epsilon": 5.0, "colluders": 0}
    plan, wanted = plan_template(msgspec.structs.replace(settings, training=moments))
    for state, is_told in (("aborted", False), ("finished", True)):
        first = create_session(settings, plan, to_plain(wanted))
        Status(settings.session_folder(first), {}).save(state=state)
        assert bool(told()) is is_told, state
    create_session(settings, plan, to_plain(wanted), first)
    assert not told()


def test_an_option_of_names_is_quoted_for_both_readers() -> None:
    given = {"sites": ("a b", 'c,"d'), "cluster": True, "bins": 30, "family": "binomial"}
    line = Read.of("glm", given, {"family": "binomial"}, {"bins": "grid"}).line()
    flags = ["--sites", "a b", "--sites", '"c,""d"', "--cluster", "--grid", "30"]
    assert line == flags and each_name([line[1], line[3]]) == ["a b", 'c,"d']


def test_a_training_goes_on_with_sums_of_which_none_was_aborted(asked: Asked) -> None:
    """Else it begins them anew: an aborted session never goes on."""
    first = asked.outcome(SUMS, None)
    Status(asked.settings.session_folder(first), {}).save(state="aborted")
    again = asked.outcome(RUN, asked.training.name)
    assert again not in (first, "over") and asked.outcome(RUN, asked.training.name) == again
