"""The agent's Unix sockets: check the peer's user, bound what is read, serve in threads.

The relay has one socket and the owner another: requests of the protocol may wait for hours, for
the owner's consent for one, and must not keep the owner from giving it.
"""

from __future__ import annotations

import json
import logging
import queue
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from parties.agent import frames
from parties.agent.agent import Agent
from parties.agent.doors import CONNECTIONS, Doors
from parties.policy import Reason
from protocols.errors import CohortError, MessageError, ParameterError, PolicyError

log = logging.getLogger(__name__)

FRAME_SECONDS = 120.0
_TICK_SECONDS = 0.5
FAILED = Reason.FAILED.value.encode()
"""All that a relay hears of an error of another type."""
Answer = Callable[[bytes, bytes], bytes]


class AgentServer:
    """Serves an agent on both its sockets until `stop`; told: what its status says beside."""

    def __init__(
        self, agent: Agent, doors: Doors, told: Callable[[], Mapping[str, Any]] = dict
    ) -> None:
        self._agent, self._doors, self._told = agent, doors, told
        # A signal's handler puts into it: `Event.set` may wait for what the thread itself holds.
        self._stopping: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._relay = _Door(doors.relay, doors.relays, agent.size_cap, self._message)
        self._owner = _Door(doors.owner, doors.owners, frames.CONTROL_CAP, self._control)

    def serve(self) -> None:
        """Accept until `stop`; then remove the sockets and forget what is in memory."""
        doors = (self._relay, self._owner)
        for door in doors:
            threading.Thread(target=door.serve_forever, args=(_TICK_SECONDS,), daemon=True).start()
        try:
            while not self._is_stopped():
                self._agent.tick()
        finally:
            for door in doors:
                door.shutdown()
                door.server_close()
            self._doors.close()
            self._agent.close()

    def stop(self) -> None:
        """Leave `serve` within a second; a handler of a signal may call it."""
        self._stopping.put(None)

    def _is_stopped(self) -> bool:
        with suppress(queue.Empty):
            self._stopping.get(timeout=_TICK_SECONDS)
            return True
        return False

    def _message(self, kind: bytes, payload: bytes) -> bytes:
        if kind != frames.MESSAGE:
            raise PolicyError(f"request {kind!r} is the owner's: it has a socket of its own")
        try:
            return self._agent.handle(payload)
        except MessageError:
            raise
        except CohortError as error:  # not even a refusal could be signed
            log.warning("no refusal is signed: %s", error)
            raise MessageError(Reason.FAILED.value) from None

    def _control(self, kind: bytes, payload: bytes) -> bytes:
        if kind == frames.STATUS:
            return json.dumps({**self._agent.status(), **self._told()}).encode()
        if kind == frames.GIVE_UP:
            return json.dumps({"ended": self._agent.give_up()}).encode()
        asked: Any = None
        with suppress(ValueError, RecursionError):
            asked = json.loads(payload)
        if not isinstance(asked, dict):
            raise ParameterError("an owner's request is a JSON object")
        if kind == frames.STATEMENT:
            made = self._agent.statement(str(asked.get("session") or "") or None)
            return json.dumps({"statement": made.hex()}).encode()
        if kind == frames.CONSENT:
            code, accept = str(asked.get("code", "")), asked.get("accept") is True
            return json.dumps(self._agent.consent.decide(code, accept)).encode()
        raise ParameterError(f"unknown request {kind!r}")


class _Door(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """One socket: whose users may connect, what is read at most, and who answers."""

    daemon_threads, request_queue_size = True, CONNECTIONS

    def __init__(
        self, bound: socket.socket, users: set[int], size_cap: int, answer: Answer
    ) -> None:
        self._users, self._size_cap, self._answer = users, size_cap, answer
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__("", socketserver.BaseRequestHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = bound

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept as long as a slot is free; otherwise others wait in the queue."""
        if not self._slots.acquire(timeout=_TICK_SECONDS):
            raise TimeoutError
        try:
            return super().get_request()
        except BaseException:
            self._slots.release()
            raise

    def shutdown_request(self, request: Any) -> None:
        """The slot is free again."""
        super().shutdown_request(request)
        self._slots.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """One request, one reply."""
        try:
            kind, answer = self._reply(request)
            request.settimeout(FRAME_SECONDS)
            frames.send_frame(request, kind, answer)
        except OSError as error:
            log.info("a connection broke: %s", error)

    def _reply(self, connection: socket.socket) -> tuple[bytes, bytes]:
        try:
            uid = frames.peer_uid(connection)
            if uid not in self._users:
                raise PolicyError(f"user {uid} may not use this socket")
            kind, payload = frames.receive_frame(connection, FRAME_SECONDS, self._size_cap)
        except CohortError as error:
            log.warning("refused on the socket: %s", error)
            return frames.REFUSAL, str(error).encode()
        try:
            return frames.REPLY, self._answer(kind, payload)
        except (MessageError, ParameterError, PolicyError) as error:
            log.warning("refused on the socket: %s", error)
            return frames.REFUSAL, str(error).encode()
        except Exception:
            log.exception("refused on the socket")
            return frames.REFUSAL, FAILED
