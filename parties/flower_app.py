"""Flower ClientApp: a relay between the SuperLink and the party, and nothing more.

Flower's own SuperNode starts a fresh process for every message, so the party itself lives
elsewhere: behind an address in the node's configuration (`party`): a party agent's socket,
`unix:/PATH`, or a party of this process, `local:NAME`. `flower_node` relays in one process.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Protocol

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from parties.agent.frames import AgentClient
from protocols.errors import MessageError, ParameterError

log = logging.getLogger(__name__)

# Flower's code for an app that raised; the coordinator counts those.
RAISED = 2
FAILED = "this relay has no answer: see its own log"
"""All that a coordinator hears of an error on the way, of whatever type."""
# Names of the one record that a message holds, and of what is in it.
RECORD = "ciphercohort"
PAYLOAD = "payload"
# Up to this size a payload is one Flower object; else it goes in chunks of 5 MB, below two objects
# more. Each object is a request of its own, there and back.
SMALL_BYTES = 1 << 20


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
    if len(data) <= SMALL_BYTES:
        return RecordDict({RECORD: ConfigRecord({PAYLOAD: data})})
    array = Array(dtype="uint8", shape=(len(data),), stype="raw", data=data)
    return RecordDict({RECORD: ArrayRecord({PAYLOAD: array})})


def from_record(content: RecordDict) -> bytes:
    """Inverse of `to_record`.

    Raises:
        MessageError: the record is not ours.
    """
    try:
        record: Any = content[RECORD]
        data = record[PAYLOAD] if isinstance(record, ConfigRecord) else record[PAYLOAD].data
        if not isinstance(data, bytes):
            raise TypeError(type(data).__name__)
    except (AttributeError, KeyError, TypeError):
        raise MessageError("a Flower message without our record") from None
    return data


def relay(message: Message, address: str) -> Message:
    """One request to the party at an address, and its reply back."""
    reply = connect(address).handle(from_record(message.content))
    return Message(to_record(reply), reply_to=message)


def answered(message: Message, address: str) -> Message:
    """The reply of the party at an address, or one and the same error: why is in this log alone."""
    try:
        return relay(message, address)
    except Exception:
        log.warning("%s failed", message.metadata.group_id, exc_info=True)
        return Message(Error(RAISED, FAILED), reply_to=message)


app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Relay, where Flower's own SuperNode starts this app."""
    return answered(message, str(context.node_config["party"]))


__all__ = ["LOCAL", "answered", "app", "connect", "from_record", "relay", "to_record"]
