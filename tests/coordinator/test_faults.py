"""Faults of the network and of parties, at every step and for every party.

Each ends in the twin's model or in an abort that names the party; never in a hang, and never in
another model. INSECURE toy ring, Flower's objects in one process, time-outs of milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

import coordinator.flower_app as coordinator_app
import parties.flower_app as party_app
from protocols.errors import ProtocolError
from sims.local import SERVER_NODE, LocalGrid
from tests.helpers import Session, log2_error, make_session

SMALL: dict[str, Any] = {"ring_dim": 512, "degree": 3, "update": "gd", "rows": 4, "rounds": 2}
PARTIES = ("hospital-1", "hospital-2")
MODEL, ABORT = "the twin's model", "an abort that names the party"
FAULTS = {
    "kill": ABORT,  # the party raises, from now on
    "vanish": ABORT,  # its reply is lost
    "late": MODEL,  # its reply comes with the third pull
    "resend": MODEL,  # the request arrives twice: byte-identical replies
    "stale": MODEL,  # the request of the step before arrives again first
    "reorder": MODEL,  # the last request is delivered, and its reply pulled, first
    "echo": MODEL,  # its reply is pulled twice
}


class Faulty(LocalGrid):
    """A grid on which one fault of FAULTS happens, at one step to one party."""

    def __init__(self, session: Session, fault: str, step: str, name: str) -> None:
        prefix = f"{session.coordinator.session}/"
        self.nodes = {name: SERVER_NODE + 1 + k for k, name in enumerate(PARTIES)}
        super().__init__({node: f"local:{prefix}{name}" for name, node in self.nodes.items()})
        self.handlers = {
            prefix + name: Handler(self, name, p) for name, p in session.parties.items()
        }
        self.fault, self.at, self.name = fault, step, name
        self.step, self.pulls, self.happened = "", 0, False
        self.kept: dict[str, Message] = {}

    def hits(self, name: str, *faults: str) -> bool:
        """Whether it happens now."""
        now = self.fault in faults and (self.step, self.name) == (self.at, name)
        self.happened |= now
        return now

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Note the step."""
        messages = list(messages)
        if self.step != messages[0].metadata.group_id:
            self.step, self.pulls = messages[0].metadata.group_id, 0
        return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Deliver what is due, in the order that the fault leaves."""
        self.pulls += 1
        due = list(message_ids)
        if self.hits(self.name, "reorder") and self.pulls == 1:
            due = []
        fresh = [i for i in due if i not in self.kept]
        for identifier, reply in zip(fresh, super().pull_messages(fresh), strict=True):
            self.kept[identifier] = reply
        arrived = [self.kept[i] for i in due if self._arrives(self.kept[i])]
        return arrived + [reply for reply in arrived if self.hits(self._sender(reply), "echo")]

    def _sender(self, reply: Message) -> str:
        return next(n for n, node in self.nodes.items() if node == reply.metadata.src_node_id)

    def _arrives(self, reply: Message) -> bool:
        name = self._sender(reply)
        if self.hits(name, "vanish"):
            return False
        return not (self.hits(name, "late") and self.pulls < 3)


class Handler:
    """A party behind the fault."""

    def __init__(self, grid: Faulty, name: str, party: Any) -> None:
        self.grid, self.name, self.party = grid, name, party
        self.before, self.dead = b"", False

    def handle(self, data: bytes) -> bytes:
        """What arrives."""
        self.dead |= self.grid.hits(self.name, "kill")
        if self.dead:
            raise ConnectionError("killed")
        if self.before and self.grid.hits(self.name, "stale"):
            self.party.handle(self.before)
        self.before, reply = data, self.party.handle(data)
        if self.grid.hits(self.name, "resend"):
            assert self.party.handle(data) == reply, "the same request, other bytes"
        return bytes(reply)


def steps_of_a_run() -> list[str]:
    session = make_session(**SMALL)
    session.run()
    return [step for step, name, *_ in session.recorded if name == PARTIES[0]]


def outcome_of(fault: str, step: str, name: str) -> tuple[str, bool]:
    """What a run with this fault ends in, and whether the fault happened."""
    session = make_session(**SMALL)
    grid = Faulty(session, fault, step, name)
    timeout = 0.01 if fault == "vanish" else 60.0
    party_app.LOCAL.update(grid.handlers)
    try:
        outcome = session.run(coordinator_app.GridTransport(grid, grid.nodes, timeout))
    except ProtocolError as error:
        named = error.culprit == name or (error.culprit is None and f"from {name}" in str(error))
        return (ABORT if named else f"{error} (culprit {error.culprit})"), grid.happened
    finally:
        for address in grid.handlers:
            del party_app.LOCAL[address]
    off = log2_error(outcome.weights, session.twin())
    return (MODEL if off < np.log2(1e-4) else f"log2 error {off:.1f}"), grid.happened


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", PARTIES)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_step(fault: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run per step; the first step has nothing before it that could be stale."""
    monkeypatch.setattr(coordinator_app, "POLL_SECONDS", 0.001)
    steps = steps_of_a_run()
    assert steps[0] == "enrol" and steps[-1] == "finish" and len(steps) >= 9
    found = {step: outcome_of(fault, step, name) for step in steps}
    wanted = {step: (FAULTS[fault], (fault, step) != ("stale", steps[0])) for step in steps}
    assert found == wanted
