"""Where the files of a run are: one table, two halves.

    RUN/release/   what a coordinator sees: it may be mailed, and a deployed session's folder is it
    RUN/private/   what only whoever simulates all owners has (mode 0700, files 0600)

The halves of a simulation and the folder of a deployed session have the same names, so `release_of`
finds the first in all of them, and in a `release` folder that was mailed alone.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from protocols.errors import CohortError, ParameterError

RELEASE, PRIVATE = "release", "private"
STATUS, KIND, LAYOUT = "status.json", "ciphercohort-run", 2

# Of both halves.
REPORT = "report.html"
# Of the release.
TRANSCRIPT, PLAN, MODEL, FACTS = "transcript.jsonl", "plan.json", "model.json", "run.json"
CERTIFICATE, MESSAGES, SECOND_MOMENT = "certificate.json", "messages", "second-moment"
INFERENCE_SUMS, INFERENCE, TABLE = "inference", "inference.json", "inference.tex"
EVALUATION_SUM, EVALUATION = "evaluation", "evaluation.json"
FIRST = f"{SECOND_MOMENT}/{TRANSCRIPT}"
# Of the private half.
METRICS, SUMMARY, HELD_BACK = "metrics.jsonl", "summary.json", "held-out.json"
# Of sums that follow a model, in folders of their own.
SUMS, MISSING = "sums", "missing.json"
# Of a deployment: folders of sessions, and what one of them opened.
SESSIONS, OUTCOME = "sessions", "outcome.json"
# Of studies, which have a report of their own.
DESCRIPTION, SURVIVAL, GLM = STUDIES = "description.json", "survival.json", "glm.json"

WRITES = "cohort party results writes them, at the centre run --session"
"""Documents of a training that has finished."""
UNREADABLE = (
    *(CohortError, OSError, ArithmeticError, AttributeError, LookupError, RecursionError),
    *(TypeError, ValueError),
)
"""What reading a file may raise that is not there, or holds something else than it should."""
OPTIONAL = (CERTIFICATE, INFERENCE, TABLE, EVALUATION, HELD_BACK)
"""Not of every run."""
HALVES = {
    RELEASE: (TRANSCRIPT, PLAN, MODEL, CERTIFICATE, FACTS, INFERENCE, TABLE, EVALUATION, REPORT),
    PRIVATE: (METRICS, SUMMARY, HELD_BACK, REPORT),
}
"""Files whose SHA-256 the half's status.json holds, once the run has finished."""


def release_of(folder: Path) -> Path:
    """The half that holds what a coordinator sees: of a run folder, or the folder itself.

    Raises:
        ParameterError: the run was written by an earlier version, in one folder.
    """
    if (folder / RELEASE).is_dir():
        return folder / RELEASE
    status = _read(folder / STATUS)
    if status is not None and status.get("layout") != LAYOUT:
        raise ParameterError(
            f"{str(folder)!r} was written by an earlier version, all in one folder: run it again, "
            f"which makes {folder / RELEASE} and {folder / PRIVATE}; its model still can be given "
            f"as {folder / MODEL}"
        )
    return folder


def private_of(folder: Path) -> Path | None:
    """The half that stays with the owners; None where the release is alone."""
    found = folder / PRIVATE
    return found if found.is_dir() else None


def model_path(path: Path) -> Path:
    """model.json of a run folder, of its release, or of a session; a file is itself.

    Raises:
        ParameterError: as `release_of`.
    """
    return release_of(path) / MODEL if path.is_dir() else path


def check_role(folder: Path, role: str) -> None:
    """Of a deployment, as `cohort coordinator` and `cohort party` take them by their folders.

    Raises:
        ParameterError: the folder is of the other role, or of none.
    """
    if (folder / f"{role}.toml").exists():
        return
    other = "party" if role == "coordinator" else "coordinator"
    if (folder / f"{other}.toml").exists():
        raise ParameterError(
            f"{folder} is the folder of a {other}: its commands are cohort {other}, or give the "
            f"folder that cohort {role} init made"
        )
    raise ParameterError(
        f"{folder} has no {role}.toml: give the folder that cohort {role} init made, or make one"
    )


def give_session(path: Path) -> str:
    """A cure, where a session's folder is due; empty: nothing is known of this path."""
    if (path / SESSIONS).is_dir():
        return f"give one of its sessions, {path / SESSIONS}/ID, that cohort … status lists"
    return f"give the folder that it is in, {str(path.parent)!r}" if path.is_file() else ""


def read_status(folder: Path) -> dict[str, Any] | None:
    """How far a run came, and SHA-256 by file; None where there is no run.

    {kind, layout, state, phase, iteration, rounds, reason, started, updated, pid, files}; files:
    "release/plan.json" and so on. The reason, which may tell of rows, and files of the private half
    only where that half is.
    """
    here = folder / RELEASE if (folder / RELEASE).is_dir() else folder
    status = _read(here / STATUS)
    if status is None or status.get("layout") != LAYOUT:
        return status
    kept = private_of(folder)
    own = (_read(kept / STATUS) if kept else None) or {}
    halves = {RELEASE: status.get("files", {}), PRIVATE: own.get("files", {})}
    named = {f"{half}/{name}": sha for half, files in halves.items() for name, sha in files.items()}
    return {**status, "reason": own.get("reason") or status.get("reason"), "files": named}


def read_file(path: Path) -> Any:
    """A file of a run: an object, or a list of them where the file has one a line.

    Raises:
        OSError: it cannot be read.
        ValueError, RecursionError: it is not JSON, repeats a key, or holds something else than
            objects.
    """
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    found = [json.loads(line, object_pairs_hook=_once) for line in lines]
    if not all(isinstance(each, dict) for each in found):
        raise ValueError("a list or number stands where an object should")
    return found if path.suffix == ".jsonl" else found[0]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of a repeated key readers take one value or another."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {max(names, key=names.count)!r} is repeated")
    return found


def is_alive(pid: object) -> bool:
    """Whether a process of this number exists."""
    if not isinstance(pid, int) or pid < 1:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _read(path: Path) -> dict[str, Any] | None:
    """A status.json of ours."""
    try:
        status: dict[str, Any] = read_file(path)
    except (OSError, ValueError):
        return None
    return status if status.get("kind") == KIND else None
