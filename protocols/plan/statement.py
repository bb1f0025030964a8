"""A party's signed word on all that it was asked in a session that is over for it.

A reply says it up to its own step (`Envelope.seen`). The statement says it for a party whose last
replies were lost, so that an audit need not take the coordinator's word (`coordinator.replay`).
"""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocols.errors import MessageError
from protocols.exchange.messages import Body, Envelope, address_of, decode, encode
from protocols.names import COORDINATOR

STATEMENT = "statement"


def make_statement(session: str, name: str, seen: str, key: Ed25519PrivateKey) -> bytes:
    """Signed; seen: the party's head when the session ended for it."""
    return encode(Envelope(session, STATEMENT, name, COORDINATOR, Body(), seen=seen), key)


def read_statement(data: bytes, session: str, keys: Mapping[str, str]) -> tuple[str, str]:
    """(party, head); keys: verification keys by name, hexadecimal.

    Raises:
        MessageError: forged, of another session, or no statement.
    """
    name = address_of(data)[1]
    if name not in keys:
        raise MessageError(f"a statement of {name!r}, whom the plan does not have")
    told = decode(data, keys[name])
    # A refusal may have any step, but it answers a request.
    if (told.session, told.step, told.sender, told.answers) != (session, STATEMENT, name, ""):
        raise MessageError(f"what {name!r} signed is no statement about session {session!r}")
    return name, told.seen
