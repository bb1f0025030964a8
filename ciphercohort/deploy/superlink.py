"""A run on a SuperLink that somebody else operates, by its address; `cohort coordinator run`.

The app that is sent there has no code: SuperLink and nodes run what is installed at theirs. The
results come back in the run's log.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ciphercohort.deploy import flower_commands
from ciphercohort.deploy.flower_job import results_in
from ciphercohort.job.config import DEPLOY
from ciphercohort.job.options import option_name
from coordinator import setup
from coordinator.settings import SCHEMA, Settings
from protocols.errors import ProtocolError
from protocols.exchange.private_files import private_folder, write_private

FOLDER, APP = "superlink", "app"
POLL_SECONDS = 5.0
SERVER, CLIENT = "ciphercohort.deploy.flower_job", "parties.flower_site"


def run_on(
    settings: Settings,
    address: str,
    *,
    roots: Path | None,
    parties: int,
    tell: Callable[[str], None],
) -> Path:
    """Train there by [training] and the schema of this folder; returns the documents' folder.

    address: of the SuperLink, for commands; roots: file of its root certificates; parties: wait for
    so many sites.

    Raises:
        ProtocolError: the SuperLink does not answer, or the run fails; says what its log ends with.
    """
    folder = private_folder(settings.folder / FOLDER)
    shutil.rmtree(folder / APP, ignore_errors=True)
    setup.write_app(folder / APP, SERVER, CLIENT, _config(settings, parties))
    flower_commands.connect(folder, address, roots)
    command = ["run", str((folder / APP).absolute()), flower_commands.CONNECTION]
    run = int(flower_commands.flwr(folder, command)["run-id"])
    tell(f"run {run} on {address}")
    state = _watch(folder, run, settings.session_seconds, tell)
    log = flower_commands.log_of(folder, run)
    found = results_in(log)
    if state != "finished:completed" or not found:
        lines = [line for line in log.splitlines() if line.strip()]
        raise ProtocolError(f"run {run} is {state}: {_plain(lines[-1]) if lines else 'no log'}")
    out = private_folder(folder / str(run))
    for name, data in found.items():
        write_private(out / name, data)
    return out


def _config(settings: Settings, parties: int) -> dict[str, Any]:
    """A run configuration for `ciphercohort.deploy.flower_job`."""
    names = {each.name: option_name(each).replace("_", "-") for each in DEPLOY}
    training = {names.get(name, name): value for name, value in settings.training.items()}
    return {
        **training,
        "no-privacy": "epsilon" not in training,
        "parties": parties,
        "step-seconds": settings.step_seconds,
        "session-seconds": settings.session_seconds,
        "schema": (settings.folder / SCHEMA).read_text(encoding="utf-8"),
        "log-results": True,
    }


def _watch(folder: Path, run: int, seconds: float, tell: Callable[[str], None]) -> str:
    """Until the run is over; its status."""
    deadline, told = time.monotonic() + seconds, ""
    while time.monotonic() < deadline:
        (found,) = flower_commands.flwr(
            folder, ["ls", flower_commands.CONNECTION, "--run-id", str(run)]
        )["runs"]
        state = str(found["status"])
        if state.startswith("finished"):
            return state
        if state != told:
            tell(state)
            told = state
        time.sleep(POLL_SECONDS)
    raise ProtocolError(f"run {run} is not over after session_seconds={seconds:g}")


def _plain(line: str) -> str:
    """Without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", line).strip()
