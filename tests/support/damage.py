"""Ways in which a file that was written well is found later."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _unknown_field(path: Path) -> None:
    path.write_text(json.dumps({"unknown": 1}))


def _directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def _unreadable(path: Path) -> None:
    """Also for root."""
    path.unlink(missing_ok=True)
    path.symlink_to("/proc/self/mem")


DAMAGED: Mapping[str, Callable[[Path], object]] = {
    "cut": _cut,
    "unknown field": _unknown_field,
    "another type": lambda path: path.write_text("[1]"),
    "binary": lambda path: path.write_bytes(b"\xff\x00\xfe" * 9),
    "directory": _directory,
    "unreadable": _unreadable,
}
"""By name: what is done to a file."""
