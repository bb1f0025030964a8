"""A small session that attacks are tried on (toy ring, INSECURE)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from protocols.messages import Body, Envelope, decode, encode, public_bytes
from tests.helpers import (
    Session,
    make_session,
)

N = 512
SMALL: dict[str, Any] = {"ring_dim": N, "degree": 3, "update": "gd", "rows": 4, "rounds": 3}
Replies = dict[str, bytes]
VICTIM = "hospital-2"


def small(**changes: Any) -> Session:
    return make_session(**(SMALL | changes))


def request(run: Session, name: str, step: str, body: Body, **address: str) -> bytes:
    """A truly signed request of the coordinator, whatever it asks."""
    fields = {
        "session": run.coordinator.session,
        "step": step,
        "sender": "coordinator",
        "recipient": name,
    }
    return encode(Envelope(**(fields | address), body=body), run.coordinator_key)


def reply_of(session: Session, name: str, data: bytes) -> Envelope:
    return decode(data, public_bytes(session.party_keys[name]))


def refusal(session: Session, name: str, data: bytes) -> str:
    """Text of a party's signed refusal; fails if it answered."""
    meta = reply_of(session, name, session.parties[name].handle(data)).body.meta
    assert "error" in meta, "the party answered"
    return str(meta["error"])


def run_until(session: Session, step: str) -> dict[str, bytes]:
    """Run up to a step, and return the coordinator's requests of that step, unanswered."""
    held: dict[str, bytes] = {}

    class StopHere(BaseException):
        """Leave the run."""

    def ask(current: str, outgoing: Mapping[str, bytes]) -> Replies:
        if current == step:
            held.update(outgoing)
            raise StopHere
        return session.ask(current, outgoing)

    with pytest.raises(StopHere):
        session.run(ask)
    return held


def deliver(
    session: Session, change: Callable[[str, Replies], Replies]
) -> Callable[[str, Mapping[str, bytes]], Replies]:
    """A transport that changes replies on their way."""

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Replies:
        return change(step, session.ask(step, outgoing))

    return ask
