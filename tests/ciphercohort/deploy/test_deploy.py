"""A centre and three parties from Python: the simulation's model, its promise, its refusals.

INSECURE toy ring. Messages go straight to the agents' sockets;
`tests/whole/test_three_hospitals.py` has them go through Flower.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from ciphercohort import Coordinator, Party, evaluate, simulate
from ciphercohort.deploy import coordinator as deploy_coordinator
from ciphercohort.deploy.supervise import Background, child
from ciphercohort.results.documents import to_json
from coordinator.deployment import serve_session
from coordinator.errors import AbortedError
from coordinator.settings import NODES, Settings
from coordinator.status import read_status
from parties.agent.frames import AgentClient
from parties.reader.infer import infer_schema
from protocols.errors import CohortError, ParameterError, PolicyError
from protocols.names import SECURE_AGGREGATION
from protocols.plan.protocol import PROTOCOLS
from protocols.words import EXACT_SUMS
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


def answering(party: Party, accept: bool) -> threading.Thread:
    """The owner, who answers the next plan that waits."""

    def answer() -> None:
        while not (plans := party.pending()):
            time.sleep(0.05)
        ((digest, words),) = plans.items()
        assert "NO NOISE" in words
        (party.accept if accept else party.refuse)(digest[:8])

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
            for digest in party.pending():
                party.accept(digest[:8])

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


@pytest.mark.parametrize("command", ["evaluate", "infer"])
def test_a_command_at_the_centre_says_once_that_sums_are_exact(
    centre: Coordinator, run: Any, home: Path, command: str
) -> None:
    """On screen and log together, of one sum as of a series."""
    model = run.folder / "model.json"
    with accepting(Party(home / "west")):
        shown = cohort("coordinator", command, home / "centre", "--model", model)
    assert shown.exit_code == 0, shown.output
    assert " ".join(shown.output.split()).count(EXACT_SUMS) == 1


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
    with pytest.raises(CohortError, match="does not wait for consent"):
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
