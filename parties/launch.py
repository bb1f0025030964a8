"""Processes of this project's own programs."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import resource
import signal
import sys
from collections.abc import Sequence
from typing import Any

_PARENT_DEATH = 1  # PR_SET_PDEATHSIG

_START = """import os, sys
named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
sys.path[:] = [*filter(os.path.isabs, named), *filter(None, sys.path)]
import runpy
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)"""


ONLINE, OFFLINE = "this node is online", "this node is offline"
"""What a relay's log says of its connection; the latest of both holds."""


def program(module: str) -> list[str]:
    """Command that runs an installed module; nothing is loaded from the current folder.

    A `resource.py` there would otherwise be run, and be told a passphrase. The current folder is on
    Python's path as its first entry, and for each empty or relative part of PYTHONPATH; `sys` and
    what `os` needs are there before the path is looked at.
    """
    # -E: PYTHONPATH as it is read here; -u: in the place of PYTHONUNBUFFERED.
    return [sys.executable, "-E", "-u", "-c", _START.format(module=module)]


_PASSED = re.compile(
    r"PATH|PYTHONPATH|LD_LIBRARY_PATH|LANG|LC_\w+|TZ|TMPDIR|\w+_NUM_THREADS|GLIBC_\w+"
)


def environment() -> dict[str, str]:
    """What of this process's environment a process may have that gets no secret of its owner's.

    Passwords of databases stand in variables (`password_env`), passphrases may.
    """
    return {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}


def end_with(parent: int, sign: int = signal.SIGKILL) -> None:
    """This process, as soon as the one that began it has ended, however that ends (Linux).

    parent: its number, in case that it ended before this was asked for; sign: which signal tells.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH, sign, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def tied(command: Sequence[str]) -> list[str]:
    """The same command, told to end (SIGTERM) when this process has ended, however that ends.

    A relay or a SuperLink that outlived its own command would keep its place from the next one.
    """
    return [*program("parties.launch"), str(os.getpid()), *command]


def no_core_files() -> None:
    """Of this process, from now on: a core file would hold its secrets."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _printable(text: str) -> str:
    """As `protocols.words`, which no process with secrets loads."""
    return "".join(c if c.isprintable() else "?" for c in text)


class Lines(logging.Formatter):
    """One record, one line, whatever another party chose of it; lines of a trace begin by "| "."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as the library has it
        """Without what a terminal would obey."""
        return _printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - as the library has it
        """An error's words may be another party's."""
        trace = super().formatException(ei).splitlines()
        return "\n".join(f"| {_printable(line)}" for line in trace)


def log_lines(form: str) -> None:
    """To standard error, from now on, by `Lines`; form: of a record."""
    handler = logging.StreamHandler()
    handler.setFormatter(Lines(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


if __name__ == "__main__":  # see `tied`; what is asked for here outlives `exec`
    end_with(int(sys.argv[1]), signal.SIGTERM)
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - our own arguments
