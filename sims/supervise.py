"""Child processes that are started again when they end, and that end with their parent."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from protocols.private_files import private_folder, private_opener

log = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS = 10.0
_STOP_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What to run; log_path: where its output goes."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log_path: Path


@contextmanager
def supervised(program: Program) -> Iterator[None]:
    """Run a program in the background, again whenever it ends, until the block ends."""
    stopping = threading.Event()
    keeper = threading.Thread(target=_keep, args=(program, stopping), daemon=True)
    keeper.start()
    try:
        yield
    finally:
        stopping.set()
        keeper.join(_STOP_SECONDS + 5)


def _keep(program: Program, stopping: threading.Event) -> None:
    pause = 1.0
    while not stopping.is_set():
        began = time.monotonic()
        process = _start(program)
        while process.poll() is None and not stopping.wait(0.2):
            pass
        _end(process)
        if stopping.is_set():
            return
        pause = 1.0 if time.monotonic() - began > 60 else min(2 * pause, LONGEST_PAUSE_SECONDS)
        log.warning(
            "%s ended with code %s, again in %g s: see %s",
            program.name,
            process.returncode,
            pause,
            program.log_path,
        )
        stopping.wait(pause)


def _start(program: Program) -> subprocess.Popen[bytes]:
    private_folder(program.log_path.parent)
    with open(program.log_path, "ab", opener=private_opener) as output:
        return subprocess.Popen(  # noqa: S603 - our own arguments, no shell
            list(program.command),
            env=dict(program.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and everything that it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            if sign == signal.SIGTERM:
                time.sleep(0.5)  # its children see that it is gone


def until_stopped(tick: Callable[[], None] = lambda: None) -> None:
    """Wait for SIGINT or SIGTERM, calling `tick` once a second."""
    stopping = threading.Event()
    before = {s: signal.signal(s, lambda *_: stopping.set()) for s in (2, 15)}
    try:
        while not stopping.wait(1.0):
            tick()
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
