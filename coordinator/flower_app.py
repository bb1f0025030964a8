"""Flower ServerApp: delivers the coordinator's requests over a Grid."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from flwr.app import Array, ArrayRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from protocols.errors import ProtocolError

RECORD = "ciphercohort"
PAYLOAD = "payload"
POLL_SECONDS = 0.25
STEP_TIMEOUT_SECONDS = 3600.0

# A session takes a function that delivers one step's messages and returns the replies.
AskParties = Callable[[str, Mapping[str, bytes]], Mapping[str, bytes]]
# Sessions of this process, by the run configuration's `session`: what to run, and the Flower node
# of each party.
SESSIONS: dict[str, tuple[Callable[[AskParties], None], Mapping[str, int]]] = {}


class GridTransport:
    """`ask` over a Flower grid: push all, then pull until every party replied.

    nodes: Flower node id by party name. Replies are matched by the request they answer, never by
    their source node, and late ones are not lost.
    """

    def __init__(
        self, grid: Grid, nodes: Mapping[str, int], timeout: float = STEP_TIMEOUT_SECONDS
    ) -> None:
        self._grid = grid
        self._nodes = nodes
        self._timeout = timeout

    def __call__(self, step: str, outgoing: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Deliver one step.

        Raises:
            ProtocolError: a party's relay failed or did not reply in time; names the party.
        """
        waiting = {}
        for name, data in outgoing.items():
            message = Message(_to_record(data), self._nodes[name], MessageType.QUERY, group_id=step)
            (identifier,) = self._grid.push_messages([message])
            waiting[identifier] = name
        replies: dict[str, bytes] = {}
        deadline = time.monotonic() + self._timeout
        while waiting:
            for reply in self._grid.pull_messages(list(waiting)):
                name = waiting.pop(reply.metadata.reply_to_message_id)
                replies[name] = _payload(name, reply)
            if waiting and time.monotonic() > deadline:
                late = ", ".join(sorted(waiting.values()))
                raise ProtocolError(f"no reply to {step!r} within {self._timeout:g} s from {late}")
            if waiting:
                time.sleep(POLL_SECONDS)
        return replies


def _to_record(data: bytes) -> RecordDict:
    array = Array(dtype="uint8", shape=(len(data),), stype="raw", data=data)
    return RecordDict({RECORD: ArrayRecord({PAYLOAD: array})})


def _payload(name: str, reply: Message) -> bytes:
    if reply.has_error():
        # The text of a remote exception may carry data: only its code is shown.
        raise ProtocolError(
            f"the relay of party {name!r} failed (Flower error {reply.error.code}); see its log",
            culprit=name,
        )
    try:
        data: bytes = reply.content.array_records[RECORD][PAYLOAD].data
    except KeyError:
        raise ProtocolError(f"party {name!r} sent a foreign message", culprit=name) from None
    return data


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the session that the run configuration names."""
    session, nodes = SESSIONS[str(context.run_config["session"])]
    session(GridTransport(grid, nodes))
