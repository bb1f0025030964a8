"""Frames on the agent's Unix sockets: who may connect, and how much is read.

Frame: magic (4 bytes) | kind (1) | length (8, big endian) | payload. One request and one reply per
connection. Kinds: M message of the protocol, S status, C consent, X give up the session, T
statement; replies R (answer), E (refusal).
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from pathlib import Path
from typing import Any

from parties.agent.doors import address, check_path, owner_path
from protocols.errors import MessageError, ProtocolError
from protocols.exchange.messages import DEFAULT_SIZE_CAP

MAGIC = b"CPHA"
MESSAGE, STATUS, CONSENT, GIVE_UP, STATEMENT = b"M", b"S", b"C", b"X", b"T"
REPLY, REFUSAL = b"R", b"E"
CONTROL_CAP = 1 << 16
_HEAD = struct.Struct(">4sc8s")
_CHUNK = 1 << 20
_PEER = struct.Struct("3i")  # pid, uid, gid


def send_frame(connection: socket.socket, kind: bytes, payload: bytes) -> None:
    """Write one frame."""
    connection.sendall(_HEAD.pack(MAGIC, kind, len(payload).to_bytes(8, "big")))
    connection.sendall(payload)


def receive_frame(
    connection: socket.socket, seconds: float, size_cap: int = DEFAULT_SIZE_CAP
) -> tuple[bytes, bytes]:
    """One frame (kind, payload), whole within `seconds`; memory grows with what has arrived.

    Raises:
        MessageError: no frame of ours, oversize, too slow, or cut short.
    """
    deadline = time.monotonic() + seconds
    magic, kind, length = _HEAD.unpack(_read(connection, _HEAD.size, deadline))
    size = int.from_bytes(length, "big")
    if magic != MAGIC:
        raise MessageError("not a frame of this version")
    cap = size_cap if kind in (MESSAGE, REPLY) else CONTROL_CAP
    if size > cap:
        raise MessageError(f"frame of {size} bytes exceeds the cap of {cap}")
    return kind, _read(connection, size, deadline)


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise MessageError("a frame did not arrive in time")
        connection.settimeout(left)
        try:
            chunk = connection.recv(min(_CHUNK, size - len(data)))
        except TimeoutError:
            raise MessageError("a frame did not arrive in time") from None
        if not chunk:
            raise MessageError("a frame was cut short")
        data += chunk
    return bytes(data)


def peer_uid(connection: socket.socket) -> int:
    """User of the process at the other end, from the kernel."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(raw)[1])


class AgentClient:
    """The agent behind a socket: `handle` for the relay, `control` for its owner.

    path: of the relay's socket; `control` takes the owner's, see `owner_path`. patience: how long a
    request is offered again while the agent restarts [s]. That is safe: the agent answers the same
    bytes to the same request. reply_seconds: longest wait for one reply.
    """

    def __init__(
        self, path: Path, *, patience: float = 120.0, reply_seconds: float = 12 * 3600.0
    ) -> None:
        self._path = check_path(path)
        self._patience = patience
        self._reply_seconds = reply_seconds

    def handle(self, data: bytes) -> bytes:
        """Reply to one message.

        Raises:
            MessageError: the agent refuses to read it. ProtocolError: no agent answers.
        """
        return self._ask(self._path, MESSAGE, data)

    def control(self, kind: bytes, request: dict[str, Any]) -> dict[str, Any]:
        """Status or consent, as objects."""
        reply = self._ask(owner_path(self._path), kind, json.dumps(request).encode())
        answer: dict[str, Any] = json.loads(reply)
        return answer

    def _ask(self, path: Path, kind: bytes, payload: bytes) -> bytes:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                answer, reply = self._once(path, kind, payload)
                break
            except (OSError, _CutOffError) as error:
                if isinstance(error, PermissionError) or time.monotonic() > deadline:
                    raise ProtocolError(
                        f"no party agent answers at {path} ({error}): start it with "
                        "cohort party start"
                    ) from None
                time.sleep(0.5)
        if answer != REPLY:
            raise MessageError(reply.decode(errors="replace"))
        return reply

    def _once(self, path: Path, kind: bytes, payload: bytes) -> tuple[bytes, bytes]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            with address(path) as reached:
                connection.connect(reached)
            # Refused before it was read whole: the refusal can still be read.
            with contextlib.suppress(BrokenPipeError):
                send_frame(connection, kind, payload)
            try:
                return receive_frame(connection, self._reply_seconds)
            except MessageError as error:
                raise _CutOffError(str(error)) from None


class _CutOffError(Exception):
    """The agent went away in the middle of a request."""
