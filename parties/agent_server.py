"""The agent's Unix socket: checks the peer's user, bounds what is read, serves in threads."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from dataclasses import dataclass
from pathlib import Path

from parties import frames
from parties.agent import Agent
from protocols.errors import CohortError, ParameterError, PolicyError

log = logging.getLogger(__name__)

CONNECTIONS = 8
FRAME_SECONDS = 120.0
_TICK_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Peers:
    """Who may connect: the agent's own user for everything, `relay_uid` for messages only."""

    relay_uid: int | None = None

    def check(self, uid: int, kind: bytes) -> None:
        """Refuse other users.

        Raises:
            PolicyError: names the user.
        """
        if uid == os.getuid() or (uid == self.relay_uid and kind == frames.MESSAGE):
            return
        raise PolicyError(f"user {uid} may not use this socket")


class AgentServer:
    """Serves an agent until `stop`.

    path: of the socket, mode 0600, or 0660 where a relay of another user (in the socket's group)
    connects.

    Raises:
        ParameterError: another agent serves this socket.
    """

    def __init__(self, agent: Agent, path: Path, peers: Peers | None = None) -> None:
        self._agent, self._path, self._peers = agent, frames.check_path(path), peers or Peers()
        self._stopping = threading.Event()
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        self._listener = self._listen()

    def _listen(self) -> socket.socket:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._path.exists():
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                if probe.connect_ex(str(self._path)) == 0:
                    raise ParameterError(f"socket={str(self._path)!r}: an agent is running there")
            self._path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177 if self._peers.relay_uid is None else 0o117)
        try:
            listener.bind(str(self._path))
        finally:
            os.umask(before)
        listener.listen(CONNECTIONS)
        listener.settimeout(_TICK_SECONDS)
        return listener

    def serve(self) -> None:
        """Accept until `stop`; then remove the socket and forget what is in memory."""
        try:
            while not self._stopping.is_set():
                self._agent.tick()
                try:
                    connection, _ = self._listener.accept()
                except TimeoutError:
                    continue
                self._slots.acquire()
                threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()
        finally:
            self._listener.close()
            self._path.unlink(missing_ok=True)
            self._agent.close()

    def stop(self) -> None:
        """Leave `serve` within a second."""
        self._stopping.set()

    def _serve_one(self, connection: socket.socket) -> None:
        try:
            with connection:
                kind, answer = self._reply(connection)
                connection.settimeout(FRAME_SECONDS)
                frames.send_frame(connection, kind, answer)
        except OSError as error:
            log.info("a connection broke: %s", error)
        finally:
            self._slots.release()

    def _reply(self, connection: socket.socket) -> tuple[bytes, bytes]:
        try:
            uid = frames.peer_uid(connection)
            self._peers.check(uid, frames.MESSAGE)
            kind, payload = frames.receive_frame(connection, FRAME_SECONDS, self._agent.size_cap)
            self._peers.check(uid, kind)
            return frames.REPLY, self._answer(kind, payload)
        except CohortError as error:
            log.warning("refused on the socket: %s", error)
            return frames.REFUSAL, str(error).encode()
        except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
            log.warning("refused on the socket: malformed (%s)", type(error).__name__)
            return frames.REFUSAL, b"malformed request"

    def _answer(self, kind: bytes, payload: bytes) -> bytes:
        if kind == frames.MESSAGE:
            return self._agent.handle(payload)
        if kind == frames.STATUS:
            return json.dumps(self._agent.status()).encode()
        if kind == frames.GIVE_UP:
            return json.dumps({"ended": self._agent.give_up()}).encode()
        if kind == frames.CONSENT:
            asked = json.loads(payload)
            if not isinstance(asked, dict):
                raise ParameterError("a request for consent is a JSON object")
            plan, accept = str(asked.get("plan", "")), asked.get("accept") is True
            return json.dumps(self._agent.consent.decide(plan, accept)).encode()
        raise ParameterError(f"unknown request {kind!r}")
