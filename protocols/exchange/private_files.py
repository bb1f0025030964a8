"""Files that survive a power cut whole, and that only their owner reads; locks on files."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _try(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

    def _free(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _try(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _free(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)


MODE, FOLDER_MODE = 0o600, 0o700
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1  # [s]
# No link is followed and no child inherits the file; on Windows bytes stay as they are.
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def write_private(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace a file (mode 0600): afterwards it is the old one or the new one.

    durable: it is on disk when this returns, and a power cut takes nothing back.

    Security: the bytes go to a new file of an unpredictable name in the same folder, never through
    a symbolic link and never into a file that is there already.
    """
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, MODE)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(scratch, path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def erase(path: Path) -> None:
    """Remove a file, durably. A disk may keep its blocks: seal what is secret."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def sweep(folder: Path) -> None:
    """Remove what killed processes left of their writes; only while nobody else writes there."""
    for scratch in folder.glob(".*.tmp"):
        scratch.unlink(missing_ok=True)


def private_opener(path: str, flags: int) -> int:
    """For `open(…, opener=private_opener)`: a new file has mode 0600, a link is refused."""
    return os.open(path, flags | _SAFE, MODE)


def private_folder(path: Path) -> Path:
    """Make a folder of mode 0700, or give an existing one that mode."""
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    path.chmod(FOLDER_MODE)
    return path


def sync_folder(folder: Path) -> None:
    """Make new, renamed and removed names survive a power cut; Windows has no such call."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path, seconds: float | None = None) -> Iterator[None]:
    """Hold the lock of a file (mode 0600, made where there is none), against threads as well.

    The operating system frees it when a process dies. A file that is made exclusively would stay
    behind such a process, and nobody could tell.

    seconds: longest wait; None: for ever.

    Raises:
        TimeoutError: others hold it for longer.
    """
    deadline, pause = None if seconds is None else time.monotonic() + seconds, _FIRST_PAUSE
    with open(path, "w", opener=private_opener) as file:
        while True:
            try:
                _try(file.fileno())
                break
            except OSError:  # BlockingIOError here, PermissionError on Windows
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"{path} is held by another process") from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        try:
            yield
        finally:
            _free(file.fileno())
