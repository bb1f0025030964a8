"""Files and folders that options name, looked at before anything is loaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ciphercohort.job.layout import is_alive, read_status
from protocols.errors import DataError, ParameterError
from protocols.exchange.documents import suggest

if TYPE_CHECKING:
    from ciphercohort.job.config import SimulationConfig


def check_places(config: SimulationConfig) -> None:
    """Refuse files that are not there, and folders that cannot be a run's.

    Raises:
        DataError, ParameterError: name the option, the path and the cure.
    """
    for name in ("data", "schema", "test"):
        value = getattr(config, name)
        if isinstance(value, (str, os.PathLike)):
            _check_file(name, Path(value))
    if config.out is not None:
        check_place(Path(config.out).resolve(), str(config.out))
    if config.ledger is not None and config.ledger.exists() and not config.ledger.is_dir():
        raise ParameterError(f"ledger={str(config.ledger)!r} is a file: give a folder")


def _check_file(name: str, path: Path) -> None:
    if path.is_dir():
        raise DataError(f"{name}={str(path)!r} cannot be read: it is a folder, give a file")
    if not path.exists():
        near = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(
            f"{name}={str(path)!r} cannot be read: there is no such file{suggest(path.name, near)}"
        )


def check_place(folder: Path, given: str) -> None:
    """Refuse a run folder that is a file, holds something else, or a run that is going on.

    Raises:
        ParameterError: says which.
    """
    if folder.exists() and not folder.is_dir():
        raise ParameterError(f"out={given!r} is a file: give a folder")
    if not folder.exists() or not any(folder.iterdir()):
        return
    status = read_status(folder)
    if status is None:
        raise ParameterError(
            f"out={given!r} is not empty and holds no run of ciphercohort: choose another "
            "folder, or empty it"
        )
    if status.get("state") == "running" and is_alive(status.get("pid")):
        raise ParameterError(
            f"out={given!r} belongs to a run that is still going on (process "
            f"{status['pid']}): wait for its end, or choose another folder"
        )
