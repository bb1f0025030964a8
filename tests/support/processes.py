"""Processes of a deployment, wherever they were started from."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path


def processes_of(home: Path) -> list[int]:
    """Processes of this deployment's Flower: all have FLWR_HOME below its folder."""
    found, mark = [], f"FLWR_HOME={home}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def stray(home: Path) -> list[str]:
    """What is left of one, given 20 s to end."""
    for _ in range(100):
        lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
        left = [words for words in lines.splitlines() if f"{home}/" in words]
        if not left and not processes_of(home):
            return []
        time.sleep(0.2)
    return left or ["a process with the folder in its environment"]
