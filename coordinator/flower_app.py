"""Flower ServerApp: delivers the coordinator's requests over a Grid."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from coordinator.errors import LostError
from coordinator.flower_waits import shorten_waits
from protocols.errors import ProtocolError
from protocols.exchange.waits import pause
from protocols.plan.protocol import ABORT, FINISH, may_repeat

RECORD = "ciphercohort"
PAYLOAD = "payload"
STEP_TIMEOUT_SECONDS = 3600.0
# How often a relay may raise before the step is given up; other errors (a node that restarts, a
# lost process) are waited for until the step's end.
RELAY_ATTEMPTS = 3
RETRY_SECONDS = 2.0
# Up to this size a payload is one Flower object; else it goes in chunks of 5 MB, below two objects
# more. Each object is a request of its own, there and back.
SMALL_BYTES = 1 << 20
_RELAY_RAISED = 2

# A session takes a function that delivers one step's messages and yields (party, reply).
AskParties = Callable[[str, Mapping[str, bytes]], Iterator[tuple[str, bytes]]]
# Sessions of this process, by the run configuration's `session`: what to run, and the Flower node
# of each party.
SESSIONS: dict[str, tuple[Callable[[AskParties], None], Mapping[str, int]]] = {}


class GridTransport:
    """`ask` over a Flower grid: push all, then pull until every party replied.

    nodes: Flower node id by party name. Replies are pulled one at a time, so that one is in memory;
    they are matched by the request they answer, never by their source node, and late ones are not
    lost. While nothing comes, a look is for one party's reply, each in turn: every look costs the
    SuperLink some milliseconds. relay_attempts: the same request goes out again after a failure: a
    party answers it with the same bytes. check: raises where nobody waits for replies any more.
    """

    def __init__(
        self,
        grid: Grid,
        nodes: Mapping[str, int],
        timeout: float = STEP_TIMEOUT_SECONDS,
        relay_attempts: int = 1,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._check = check
        self._grid = grid
        self._nodes = nodes
        self._timeout = timeout
        self._attempts = relay_attempts

    def __call__(self, step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """Deliver one step; (party, reply) as they arrive.

        Raises:
            LostError: a party's relay failed or did not reply in time; names the party.
            ProtocolError: a party sent a foreign message.
        """
        waiting = {self._push(step, name, data): name for name, data in outgoing.items()}
        failures = dict.fromkeys(outgoing, 0)
        lost: dict[str, str] = {}
        heard = time.monotonic()
        deadline = heard + self._timeout
        while waiting:
            asked, came = time.monotonic(), False
            for identifier in list(waiting):
                for reply in self._grid.pull_messages([identifier]):
                    name = waiting.pop(reply.metadata.reply_to_message_id, None)
                    if name is None:
                        continue  # a second reply to one request
                    came = True
                    if self._is_lost(reply, name, failures):
                        time.sleep(RETRY_SECONDS)
                        waiting[self._push(step, name, outgoing[name])] = name
                    elif reply.has_error():
                        # The text of a remote exception may carry data: only its code is shown.
                        lost[name] = (
                            f"the relay of party {name!r} failed (Flower error "
                            f"{reply.error.code}); see its log"
                        )
                        # Else every reply is waited for: others may stand in.
                        if not may_repeat(step):
                            raise LostError(lost[name], (name,))
                    else:
                        yield name, _payload(name, reply)
                if not came:
                    waiting[identifier] = waiting.pop(identifier)  # to the end
                    break
            if step not in (ABORT, FINISH):
                self._check()
            if waiting and time.monotonic() > deadline:
                late = sorted(waiting.values())
                words = f"no reply to {step!r} within {self._timeout:g} s from {', '.join(late)}"
                lost.update(dict.fromkeys(late, words))
                waiting.clear()
            now = time.monotonic()
            if came:
                asked = heard = now
            if waiting:
                time.sleep(pause(now - heard, now - asked))
        if lost:
            raise LostError("; ".join(dict.fromkeys(lost.values())), tuple(lost))

    def _push(self, step: str, name: str, data: bytes) -> str:
        message = Message(_to_record(data), self._nodes[name], MessageType.QUERY, group_id=step)
        (identifier,) = self._grid.push_messages([message])
        return identifier

    def _is_lost(self, reply: Message, name: str, failures: dict[str, int]) -> bool:
        """Whether to ask again."""
        if not reply.has_error() or self._attempts == 1:
            return False
        failures[name] += reply.error.code == _RELAY_RAISED
        return failures[name] < self._attempts


def one_by_one(ask: AskParties) -> AskParties:
    """For parties of this process, who answer in turn: one request in memory at a time."""

    def asking(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        lost: dict[str, str] = {}
        for name in outgoing:
            try:
                yield from ask(step, {name: outgoing[name]})
            except LostError as error:
                if not may_repeat(step):
                    raise
                lost[name] = str(error)
        if lost:
            raise LostError("; ".join(dict.fromkeys(lost.values())), tuple(lost))

    return asking


def _to_record(data: bytes) -> RecordDict:
    if len(data) <= SMALL_BYTES:
        return RecordDict({RECORD: ConfigRecord({PAYLOAD: data})})
    array = Array(dtype="uint8", shape=(len(data),), stype="raw", data=data)
    return RecordDict({RECORD: ArrayRecord({PAYLOAD: array})})


def _payload(name: str, reply: Message) -> bytes:
    try:
        record: Any = reply.content[RECORD]
        data = record[PAYLOAD] if isinstance(record, ConfigRecord) else record[PAYLOAD].data
        if not isinstance(data, bytes):
            raise TypeError(type(data).__name__)
    except (AttributeError, KeyError, TypeError):
        raise ProtocolError(f"party {name!r} sent a foreign message", culprit=name) from None
    return data


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the session that the run configuration names: of this process, or of a deployment.

    There also those that follow it in its series.
    """
    name = str(context.run_config["session"])
    if name in SESSIONS:
        session, nodes = SESSIONS[name]
        session(one_by_one(GridTransport(grid, nodes)))
        return
    from coordinator.deployment import check_given_up, following, serve_session
    from coordinator.settings import HOME_VARIABLE, Settings

    def transport(nodes: Mapping[str, int], seconds: float) -> AskParties:
        check = partial(check_given_up, settings.session_folder(now or ""))
        return GridTransport(grid, nodes, seconds, RELAY_ATTEMPTS, check)

    shorten_waits()
    settings, now = Settings.load(Path(os.environ[HOME_VARIABLE])), name or None
    while now:
        serve_session(settings, now, transport)
        now = following(settings, now)
