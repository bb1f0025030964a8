"""Signed values as a coordinator gathers them: everybody's replies, then all for everyone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from protocols.errors import MessageError, ProtocolError
from protocols.exchange import Body
from protocols.exchange.signed_values import SignedValue


def replied(replies: Mapping[str, Body]) -> dict[str, SignedValue]:
    """The values of all replies, by party.

    Raises:
        ProtocolError: a reply holds no value; names its party.
    """
    values = {}
    for name, reply in replies.items():
        try:
            values[name] = SignedValue.of(dict(reply.meta))
        except MessageError as error:
            raise ProtocolError(f"party {name!r}: {error}", culprit=name) from None
    return values


def to_request(values: Mapping[str, SignedValue]) -> Body:
    """Everyone's values, for everyone."""
    return Body({"signed": {name: asdict(value) for name, value in values.items()}})
