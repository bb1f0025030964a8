"""A centre and three parties from Python: the simulation's model, its promise, its refusals.

INSECURE toy ring. Messages go straight to the agents' sockets;
`tests/whole/test_three_hospitals.py` has them go through Flower.
"""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from ciphercohort import Coordinator, Party, evaluate, simulate
from ciphercohort.deploy import coordinator as deploy_coordinator
from ciphercohort.deploy import party as deploy_party
from ciphercohort.deploy import supervise
from ciphercohort.deploy.deployed import Session, plan_template
from ciphercohort.deploy.results import at_maximum
from ciphercohort.deploy.supervise import Background, child
from ciphercohort.job.layout import UNREADABLE
from ciphercohort.results.documents import to_json
from ciphercohort.verify.folder import verify_run
from ciphercohort.verify.session import (
    CENTRE,
    SAID_OF_TRAINING,
    _unchecked,
    centre_problems,
    differences,
    written_again,
)
from coordinator.deployment import serve_session
from coordinator.errors import AbortedError
from coordinator.settings import NODES, Settings
from coordinator.status import read_status
from parties.agent.frames import AgentClient
from parties.reader.infer import infer_schema
from protocols.errors import CohortError, ParameterError, PolicyError
from protocols.exchange.cards import Card
from protocols.models.registry import MODELS, model_named
from protocols.names import SECURE_AGGREGATION
from protocols.plan.protocol import PROTOCOLS
from protocols.words import EXACT_SUMS
from tests.ciphercohort.cli.test_brief import EVERY
from tests.ciphercohort.verify.edits import remembered, unsaid
from tests.sims.document import Document
from tests.sims.model_runs import cohort

NAMES = ("north", "south", "west")
PASSPHRASE = "correct horse battery staple"
MOST_LOADED = {"encrypted-rows": 58, "encrypted-model": 60, "secure-aggregation": 60}
"""Modules of an owner's process; the goal is 60."""
SOCKETS = shutil.ignore_patterns("*.sock*")
TRAINING: dict[str, Any] = {
    "no_privacy": True, "update": "gd", "iterations": 2, "profile": "fast-insecure",
    "ring_dim": 1024,
}  # fmt: skip


def make_rows(rows: int = 90) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"age": rng.normal(60, 10, rows), "dose": rng.normal(0, 1, rows)})
    risk = (frame["age"] - 60) / 5 + frame["dose"] + rng.logistic(size=rows)
    return frame.assign(died=(risk > 0).astype(int), site=np.resize(NAMES, rows))


FRAME = make_rows()


def local_drive(settings: Settings, session: str, say: Any) -> Any:
    """In place of Flower: serve the session here, to the agents' sockets."""
    folder, home = settings.session_folder(session), settings.folder.parent
    nodes = {name: k for k, name in enumerate(settings.cards())}
    (settings.folder / NODES).write_text(to_json(nodes))

    clients = {name: AgentClient(home / name / "agent.sock") for name in NAMES}

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        return {name: clients[name].handle(data) for name, data in outgoing.items()}

    try:
        serve_session(settings, session, lambda nodes, seconds: ask)
    except CohortError as error:
        say(f"over: {error}")
    return read_status(folder)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows and folders of a centre and three parties, all of whom know one another."""
    home = tmp_path_factory.mktemp("home")
    infer_schema(FRAME.drop(columns="site"), "died").save(home / "schema.json")
    centre = Coordinator.init(home / "centre", schema=home / "schema.json", **TRAINING)
    parties = []
    for name, rows in FRAME.groupby("site"):
        rows.drop(columns="site").to_csv(home / f"{name}.csv", index=False)
        party = Party.init(
            home / str(name),
            invitation=centre.invitation,
            data=home / f"{name}.csv",
            passphrase=PASSPHRASE,
            consent="policy" if name != "west" else "ask",
            max_epsilon=None,
            allow_insecure=True,
            keep_ledger=False,
            site_tables=name != "west",
            min_colluders=0,
            exact_sums=True,
        )
        parties.append(party)
    cards = [party.card for party in parties]
    assert [card.name for card in centre.admit(*cards)] == list(NAMES)
    for party in parties:
        party.know(*cards)
        others = {other.name: other.key for other in parties if other is not party}
        assert party.peers == others
    return home


@pytest.fixture(scope="module")
def centre(home: Path) -> Iterator[Coordinator]:
    """Opened again; all agents run here."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(deploy_coordinator, "drive", local_drive)
        for name in NAMES:
            stack.enter_context(Party(home / name).start(PASSPHRASE, only="agent"))
        yield Coordinator(home / "centre")


def test_rows_and_keys_have_a_process_of_their_own(centre: Coordinator, home: Path) -> None:
    """It loads what a party needs, whatever its parent has loaded."""
    loaded = Party(home / NAMES[0]).status()["modules"]
    assert "parties.kernel.private" in loaded
    assert {name.partition(".")[0] for name in loaded} == {"parties", "protocols"}


def copy_of(home: Path, folder: Path, **changed: str) -> Party:
    """A party's folder elsewhere; changed: fields of party.toml that are texts."""
    shutil.copytree(home / NAMES[0], folder, ignore=SOCKETS)
    settings = (folder / "party.toml").read_text()
    for name, value in {"socket": str(folder / "agent.sock"), **changed}.items():
        settings = re.sub(rf'^{name} = ".*"', f'{name} = "{value}"', settings, flags=re.M)
    (folder / "party.toml").write_text(settings)
    return Party(folder)


@pytest.mark.parametrize("change", ["nothing", "rows", "schema"])
def test_a_table_that_changed_has_a_new_card(
    change: str, home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the same keys, which the centre admits; the agent's start writes it."""
    rows = pd.read_csv(home / f"{NAMES[0]}.csv")
    (rows.head(20) if change == "rows" else rows).to_csv(tmp_path / "new.csv", index=False)
    party = copy_of(home, tmp_path / "a", data=str(tmp_path / "new.csv"))
    if change == "schema":
        own = FRAME.drop(columns=["site", "dose"])
        infer_schema(own, "died").save(party.folder / "schema.json")
    before, text = Card.load(party.card), party.card.read_text()
    with party.start(PASSPHRASE, only="agent"):
        after = Card.load(party.card)
    words = {"rows": "cohort coordinator admit", "schema": "schema.json is not that of"}
    told = words.get(change, "card.json")
    said = [line for line in caplog.messages if told in line]
    assert (party.card.read_text() == text) == (change == "nothing") == (not said)
    assert (after.name, after.identity, after.node_key) == (
        *(before.name, before.identity, before.node_key),
    )
    assert after.rows == (20 if change == "rows" else before.rows)
    assert after.num_features == before.num_features - (change == "schema")
    assert (after.schema == before.schema) == (change != "schema")
    shutil.copytree(home / "centre", tmp_path / "centre", ignore=SOCKETS)
    centre = Coordinator(tmp_path / "centre")
    if change == "schema":
        with pytest.raises(ParameterError, match="another schema"):
            centre.admit(party.card)
    else:
        centre.admit(party.card)
        assert centre.settings.cards()[party.name] == after
    with party.start(PASSPHRASE, only="agent"):
        pass
    assert len(said) == len([line for line in caplog.messages if told in line])


def test_an_owner_is_shown_what_its_agent_said(home: Path, tmp_path: Path) -> None:
    """In a file beside the node's, with times; `status` shows it of a session that ended badly."""
    party = copy_of(home, tmp_path / "a")
    with party.start(PASSPHRASE, only="agent"):
        pass
    log = tmp_path / "a/logs/agent.log"
    for _ in range(200):
        if "sandbox" in log.read_text():
            break
        time.sleep(0.05)
    assert log.stat().st_mode & 0o077 == 0 and "sandbox" in log.read_text()
    lines = ["north: session 5e551 begins", "epsilon=1.2 is above 1", "north refuses agree: why"]
    ended = "north: session 5e551 is over: aborted"  # which the status says itself
    said = ["before", *lines, ended]
    log.write_text("".join(f"2026-01-01 10:00:00 {line}\n" for line in said))
    assert [line[20:] for line in party.said()] == lines[1:]
    log.unlink()
    assert party.said() == []


@pytest.mark.parametrize("reason", ["finished", "this party refused", "aborted: see its own log"])
def test_status_and_consent_show_why_a_session_ended(
    reason: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"party": "north", "session": None, "step": "", "silent_seconds": 0.0, "pending": {}}
    found |= {"last": {"session": "5e551", "reason": reason}}
    monkeypatch.setattr(Party, "status", lambda self: found)
    monkeypatch.setattr(Party, "said", lambda self: ["epsilon=1.2 is above 1"])
    for command in ("status", "consent"):
        shown = cohort("party", command, str(home / "north")).output
        assert f"session 5e551 is over: {reason}" in shown
        assert ("epsilon=1.2 is above 1" in shown) == (reason != "finished")


OUTCOMES: dict[str, tuple[str, Any]] = {
    "logistic": ("died", {}),
    "softmax": ("ward", {"several": True}),
    "linear": ("dose", {}),
}


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("model", [None, *MODELS])
def test_a_model_goes_with_its_schema_before_anything_is_made(
    outcome: str, model: str | None, tmp_path: Path
) -> None:
    """None: that of the outcome; any other kind is refused, by function and command."""
    label, how = OUTCOMES[outcome]
    frame = FRAME.assign(ward=np.resize(["a", "b", "c"], len(FRAME)), site=0)
    asked = frame.drop(columns=[*{"died", "ward", "dose", "site"} - {label}])
    infer_schema(asked, [label] if outcome == "linear" else label, **how).save(tmp_path / "s.json")
    own = {"protocol": SECURE_AGGREGATION} if outcome == "softmax" else {}
    fits = {"one-vs-rest": "softmax"}.get(model or "", model)
    if outcome == "linear" and model and model_named(model).numeric:
        fits = "linear"
    words = ["coordinator", "init", str(tmp_path / "c"), "--schema", str(tmp_path / "s.json")]
    words += [each for name, value in own.items() for each in (f"--{name}", value)]
    words += ["--model", model] if model else []
    if model == "poisson" and outcome == "linear":
        words += ["--no-privacy"]  # its range does not begin at 0
    done = cohort(*words)
    if fits in (None, outcome) and model != "poisson":
        assert done.exit_code == 0, done.output
        training = Coordinator(tmp_path / "c").settings.training
        assert training["model"] == (model or outcome)
    else:
        assert done.exit_code == 2 and not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ('model = "logistic"', "does not go with the schema"),
        ("rounds = 0", "iterations=0"),
        ("strange = 1", "strange"),
    ],
)
def test_a_run_names_the_file_whose_training_is_wrong(
    changed: str, words: str, home: Path, tmp_path: Path
) -> None:
    shutil.copytree(home / "centre", tmp_path / "centre", ignore=SOCKETS)
    file = tmp_path / "centre" / "coordinator.toml"
    name = changed.partition(" ")[0]
    lines = [line for line in file.read_text().splitlines() if not line.startswith(f"{name} =")]
    file.write_text("\n".join([*lines, changed]) + "\n")
    if name == "model":
        own = infer_schema(FRAME[["age", "dose"]], ["dose"])
        own.save(tmp_path / "centre" / "schema.json")
        for card in map(Coordinator(tmp_path / "centre").settings.card_path, NAMES):
            fields = json.loads(card.read_text())
            card.write_text(json.dumps({**fields, "schema": own.digest()}))
    with pytest.raises(ParameterError, match=words) as found:
        plan_template(Coordinator(tmp_path / "centre").settings)
    assert str(file) in str(found.value)


def test_the_process_ends_with_the_one_that_began_it(home: Path, tmp_path: Path) -> None:
    """However that ends: here its end of the pipe is closed, as by SIGKILL."""
    folder = shutil.copytree(home / NAMES[0], tmp_path / "a", ignore=SOCKETS)
    settings = folder / "party.toml"
    settings.write_text(
        settings.read_text().replace(
            str(home / NAMES[0] / "agent.sock"), str(folder / "agent.sock")
        )
    )
    command = [sys.executable, "-m", "parties.agent", str(folder)]
    with child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        process.stdin.write(b'{"passphrase": "%s"}\n' % PASSPHRASE.encode())
        process.stdin.flush()
        assert "socket" in json.loads(process.stdout.readline())
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("wrong", "error"), [("another passphrase", PolicyError), ("", ParameterError)]
)
def test_what_keeps_it_from_serving_is_told(wrong: str, error: type, home: Path) -> None:
    with pytest.raises(error, match="passphrase"):
        Party(home / NAMES[0]).start(wrong, only="agent")


def test_a_killed_agent_ends_what_has_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else has the passphrase; an agent that was told to stop is not told of."""
    code = "import os, sys, time; open(sys.argv[1] + '/pid', 'w').write(str(os.getpid()))"
    code += '; print(\'{"socket": "", "rows": 1}\', flush=True); time.sleep(99)'
    monkeypatch.setattr(deploy_party.launch, "program", lambda name: [sys.executable, "-c", code])
    for kill in (True, False):
        ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        with deploy_party._agent(SimpleNamespace(folder=tmp_path), PASSPHRASE, ended):  # type: ignore[arg-type]
            if kill:
                os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
                assert supervise.until_stopped(ended) == "agent"
        assert ended.empty()


def test_the_command_ends_with_its_agent(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(self: Party, *args: Any, **options: Any) -> Party:
        self.ended.put("agent")
        return self

    monkeypatch.setattr(Party, "start", started)
    monkeypatch.setattr("ciphercohort.cli.party._passphrase", lambda *args, **options: PASSPHRASE)
    assert cohort("party", "start", str(home / "north")).exit_code == 2


def test_every_option_of_init_is_one_of_the_command_and_is_written(
    home: Path, tmp_path: Path
) -> None:
    known = {option.name for option in EVERY["party init"]} | {"folder"}
    elsewhere = {"accept_no_privacy": "max_epsilon", "no_ledger": "keep_ledger"}
    named = {elsewhere.get(name, name).replace("protocol", "protocols") for name in known}
    assert set(signature(Party.init).parameters) - {"passphrase"} == named - {
        *("debug", "passphrase_file")
    }
    rows = pd.read_csv(home / "north.csv").assign(dose=99.0)
    rows.to_csv(tmp_path / "far.csv", index=False)
    secret = tmp_path / "secret"
    secret.write_text(PASSPHRASE)
    asked = ["--invitation", home / "centre/invitation.json", "--passphrase-file", secret]
    for data, code in ((tmp_path / "far.csv", 2), (home / "north.csv", 0)):
        given = ["party", "init", tmp_path / "x", "--data", data, "--strict", *asked]
        assert cohort(*map(str, given)).exit_code == code
        assert (tmp_path / "x").exists() == (code == 0)
    assert Party(tmp_path / "x").settings.strict


def answering(party: Party, accept: bool) -> threading.Thread:
    """The owner, who answers the next plan that waits."""

    def answer() -> None:
        while not (plans := party.pending()):
            time.sleep(0.05)
        ((code, words),) = plans.items()
        assert "NO NOISE" in words
        (party.accept if accept else party.refuse)(code)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


@pytest.fixture(scope="module")
def run(centre: Coordinator, home: Path) -> Any:
    owner, told = answering(Party(home / "west"), accept=True), list[str]()
    run = centre.run(tell=told.append)
    owner.join(10)
    session, headline = told
    assert session == f"session {run.session}" and headline.startswith("EXACT SUMS")
    return run


def test_the_model_is_that_of_the_simulation(run: Any, home: Path) -> None:
    data: dict[str, Any] = {"data": FRAME, "label": "died", "split": "by:site"}
    data |= {"schema": home / "schema.json", "test": home / "north.csv"}
    found = simulate(**data, **TRAINING)
    np.testing.assert_allclose(run.model.weights, found.weights, atol=1e-4)
    assert np.abs(run.model.weights).max() > 1e-2
    assert run.plan.protocol == found.plan.protocol and run.plan.num_rows == found.plan.num_rows
    assert run.status["state"] == "finished" and (run.folder / "model.json").exists()


def test_an_evaluation_is_that_of_the_simulation(centre: Coordinator, run: Any, home: Path) -> None:
    owner = answering(Party(home / "west"), accept=True)
    found = centre.evaluate(run.model, sites=["north"], tell=lambda words: None)
    owner.join(10)
    known = evaluate(run.model, FRAME, split="by:site", sites=("north",))
    for key in ("auc", "accuracy", "confusion", "positives"):
        assert found.figures[key] == known.figures[key]
        assert found.sites["north"][key] == known.sites["north"][key]
    chance = run.model.predict_proba(FRAME)[:, 1]
    bound = found.figures.auc_error_bound
    assert found.figures.auc == pytest.approx(
        roc_auc_score(FRAME["died"], chance), abs=bound + 1e-9
    )
    assert Document(found._repr_html_()).cells == Document(known._repr_html_()).cells
    assert "north: 30 rows, area under ROC" in found._repr_html_()


@contextmanager
def accepting(party: Party) -> Iterator[None]:
    """The owner, who accepts whatever waits."""
    over = threading.Event()

    def accept() -> None:
        while not over.wait(0.05):
            for code in party.pending():
                party.accept(code)

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


@pytest.fixture(scope="module")
def followed(centre: Coordinator, run: Any, home: Path) -> dict[str, Any]:
    """What commands show that follow a training."""
    shown = {}
    with accepting(Party(home / "west")):
        for command in ("evaluate", "infer"):
            model = ("--model", run.folder / "model.json")
            shown[command] = cohort("coordinator", command, home / "centre", *model)
    return shown


@pytest.mark.parametrize("command", ["evaluate", "infer"])
def test_a_command_at_the_centre_says_once_that_sums_are_exact(
    followed: dict[str, Any], command: str
) -> None:
    """On screen and log together, of one sum as of a series."""
    shown = followed[command]
    assert shown.exit_code == 0, shown.output
    assert " ".join(shown.output.split()).count(EXACT_SUMS) == 1


ABOUT_SESSIONS = {"status.json", "session.json", "plan.json", "outcome.json"}
"""Of every session: whose ring it is, they say in figures (`security_bits`)."""


def test_whatever_is_of_a_toy_ring_says_so(
    followed: dict[str, Any], run: Any, home: Path, tmp_path: Path
) -> None:
    """Every document that a training and what follows it leave, and every command."""
    shown = {name: each.output for name, each in followed.items()}
    options = ("--no-privacy", "--profile", "fast-insecure", "--schema", home / "schema.json")
    shown["init"] = cohort("coordinator", "init", tmp_path / "centre", *options).output
    for command, output in shown.items():
        assert "INSECURE" in output, command
    assert "INSECURE" in run._repr_html_() + run.model._repr_html_()
    made = [
        path
        for path in (home / "centre" / "sessions").glob("*/*")
        if path.suffix in (".json", ".tex", ".html") and path.name not in ABOUT_SESSIONS
    ]
    names = {path.name for path in made}
    assert {"model.json", "run.json", "report.html", "evaluation.json", "inference.tex"} <= names
    assert [str(path) for path in made if "INSECURE" not in path.read_text()] == []


UNSAID = {
    ("status.json", name)
    for name in (
        *("attempts", "culprit", "number", "phase", "reason", "series", "step"),
        "updated",
    )
} | {("session.json", name) for name in ("created", "wanted", "before", "asked")}
UNSAID |= {("session.json", name) for name in ("plan.session", "plan.members.commitment")}
"""Fields that no other document tells."""


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of every field of a document, of lists the first entry and the last."""
    pairs = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        pairs = {k: value[k] for k in (0, len(value) - 1) if value}.items()
    for key, each in pairs:
        yield from places(each, (*at, key))
    if not isinstance(value, (dict, list)):
        yield at


def changed(value: Any, at: tuple[Any, ...]) -> Any:
    """The document with another value there."""
    if not at:
        if isinstance(value, str) or value is None:
            return f"{value}x"
        return not value if isinstance(value, bool) else value + max(abs(value) * 1e-6, 1e-12)
    found = dict(value) if isinstance(value, dict) else list(value)
    found[at[0]] = changed(value[at[0]], at[1:])
    return found


def found(session: Session) -> list[str]:
    """Problems of what the centre alone has; a file of another shape is one."""
    try:
        return list(centre_problems(session))
    except UNREADABLE as error:
        return [str(error)]


@pytest.mark.parametrize("where", ["centre", "north"])
def test_no_field_of_a_document_can_be_changed(
    where: str, followed: dict[str, Any], run: Any, home: Path
) -> None:
    """At the centre and at an owner; each document of trainings and of what follows them."""
    if where == "north":
        Party(home / "north").results()
    seen = set[str]()
    for folder in (home / where / "sessions").iterdir():
        if not (folder / "outcome.json").exists():
            continue
        own = Session.of(folder)
        due, _ = written_again(own)
        assert not list(differences(folder, due))
        for name, good in due.items():
            path = folder / name
            seen.add(name)
            fields = json.loads(good) if path.suffix == ".json" else good.splitlines()
            for at in places(fields):
                other = changed(fields, at)
                text = json.dumps(other) if path.suffix == ".json" else "\n".join(other)
                path.write_text(text)
                assert list(differences(folder, due)), (name, at)
            path.write_text(good)
        beside = ("session.json", "status.json") if where == "centre" else ()
        for name in beside:
            path = folder / name
            good = path.read_text()
            for at in places(json.loads(good)):
                path.write_text(json.dumps(changed(json.loads(good), at)))
                field = ".".join(str(key) for key in at if not isinstance(key, int))
                is_free = {(name, field), (name, str(at[0]))} & UNSAID
                assert bool(is_free) != bool(found(own)), (name, at)
            path.write_text(good)
    every = {"plan.json", "model.json", "report.html", "inference.json", "inference.tex"}
    assert seen == every | ({"run.json", "evaluation.json"} if where == "centre" else set())


@pytest.mark.parametrize("where", ["centre", "north"])
def test_no_edit_of_a_training_goes_unsaid(
    where: str,
    followed: dict[str, Any],
    run: Any,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of any file of the folder; at the centre, of the sums beside it too."""
    Party(home / "north").results()
    remembered(monkeypatch)
    folder = home / where / "sessions" / run.session
    assert unsaid(folder, every=29) == []
    told = [
        re.findall("SHA-256 [0-9a-f]+", each.detail)
        for path in (folder, home / "north/sessions" / run.session)
        for each in verify_run(path)
        if each.name == "outcome"
    ]
    assert len(told) == 2 and told[0] == told[1] != []
    if where == "centre":
        (folder / "session.json").rename(folder / "kept")
        assert "session" in {each.name for each in verify_run(folder) if not each.passed}
        (folder / "kept").rename(folder / "session.json")
        stripped = tmp_path / run.session
        stripped.mkdir()
        for name in {each.name for each in folder.iterdir()} - set(CENTRE) | {"outcome.json"}:
            shutil.copy(folder / name, stripped / name)
        assert "session" in {each.name for each in verify_run(stripped) if not each.passed}
        for beside in folder.parent.glob("*/outcome.json"):
            good = beside.read_text()
            fields = json.loads(good)
            beside.write_text(json.dumps({**fields, "weights": changed(fields["weights"], (0,))}))
            assert any(not each.passed for each in verify_run(beside.parent))
            beside.write_text(good)


@pytest.mark.parametrize("document", ["inference.json", "evaluation.json"])
def test_a_sum_is_of_the_training_that_opened_its_model(
    document: str, followed: dict[str, Any], run: Any, home: Path
) -> None:
    """Whatever documents beside it say."""
    sessions = home / "centre" / "sessions"
    path = next(p for p in sessions.glob(f"*/{document}") if p.parent.name != run.session)
    model, false = sessions / run.session / "model.json", sessions / ("f" * 32)
    kept = {each: each.read_text() for each in (path, model)}
    assert json.loads(kept[path])["trained_in"] == run.session
    assert all(check.passed for check in verify_run(path.parent))
    said = {each: json.loads(text) for each, text in kept.items()}
    false.mkdir()
    (false / "model.json").write_text(json.dumps({**said[model], "session": false.name}))
    model.write_text(json.dumps({**said[model], "session": false.name}))
    path.write_text(json.dumps({**said[path], "trained_in": false.name}))
    (failed,) = (check for check in verify_run(path.parent) if not check.passed)
    assert failed.name == "documents" and "is not in the sessions beside" in failed.detail
    for each, text in kept.items():
        each.write_text(text)
    shutil.rmtree(false)


@pytest.mark.parametrize("document", SAID_OF_TRAINING)
def test_a_sum_states_the_training_that_it_is_of(
    document: str, followed: dict[str, Any], run: Any, home: Path, tmp_path: Path
) -> None:
    """Another of the same owners, or of others, is refused; where none is stated it is named."""
    sessions = Path(shutil.copytree(home / "centre", tmp_path / "centre")) / "sessions"
    path = next(p for p in sessions.glob(f"*/{document}") if p.parent.name != run.session)
    session = Session.of(path.parent)
    assert session.plan.of_training == run.plan.digest()
    none = replace(session, plan=replace(session.plan, of_training=""))
    for each, is_named in ((none, True), (session, False)):
        words = " ".join(_unchecked(each, {document: "{}"}, True))
        assert all((name in words) == is_named for name in SAID_OF_TRAINING[document])
    outcome = sessions / run.session / "outcome.json"
    fields = json.loads(outcome.read_text())
    first, *rest = fields["plan"]["members"]
    for change in (
        {"members": [{**first, "verify_key": "ab" * 32}, *rest]},
        {"schema": {**fields["plan"]["schema"], "more": 1}},
    ):
        outcome.write_text(json.dumps({**fields, "plan": {**fields["plan"], **change}}))
        (failed,) = (check for check in verify_run(path.parent) if not check.passed)
        assert failed.name == "documents" and "are of the training by plan" in failed.detail


def test_a_training_with_an_epsilon_does_not_end_at_exact_sums() -> None:
    """Its weights would be those of no noise, under a certificate."""
    plan: Any = SimpleNamespace(privacy="epsilon 1", session="a" * 32)
    release: Any = SimpleNamespace(plan=plan)
    sums: Any = "of exact sums"
    assert at_maximum(release, sums) is release


def test_whatever_a_session_is_due_is_asked_for(
    followed: dict[str, Any], run: Any, home: Path, tmp_path: Path
) -> None:
    """Its evaluation, its own name, and of an owner's outcome nothing beside what it was told."""
    Party(home / "north").results()
    sessions = Path(shutil.copytree(home / "centre", tmp_path / "centre")) / "sessions"
    judged = next(p for p in sessions.glob("*/evaluation.json") if p.parent.name != run.session)
    judged.unlink()
    (failed,) = (each for each in verify_run(judged.parent) if not each.passed)
    assert "evaluation.json is missing" in failed.detail
    own = home / "north/sessions" / run.session
    other = Path(shutil.copytree(own, tmp_path / "other"))
    assert "folder" in {each.name for each in verify_run(other) if not each.passed}
    outcome, good = own / "outcome.json", (own / "outcome.json").read_text()
    fields = json.loads(good)
    try:
        outcome.write_text(json.dumps({**fields, "digest": "0" * 64, "missing": ["south"]}))
        (words,) = (each.detail for each in verify_run(own) if each.name == "not checked")
        assert "outcome.json (digest, missing)" in words
        outcome.write_text(json.dumps({**fields, "weights": [str(w) for w in fields["weights"]]}))
        with pytest.raises(ParameterError, match="weights: not numbers"):
            Session.of(own)
    finally:
        outcome.write_text(good)


def test_what_a_hospital_was_told_of_a_sum_has_the_centres_digest(
    followed: dict[str, Any], run: Any, home: Path
) -> None:
    own = Party(home / "north").sums()
    assert len(own) > 2 and run.session not in {each.name for each in own}
    for folder in own:
        told = []
        for session in (folder, home / "centre/sessions" / folder.name):
            checks = {check.name: check for check in verify_run(session)}
            assert all(check.passed for check in checks.values())
            told.append(re.findall("SHA-256 [0-9a-f]{64}", checks["outcome"].detail))
        assert told[0] == told[1] != []
        assert "the centre has them" in verify_run(folder)[2].detail


def test_a_session_without_the_sums_of_its_table_does_not_verify(
    followed: dict[str, Any], run: Any, home: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(run.folder, tmp_path / run.session))
    (failed,) = (each for each in verify_run(folder) if not each.passed)
    assert failed.name == "documents" and "are not beside" in failed.detail
    table = json.loads((run.folder / "inference.json").read_text())
    (run.folder / "inference.json").write_text(json.dumps(changed(table, ("rows", 0, "p"))))
    names = {each.name for each in verify_run(run.folder) if not each.passed}
    (run.folder / "inference.json").write_text(to_json(table))
    assert names == {"documents"} and all(each.passed for each in verify_run(run.folder))


def test_an_owner_who_refuses_ends_the_run_with_a_reason(centre: Coordinator, home: Path) -> None:
    owner = answering(Party(home / "west"), accept=False)
    with pytest.raises(AbortedError, match="the owner refuses plan") as caught:
        centre.run(tell=lambda words: None)
    owner.join(10)
    assert caught.value.culprit == "west"
    latest = centre.status()[0]
    assert (latest["session"], latest["state"]) == (caught.value.session, "aborted")
    with pytest.raises(AbortedError, match="the owner refuses plan"):
        centre.run(caught.value.session, tell=lambda words: None)


def test_status_and_statement(centre: Coordinator, run: Any, home: Path, tmp_path: Path) -> None:
    party = Party(home / "north")
    assert (party.status()["party"], party.status()["session"]) == ("north", None)
    assert party.abort() is None
    assert party.statement(tmp_path / "statement", run.session).stat().st_size > 64
    with pytest.raises(CohortError, match="no plan waits for consent"):
        party.accept("ffffffff")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda home: Coordinator(home), ParameterError, "coordinator.toml"),
        (lambda home: Party(home), ParameterError, "party.toml"),
        (lambda home: Party(home / "north").start(), ParameterError, "the passphrase is missing"),
        (lambda home: Party(home / "north").start("another passphrase"), PolicyError, "is wrong"),
        (lambda home: Party(home / "north").start(only="both"), ParameterError, "only='both'"),
        (
            lambda home: Coordinator.init(home / "x", schema=home / "schema.json", label="y"),
            ParameterError,
            "label is no option of Coordinator.init",
        ),
        (
            lambda home: Coordinator.init(
                home / "x", schema=home / "schema.json", no_privacy=True, epsilon=1.0
            ),
            ParameterError,
            "no-privacy is given together with",
        ),
        (
            lambda home: Party.init(
                home / "x", invitation=home / "centre/invitation.json", data=home / "north.csv"
            ),
            ParameterError,
            "the passphrase is missing",
        ),
    ],
)
def test_refusals(home: Path, call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call(home)
    assert not (home / "x").exists()


def test_what_fails_while_it_starts_leaves_nothing_behind() -> None:
    ended, host = list[str](), Background("host")
    with pytest.raises(ZeroDivisionError), host.starting() as stack:
        stack.callback(ended.append, "first")
        raise ZeroDivisionError
    assert ended == ["first"] and "running" not in repr(host)
    with host:
        with host.starting() as stack:
            stack.callback(ended.append, "second")
        assert "running" in repr(host)
        with pytest.raises(ParameterError, match="host runs already"), host.starting():
            pass
        assert ended == ["first"]
    assert ended == ["first", "second"] and "running" not in repr(host)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_live_agent_loads_nothing_that_is_not_listed(
    protocol: str, centre: Coordinator, home: Path
) -> None:
    """Of this protocol and of all that its process has done before; see `cohort party trusted`."""
    settings = centre.folder / "coordinator.toml"
    kept = settings.read_text()
    try:
        text = re.sub(r'protocol = ".*"', f'protocol = "{protocol}"', kept)
        ring = r"(profile|ring_dim) = .*\n" if protocol == SECURE_AGGREGATION else "$^"
        settings.write_text(re.sub(ring, "", text))
        owner = answering(Party(home / "west"), accept=True)
        run = Coordinator(centre.folder).run(tell=lambda words: None)
        owner.join(10)
    finally:
        settings.write_text(kept)
    assert run.plan.protocol == protocol and run.status["state"] == "finished"
    status = Party(home / NAMES[0]).status()
    assert "protocols.plan.kinds" in status["verifier_modules"]
    told = json.loads(cohort("party", "trusted", "--live", home / NAMES[0], "--json").stdout)
    assert told["loaded"] == status["modules"] and told["beyond"] == []
    # Of what any owner's process loads, and of this protocol's.
    others = {n for p in PROTOCOLS if p != protocol for n in told["protocols"][p]["modules"]}
    own = {*told["loaded"]} - (others - {*told["protocols"][protocol]["modules"]})
    assert len(own) <= MOST_LOADED[protocol]
