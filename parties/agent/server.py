"""The agent's Unix sockets: check the peer's user, bound what is read, serve in threads.

The relay has one socket and the owner another: requests of the protocol may wait for hours, for
the owner's consent for one, and must not keep the owner from giving it.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from parties.agent import frames
from parties.agent.agent import Agent
from protocols.errors import CohortError, ParameterError, PolicyError
from protocols.private_files import FOLDER_MODE

log = logging.getLogger(__name__)

# Requests that are served at once, on each socket; more wait to be accepted.
CONNECTIONS = 8
FRAME_SECONDS = 120.0
_TICK_SECONDS = 0.5
Answer = Callable[[bytes, bytes], bytes]


class AgentServer:
    """Serves an agent until `stop`.

    path: of the relay's socket, mode 0600, or 0660 where a relay of another user (`relay_uid`, in
    the socket's group) connects; the owner's socket beside it has mode 0600.

    Raises:
        ParameterError: another agent serves this socket, or the path is something else.
    """

    def __init__(self, agent: Agent, path: Path, relay_uid: int | None = None) -> None:
        own = {os.getuid()}
        relays = own if relay_uid is None else {*own, relay_uid}
        self._agent = agent
        self._relay = _Door(path, relays, agent.size_cap, self._message)
        try:
            self._owner = _Door(frames.owner_path(path), own, frames.CONTROL_CAP, self._control)
        except BaseException:
            self._relay.close()
            raise
        self._stopping = threading.Event()

    def serve(self) -> None:
        """Accept until `stop`; then remove the sockets and forget what is in memory."""
        doors = (self._relay, self._owner)
        threads = [
            threading.Thread(target=door.serve, args=(self._stopping,), daemon=True)
            for door in doors
        ]
        for thread in threads:
            thread.start()
        try:
            while not self._stopping.wait(_TICK_SECONDS):
                self._agent.tick()
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()
            self._agent.close()

    def stop(self) -> None:
        """Leave `serve` within a second."""
        self._stopping.set()

    def _message(self, kind: bytes, payload: bytes) -> bytes:
        if kind != frames.MESSAGE:
            raise PolicyError(f"request {kind!r} is the owner's: it has a socket of its own")
        return self._agent.handle(payload)

    def _control(self, kind: bytes, payload: bytes) -> bytes:
        if kind == frames.STATUS:
            return json.dumps(self._agent.status()).encode()
        if kind == frames.GIVE_UP:
            return json.dumps({"ended": self._agent.give_up()}).encode()
        asked = json.loads(payload)
        if not isinstance(asked, dict):
            raise ParameterError("an owner's request is a JSON object")
        if kind == frames.STATEMENT:
            made = self._agent.statement(str(asked.get("session") or "") or None)
            return json.dumps({"statement": made.hex()}).encode()
        if kind == frames.CONSENT:
            plan, accept = str(asked.get("plan", "")), asked.get("accept") is True
            return json.dumps(self._agent.consent.decide(plan, accept)).encode()
        raise ParameterError(f"unknown request {kind!r}")


class _Door:
    """One socket: whose users may connect, what is read at most, and who answers."""

    def __init__(self, path: Path, users: set[int], size_cap: int, answer: Answer) -> None:
        self._path, self._users = frames.check_path(path), users
        self._size_cap, self._answer = size_cap, answer
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        self._listener = self._listen()

    def _listen(self) -> socket.socket:
        self._path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        if os.path.lexists(self._path):
            self._make_way()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177 if len(self._users) == 1 else 0o117)
        try:
            listener.bind(str(self._path))
        finally:
            os.umask(before)
        listener.listen(CONNECTIONS)
        listener.settimeout(_TICK_SECONDS)
        return listener

    def _make_way(self) -> None:
        """Remove the socket of an agent that died, and nothing else."""
        name = f"socket={str(self._path)!r}"
        if not stat.S_ISSOCK(self._path.lstat().st_mode):
            raise ParameterError(f"{name} is there and is no socket: choose another path")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if probe.connect_ex(str(self._path)) == 0:
                raise ParameterError(f"{name}: an agent is running there")
        self._path.unlink()

    def serve(self, stopping: threading.Event) -> None:
        """Accept as long as a slot is free, until `stopping`; then remove the socket."""
        try:
            while not stopping.is_set():
                if self._slots.acquire(timeout=_TICK_SECONDS) and not self._accept():
                    self._slots.release()
        finally:
            self.close()

    def close(self) -> None:
        """Remove the socket."""
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> bool:
        """Whether somebody came, who then has a slot."""
        try:
            connection, _ = self._listener.accept()
        except TimeoutError:
            return False
        threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()
        return True

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
            if uid not in self._users:
                raise PolicyError(f"user {uid} may not use this socket")
            kind, payload = frames.receive_frame(connection, FRAME_SECONDS, self._size_cap)
            return frames.REPLY, self._answer(kind, payload)
        except CohortError as error:
            log.warning("refused on the socket: %s", error)
            return frames.REFUSAL, str(error).encode()
        except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
            log.warning("refused on the socket: malformed (%s)", type(error).__name__)
            return frames.REFUSAL, b"malformed request"
