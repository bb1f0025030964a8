"""Flower ClientApp: a relay between the SuperLink and the party, and nothing more.

Every Flower message may start a fresh process, so the party itself lives elsewhere: behind an
address in the node's configuration (`party`): a party agent's socket, `unix:/PATH`, or a party of
this process, `local:NAME`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from parties.agent.frames import AgentClient
from protocols.errors import MessageError, ParameterError

# Names of the one record and the one array that a message holds.
RECORD = "ciphercohort"
PAYLOAD = "payload"


class Handler(Protocol):
    """Whatever answers a party's messages."""

    def handle(self, data: bytes) -> bytes:
        """Reply to one request."""
        ...


# Parties of this process, by name.
LOCAL: dict[str, Handler] = {}


def connect(address: str) -> Handler:
    """The party at an address.

    Raises:
        ParameterError: the scheme is unknown or no such party runs here.
    """
    scheme, _, name = address.partition(":")
    if scheme == "local" and name in LOCAL:
        return LOCAL[name]
    if scheme == "unix":
        return AgentClient(Path(name))
    raise ParameterError(
        f"party={address!r} is not the address of a running party (unix:/PATH or local:NAME)"
    )


def to_record(data: bytes) -> RecordDict:
    """Bytes as a Flower record."""
    array = Array(dtype="uint8", shape=(len(data),), stype="raw", data=data)
    return RecordDict({RECORD: ArrayRecord({PAYLOAD: array})})


def from_record(content: RecordDict) -> bytes:
    """Inverse of `to_record`.

    Raises:
        MessageError: the record is not ours.
    """
    try:
        data: bytes = content.array_records[RECORD][PAYLOAD].data
    except KeyError:
        raise MessageError("a Flower message without our record") from None
    return data


app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Relay one request to the party and its reply back."""
    party = connect(str(context.node_config["party"]))
    reply = party.handle(from_record(message.content))
    return Message(to_record(reply), reply_to=message)


__all__ = ["LOCAL", "app", "connect", "from_record", "to_record"]
