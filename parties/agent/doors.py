"""The two Unix sockets of an agent: the relay's, and beside it its owner's.

Whoever binds them need not be the process that reads from them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from protocols.errors import ParameterError
from protocols.exchange.private_files import FOLDER_MODE

OWNER_ENDING = ".owner"
# sun_path has 108 bytes; FOLDER/NAME, with FOLDER of at most 30.
MAX_NAME_BYTES = 64
# Requests that are served at once, on each socket; more wait to be accepted.
CONNECTIONS = 8
_ENDING_SECONDS = 1.0  # of an agent that was killed


def check_path(path: Path) -> Path:
    """An absolute path of a socket, in a folder however deep: see `address`.

    Raises:
        ParameterError: it is relative, or its name is too long.
    """
    if not path.is_absolute() or len(os.fsencode(path.name)) > MAX_NAME_BYTES:
        raise ParameterError(
            f"socket={str(path)!r} must be an absolute path with a name of at most "
            f"{MAX_NAME_BYTES} bytes"
        )
    return path


@contextlib.contextmanager
def address(path: Path) -> Iterator[str]:
    """What to bind or to connect to for the socket `path`, while the context lasts.

    A Unix socket's address holds 107 bytes, a folder's path 4,095: the folder is named by a
    descriptor.

    Raises:
        OSError: there is no such folder, or it is not ours to enter.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def owner_path(path: Path) -> Path:
    """The owner's own socket, beside the one of the relay."""
    return check_path(path.with_name(f"{path.name}{OWNER_ENDING}"))


class Doors:
    """Both sockets, which listen; relays, owners: users that may connect to each.

    path: of the relay's, mode 0600, or 0660 where a relay of another user (`relay_uid`, in the
    socket's group) connects; the owner's socket beside it has mode 0600.

    Raises:
        ParameterError: another agent serves this socket, or the path is something else.
    """

    def __init__(self, path: Path, relay_uid: int | None = None) -> None:
        self._share(relay_uid)
        self._paths: tuple[Path, ...] = ()
        self.relay = self._bind(path, self.relays)
        try:
            self.owner = self._bind(owner_path(path), self.owners)
        except BaseException:
            self.close()
            raise

    @classmethod
    def inherited(cls, handles: Sequence[int], relay_uid: int | None = None) -> Doors:
        """Those that another process bound; it removes them."""
        doors = cls.__new__(cls)
        doors._share(relay_uid)
        doors._paths = ()
        doors.relay, doors.owner = (socket.socket(fileno=handle) for handle in handles)
        return doors

    def _share(self, relay_uid: int | None) -> None:
        self.owners = {os.getuid()}
        self.relays = self.owners if relay_uid is None else {*self.owners, relay_uid}

    def _bind(self, path: Path, users: set[int]) -> socket.socket:
        check_path(path).parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        if os.path.lexists(path):
            _make_way(path)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177 if len(users) == 1 else 0o117)
        try:
            with address(path) as bound:
                made.bind(bound)
            self._paths += (path,)
            made.listen(CONNECTIONS)
        except BaseException:
            made.close()
            raise
        finally:
            os.umask(before)
        return made

    def close(self) -> None:
        """Close both, and remove what was bound here."""
        for made in (self.relay, getattr(self, "owner", None)):
            if made is not None:
                made.close()
        for path in self._paths:
            path.unlink(missing_ok=True)


def _make_way(path: Path) -> None:
    """Remove the socket of an agent that died, and nothing else."""
    name = f"socket={str(path)!r}"
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise ParameterError(f"{name} is there and is no socket: choose another path")
    deadline = time.monotonic() + _ENDING_SECONDS
    while _answers(path):
        if time.monotonic() > deadline:
            raise ParameterError(f"{name}: an agent is running there")
        time.sleep(0.05)
    path.unlink()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, address(path) as reached:
        return probe.connect_ex(reached) == 0
