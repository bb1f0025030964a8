"""Processes of this project's own programs."""

from __future__ import annotations

import resource
import sys

SAFE_PATH = sys.version_info >= (3, 11)


def program(module: str) -> list[str]:
    """Command that runs an installed module; nothing is loaded from the current folder.

    A `resource.py` there would otherwise be run, and be told a passphrase. Python 3.10 has no -P:
    `sys` is built in, and the current folder leaves the path before anything else is imported.
    """
    code = "import sys; sys.path[:] = filter(None, sys.path); import runpy; "
    code += f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return [sys.executable, *(("-P", "-m", module) if SAFE_PATH else ("-c", code))]


def no_core_files() -> None:
    """Of this process, from now on: a core file would hold its secrets."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
