"""One process at a time, by a lock on a file that the operating system frees when a process dies.

A file that is made exclusively would stay behind a process that died, and nobody could tell.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from protocols.exchange.private_files import private_opener

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


_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1  # [s]


@contextmanager
def locked(path: Path, seconds: float | None = None) -> Iterator[None]:
    """Hold the lock of a file (mode 0600, made where there is none), against threads as well.

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
