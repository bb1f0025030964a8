"""A relay between coordinator and one agent, on which a fault happens once."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from parties.agent import frames
from protocols.errors import CohortError
from protocols.exchange.messages import digest
from tests.support.helpers import header_of

WAIT_SECONDS = 60.0
# What a fault does with (relay, request payload, deliver): the frame to send back, or None to hang
# up. `deliver` gets the agent's reply.
Deliver = Callable[[bytes], tuple[bytes, bytes]]
Action = Callable[["Relay", bytes, Deliver], "bytes | None"]


@dataclass
class Trap:
    """A fault waiting for its step at its party; name None: whichever comes first."""

    step: str
    name: str | None
    action: Action
    sprung: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def springs(self, step: str, name: str) -> bool:
        """Whether it happens now; once."""
        with self._lock:
            if self.sprung or step != self.step or self.name not in (None, name):
                return False
            self.sprung = time.monotonic()
            return True


class Relay:
    """Relays frames of one party; keeps the digests of the true replies, by (session, step)."""

    def __init__(self, name: str, path: Path, agent: Path) -> None:
        self.name, self._agent = name, agent
        self.trap: Trap | None = None
        self.given: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.last: dict[str, tuple[bytes, bytes]] = {}  # by session: request, reply frame
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(16)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, CohortError):
            _, data = frames.receive_frame(connection, WAIT_SECONDS)
            session, step = _address(data)
            trap = self.trap
            if trap and trap.springs(step, self.name):
                answer = trap.action(self, data, self.deliver)
            else:
                answer = frame(*self.deliver(data))
            if answer is None:
                return
            self.last[session] = (data, answer)
            connection.sendall(answer)

    def deliver(self, data: bytes, part: float = 1.0) -> tuple[bytes, bytes]:
        """Send to the agent until it answers; part: of the frame that is sent."""
        whole = frame(frames.MESSAGE, data)
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                kind, reply = self._once(whole[: int(part * len(whole))])
                break
            except (OSError, CohortError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        self._note(data, kind, reply)
        return kind, reply

    def _once(self, data: bytes) -> tuple[bytes, bytes]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
            agent.settimeout(WAIT_SECONDS)
            agent.connect(str(self._agent))
            with suppress(BrokenPipeError):
                agent.sendall(data)
                agent.shutdown(socket.SHUT_WR)
            return frames.receive_frame(agent, WAIT_SECONDS)

    def _note(self, request: bytes, kind: bytes, reply: bytes) -> None:
        if kind != frames.REPLY:
            return
        head = json.loads(header_of(reply))
        if "error" not in head["meta"]:
            self.given[head["session"], head["step"]].add(digest(reply))


def _address(data: bytes) -> tuple[str, str]:
    """Session and step of a message, empty where it cannot be read."""
    try:
        head = json.loads(header_of(data))
        return str(head["session"]), str(head["step"])
    except (ValueError, LookupError, TypeError):
        return "", ""


def frame(kind: bytes, payload: bytes) -> bytes:
    """A frame as it travels."""
    return frames.MAGIC + kind + len(payload).to_bytes(8, "big") + payload
