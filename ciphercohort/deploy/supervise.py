"""Child processes that are started again when they end, and that end with their parent."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocols.errors import ParameterError
from protocols.exchange.private_files import private_folder, private_opener

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS = 10.0
_STOP_SECONDS = 10.0
_CHILDREN_LOOKS = 10
LONGEST_LOG = 8 << 20
"""Bytes. A log that is longer becomes FILE.1, in place of the one before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What to run; log_path: where its output goes.

    expected: what it says to a person, once, that it ended with such a code; ready: a text that its
    output holds once it works, and what a person is told then.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log_path: Path
    expected: Mapping[int, str] = field(default_factory=dict)
    ready: tuple[str, str] = ("", "")


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
    pause, told = 0.5, ""
    while not stopping.is_set():
        began, before = time.monotonic(), _size(rolled(program.log_path))
        found, words = program.ready
        with _started(program) as process:
            while process.poll() is None and not stopping.wait(0.2):
                if found and _has(program.log_path, before, found):
                    found = ""
                    if words != told:
                        log.warning("%s %s", program.name, words)
                    told = words
        if stopping.is_set():
            return
        lasted = time.monotonic() - began > 60
        pause = min(1.0 if lasted else 2 * pause, LONGEST_PAUSE_SECONDS)
        ended = f"ended with code {process.returncode}, and is started again"
        words = program.expected.get(process.returncode, ended)
        if lasted or words != told:
            log.warning("%s %s: see %s", program.name, words, program.log_path)
        told = words
        stopping.wait(pause)


def _has(path: Path, start: int, text: str) -> bool:
    """Whether what follows the first bytes of a file, whatever else is in it, holds a text."""
    with path.open("rb") as file:
        file.seek(start)
        return text.encode() in file.read()


def rolled(path: Path) -> Path:
    """A log to append to, in a folder that is there: a new one where it has become too long."""
    private_folder(path.parent)
    with suppress(OSError):
        if _size(path) > LONGEST_LOG:
            path.replace(aside(path))
    return path


def aside(path: Path) -> Path:
    """Where a log goes that has become too long."""
    return path.with_name(f"{path.name}.1")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextmanager
def _started(program: Program) -> Iterator[subprocess.Popen[Any]]:
    with open(program.log_path, "ab", opener=private_opener) as output:
        held = child(
            program.command,
            env=dict(program.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        with held as process:
            yield process


@contextmanager
def child(
    command: Sequence[str], *, seconds: float = _STOP_SECONDS, **options: Any
) -> Iterator[subprocess.Popen[Any]]:
    """A process that leads a session, until the block ends; options: of `subprocess.Popen`.

    Then it ends with all that it has started in its session: it is told to, killed after so many
    seconds if it goes on, and waited for.
    """
    process = subprocess.Popen(  # noqa: S603 - our own arguments, no shell
        list(command), start_new_session=True, **options
    )
    try:
        yield process
    finally:
        _end(process, seconds)
        for pipe in (process.stdin, process.stdout, process.stderr):
            with suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()


def _end(process: subprocess.Popen[Any], seconds: float) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    with suppress(ProcessLookupError):
        # Its children see that it is gone.
        for _ in range(_CHILDREN_LOOKS if process.poll() is not None else 0):
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def until_stopped(ended: queue.SimpleQueue[str] | None = None) -> str:
    """Wait for SIGINT or SIGTERM, or for what has ended by itself: its name, else empty."""
    # `Event.set` is not for handlers.
    told: queue.SimpleQueue[str] = ended or queue.SimpleQueue()
    before = {s: signal.signal(s, lambda *_: told.put("")) for s in (2, 15)}
    try:
        return told.get()
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)


class Background:
    """What goes on in the background from `start` to `stop`, or to the end of a `with` block.

    It ends with the process, too, if that ends in an orderly way.
    """

    def __init__(self, title: str) -> None:
        self._title, self._running = title, ExitStack()
        self._is_running = False

    @contextmanager
    def starting(self) -> Iterator[ExitStack]:
        """Takes what `stop` closes; what fails while it starts leaves nothing behind.

        Raises:
            ParameterError: it runs already.
        """
        if self._is_running:
            raise ParameterError(f"{self._title} runs already: stop() it first")
        with ExitStack() as stack:
            yield stack
            self._running, self._is_running = stack.pop_all(), True
        atexit.register(self.stop)

    def stop(self) -> None:
        """End everything that `start` began; nothing where nothing runs."""
        self._is_running = False
        atexit.unregister(self.stop)
        self._running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{self._title}{', running' * self._is_running}>"
