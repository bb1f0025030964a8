"""Files that survive a power cut whole, and that only their owner reads."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, data: bytes) -> None:
    """Replace a file (mode 0600), durably: afterwards it is the old one or the new one."""
    scratch = path.with_name(f".{path.name}.tmp")
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)
    sync_folder(path.parent)


def erase(path: Path) -> None:
    """Remove a file, durably. A disk may keep its blocks: seal what is secret."""
    path.unlink(missing_ok=True)
    path.with_name(f".{path.name}.tmp").unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make new, renamed and removed names survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
