"""Who has workers for groups of encrypted rows: each a file and one line here."""

from __future__ import annotations

import pkgutil
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from protocols.errors import ParameterError

ENGINES = (
    # Processes of this machine, or of others behind a scheduler.
    "coordinator.dask_workers:workers_of",
)
"""The first one is taken."""


def workers_of(asked: int | str, folder: Path | None = None) -> AbstractContextManager[Any]:
    """An engine (`protocols.steps.workers`) while it is open; asked 0: None, and nothing is loaded.

    asked: how many processes of this machine, or the address of a scheduler; folder: holds what
    proves who belongs to the cluster.

    Raises:
        ParameterError: nothing here has workers, or it refuses what is asked.
        WorkersError: on opening: nobody answers.
    """
    if not asked:
        return nullcontext()
    if not ENGINES:
        raise ParameterError(f"workers={asked!r}: no adapter for workers is installed here: take 0")
    engine: AbstractContextManager[Any] = pkgutil.resolve_name(ENGINES[0])(asked, folder)
    return engine
