"""Faults of the network under Flower's objects, at every step of a run.

Each ends in the twin's model or in an abort that names the party; never in a hang, and never in
another model. INSECURE toy ring, one process, time-outs of milliseconds. What a coordinator makes
of a missing or false reply, step by step: `tests/protocols/plan/test_steps_contract.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from flwr.app import Message

import coordinator.flower_app as coordinator_app
import parties.flower_app as party_app
from protocols.errors import ProtocolError
from sims.local import SERVER_NODE, LocalGrid
from tests.support.helpers import Session, log2_error
from tests.support.sessions import FIRST, VICTIM, model_session, small

ENROL, ONCE = "enrol", ("reveal", "refresh/1", "decrypt")
# At every step, and the run goes on: a reply with the third pull; a request twice, byte-identical
# replies; the request of the step before once more, first; the last party first; a reply twice.
HARMLESS = ("late", "resend", "stale", "reorder", "echo")
# At one step, and the run ends: the party raises from now on; its reply is lost.
FATAL = ("kill", "vanish")


class Faulty(LocalGrid):
    """A grid on which a fault happens to one party, at one step or, with "", at every."""

    def __init__(self, session: Session, fault: str, step: str, name: str) -> None:
        prefix = f"{session.coordinator.session}/"
        self.nodes = {name: SERVER_NODE + 1 + k for k, name in enumerate(session.parties)}
        super().__init__({node: f"local:{prefix}{name}" for name, node in self.nodes.items()})
        self.handlers = {
            prefix + name: Handler(self, name, p) for name, p in session.parties.items()
        }
        self.fault, self.at, self.name = fault, step, name
        self.step, self.pulls, self.happened = "", 0, set[str]()
        self.kept: dict[str, Message] = {}

    def hits(self, name: str, *faults: str) -> bool:
        """Whether it happens now."""
        now = self.fault in faults and self.name == name and self.at in ("", self.step)
        self.happened |= {self.step} if now else set()
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
        late = self.hits(name, "late") and self.pulls < 3
        return not (late or self.hits(name, "vanish"))


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


EVERY = (
    *((small, fault, "", VICTIM) for fault in HARMLESS),
    *((small, fault, step, FIRST) for fault in FATAL for step in ONCE),
    *((model_session, fault, "", FIRST) for fault in HARMLESS),
    *((model_session, fault, "gradient/1", VICTIM) for fault in FATAL),
)


@pytest.mark.parametrize(("make", "fault", "step", "name"), EVERY)
def test_every_step(
    make: Callable[..., Session], fault: str, step: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first step has nothing before it that could be stale."""
    monkeypatch.setattr(coordinator_app, "pause", lambda *_: 0.001)
    session = make(rounds=2)
    grid = Faulty(session, fault, step, name)
    monkeypatch.setattr(party_app, "LOCAL", grid.handlers)
    timeout = 0.01 if fault == "vanish" else 60.0
    transport = coordinator_app.GridTransport(grid, grid.nodes, timeout)
    if step:
        with pytest.raises(ProtocolError) as caught:
            session.run(transport)
        error = caught.value
        assert error.culprit == name or (error.culprit is None and f"from {name}" in str(error))
        assert grid.happened == {step}
        return
    assert log2_error(session.run(transport).weights, session.twin()) < -13.3
    steps = {line["step"] for line in session.transcript.lines}
    assert grid.happened == steps - ({ENROL} if fault == "stale" else set()) and len(steps) >= 9


@pytest.mark.parametrize(("fault", "step"), [("kill", "refresh/1"), ("vanish", "decrypt")])
def test_where_there_is_cover_the_others_go_on(
    fault: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_app, "pause", lambda *_: 0.001)
    session = small(rounds=2, parties=4, cover=2)
    grid = Faulty(session, fault, step, FIRST)
    monkeypatch.setattr(party_app, "LOCAL", grid.handlers)
    outcome = session.run(coordinator_app.GridTransport(grid, grid.nodes, timeout=3.0))
    assert grid.happened == {step} and outcome.missing == (FIRST,)
    assert log2_error(outcome.weights, session.twin()) < -13.3
