"""Processes of a party killed between two messages: the session goes on, or says why not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from ciphercohort import Coordinator, Party
from ciphercohort.deploy import coordinator as deploy_coordinator
from ciphercohort.deploy.supervise import child
from ciphercohort.results.documents import to_json
from coordinator.deployment import serve_session
from coordinator.errors import AbortedError
from coordinator.settings import NODES, Settings
from coordinator.status import read_status
from parties import launch
from parties.agent.frames import AgentClient
from protocols.errors import CohortError, ProtocolError
from protocols.names import SECURE_AGGREGATION
from tests.ciphercohort.deploy.test_deploy import NAMES, PASSPHRASE, answering, home

__all__ = ["home"]
KILLED = NAMES[0]


class Processes:
    """Agents, each with its verifier, as `cohort party start` starts them."""

    def __init__(self, home: Path) -> None:
        self._home, self._ending = home, ExitStack()
        self.running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str) -> None:
        """Returns once it serves."""
        held = child(
            [*launch.program("parties.agent"), str(self._home / name)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        process = self._ending.enter_context(held)
        assert process.stdin and process.stdout
        print(json.dumps({"passphrase": PASSPHRASE}), file=process.stdin, flush=True)
        assert "socket" in json.loads(process.stdout.readline())
        self.running[name] = process

    def kill(self, name: str, verifier: bool = False) -> None:
        """The process with the rows, or its child; both are gone afterwards."""
        process = self.running.pop(name)
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child) if verifier else process.pid, signal.SIGKILL)
        process.wait(30)

    def stop(self) -> None:
        """All of them."""
        self._ending.close()


@pytest.fixture
def processes(home: Path) -> Iterator[Processes]:
    found = Processes(home)
    try:
        for name in NAMES:
            found.start(name)
        yield found
    finally:
        found.stop()


class Centre:
    """A coordinator's sessions, between whose messages processes are killed."""

    def __init__(self, home: Path, processes: Processes, patch: pytest.MonkeyPatch) -> None:
        self._home, self._processes = home, processes
        self._settings = home / "centre" / "coordinator.toml"
        patch.setattr(deploy_coordinator, "drive", self.drive)
        self.due: list[str] = []
        self.verifier = self.is_refused = False

    def run(self, protocol: str, due: list[str], verifier: bool = False) -> Any:
        """One training; due: steps before which KILLED is killed, and started again."""
        self.due, self.verifier = due, verifier
        text = re.sub(r'protocol = ".*"', f'protocol = "{protocol}"', self._settings.read_text())
        if protocol == SECURE_AGGREGATION:
            text = re.sub(r"(profile|ring_dim) = .*\n", "", text)
        self._settings.write_text(text)
        owner = answering(Party(self._home / "west"), accept=True)
        try:
            return Coordinator(self._home / "centre").run(tell=lambda words: None)
        finally:
            owner.join(10)

    def drive(self, settings: Settings, session: str, say: Any) -> Any:
        """In place of Flower."""
        nodes = {name: k for k, name in enumerate(settings.cards())}
        (settings.folder / NODES).write_text(to_json(nodes))
        sockets = {name: self._home / name / "agent.sock" for name in NAMES}
        clients = {name: AgentClient(path, patience=2.0) for name, path in sockets.items()}

        def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
            if step == "agree" and self.is_refused:
                self.killed_while_asked(outgoing["west"])
            if step in self.due:
                self.due.remove(step)
                self._processes.kill(KILLED, self.verifier)
                self._processes.start(KILLED)
            return {name: clients[name].handle(data) for name, data in outgoing.items()}

        try:
            serve_session(settings, session, lambda nodes, seconds: ask)
        except CohortError as error:
            say(f"over: {error}")
        return read_status(settings.session_folder(session))

    def killed_while_asked(self, request: bytes) -> None:
        """Another owner refuses while this one's is asked; it does not hear of the end."""
        party = Party(self._home / "west")
        relay = AgentClient(self._home / "west" / "agent.sock", patience=0.0)

        def offer() -> None:
            with suppress(CohortError):
                relay.handle(request)

        offering = threading.Thread(target=offer)
        offering.start()
        while not party.pending():
            time.sleep(0.05)
        self._processes.kill("west")
        offering.join(10)
        raise ProtocolError("another owner refuses")


@pytest.fixture
def centre(home: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch) -> Centre:
    return Centre(home, processes, monkeypatch)


@pytest.mark.slow
def test_a_run_that_ended_while_an_owner_was_asked_does_not_keep_its_party(
    centre: Centre, processes: Processes, home: Path
) -> None:
    """Nor after its agent was killed: the next run tells it before it enrols."""
    centre.is_refused = True
    with pytest.raises(AbortedError, match="another owner refuses"):
        Coordinator(home / "centre").run(tell=lambda words: None)
    processes.start("west")
    status = Party(home / "west").status()
    assert status["session"] is not None and status["pending"] == {}
    centre.is_refused = False
    owner = answering(Party(home / "west"), accept=False)
    with pytest.raises(AbortedError, match="'west' refuses step 'agree'"):  # its owner was asked
        Coordinator(home / "centre").run(tell=lambda words: None)
    owner.join(10)
    assert all(Party(home / name).status()["session"] is None for name in NAMES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "verifier"), [("encrypted-rows", False), ("encrypted-model", True)]
)
def test_a_killed_party_goes_on(protocol: str, verifier: bool, centre: Centre) -> None:
    """At the key ceremony, before rows are opened, in the middle of training, at its end."""
    rows = ["contribute"] if protocol == "encrypted-rows" else []
    run = centre.run(protocol, ["relinearise", *rows, "refresh/0", "decrypt"], verifier)
    assert run.status["state"] == "finished" and centre.due == []


@pytest.mark.slow
def test_a_session_of_sums_ends_with_its_process(centre: Centre) -> None:
    """Its secret is in memory only, and the reason says so."""
    with pytest.raises(AbortedError, match="in memory only"):
        centre.run(SECURE_AGGREGATION, ["round/0"])
