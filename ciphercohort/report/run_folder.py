"""The folder that a run leaves behind: what was agreed, what came out, or where it stopped.

release/  what a coordinator sees, see `ciphercohort.report.release`; it may be mailed
status.json       how far the run is; the only file that changes while it goes on
transcript.jsonl  one line per message, a hash chain (see protocols.exchange.transcript)
plan.json         the agreed RunPlan and its `digest`
model.json        the jointly decrypted model
certificate.json  the privacy certificate, where there is one
run.json          seconds and bytes, the promise of all that was opened, notes
report.html       all of this for a person
messages/         every message, where the run keeps them (see coordinator.log)
second-moment/    transcript and messages of the run that went before, of whitened rows
inference.json    standard errors, where they were asked for, and inference.tex for a paper
inference/        transcripts of their sums
evaluation.json   how good the model is on rows that were held back, where it was asked for
evaluation/       transcript of its sum
private/  what only a simulation knows, for it has all rows; mode 0700, files 0600
status.json       why the run ended early
metrics.jsonl     figures by iteration and scores, see `documents.metrics_lines`
summary.json      SimulationResult.summary()
report.html       all of this for a person
held-out.json     the owners' coins, where rows were held back: see sims.held_out
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ciphercohort.job.layout import (
    HALVES,
    KIND,
    LAYOUT,
    MESSAGES,
    METRICS,
    PRIVATE,
    RELEASE,
    REPORT,
    STATUS,
    SUMMARY,
    TRANSCRIPT,
)
from ciphercohort.job.places import check_place
from ciphercohort.report.release import Release
from ciphercohort.report.release_report import render_release
from ciphercohort.report.report import render_report
from ciphercohort.results.documents import metrics_lines, to_json, write_text
from ciphercohort.results.result import RunResult
from protocols.errors import ParameterError
from protocols.exchange.private_files import private_folder, write_private

log = logging.getLogger(__name__)

REASONS = {True: "interrupted", False: "aborted; private/status.json says why"}
"""Of an early end, by whether it was asked for: the text of an error may tell of rows."""


class RunFolder:
    """One run's folder; `create` it before the run, `note` events, `write` or `abort` in the end.

    release/status.json: {kind, layout, state, phase, iteration, rounds, reason, started, updated,
    pid, files}. state: "running", "finished" or "aborted"; phase, iteration: how far the run came;
    reason: one of REASONS; started, updated: UTC; pid: the process; files: SHA-256 by file name of
    this half, once finished. private/status.json: {kind, layout, reason, files}, the reason in full
    and the other half's files. They are replaced as a whole at every event, so a killed run still
    tells where it was.
    """

    def __init__(self, path: Path, rounds: int) -> None:
        self.path = path
        self.release, self.private = path / RELEASE, path / PRIVATE
        self.release.mkdir(parents=True, exist_ok=True)
        private_folder(self.private)
        self._status: dict[str, Any] = {
            "kind": KIND,
            "layout": LAYOUT,
            "state": "running",
            "phase": "data",
            "iteration": 0,
            "rounds": rounds,
            "reason": None,
            "started": _now(),
            "updated": _now(),
            "pid": os.getpid(),
            "files": {},
        }
        self._save()

    @classmethod
    def create(cls, path: str | Path, *, rounds: int = 0) -> RunFolder:
        """Make the folder, with its parents.

        An earlier run in the same place is moved to PATH.1, PATH.2, … and a log message says so.
        Anything else is left alone.

        Raises:
            ParameterError: the path is a file, a folder of something else, a run that is still
                going on, or cannot be written.
        """
        folder = Path(path).resolve()
        try:
            check_place(folder, str(path))
            if folder.exists() and any(folder.iterdir()):
                _make_way(folder)
            return cls(folder, rounds)
        except OSError as error:
            raise ParameterError(
                f"out={str(path)!r} cannot be written ({error.strerror}): choose another folder"
            ) from None

    @property
    def transcript_path(self) -> Path:
        """Where the coordinator logs its messages."""
        return self.release / TRANSCRIPT

    @property
    def messages_path(self) -> Path:
        """Where it keeps them, if it does."""
        return self.release / MESSAGES

    @property
    def status(self) -> Mapping[str, Any]:
        """What release/status.json holds."""
        return dict(self._status)

    def note(self, phase: str, iteration: int = 0) -> None:
        """Record progress; iteration: finished iterations, 0 for "as before"."""
        self._status["phase"] = phase
        self._status["iteration"] = max(iteration, self._status["iteration"])
        self._save()

    def abort(self, reason: str, *, interrupted: bool = False) -> None:
        """Record that the run ended early; a finished run stays finished."""
        if self._status["state"] == "finished":
            return
        self._keep(reason=reason)
        self._status.update(state="aborted", reason=REASONS[interrupted])
        self._save()

    def write(self, result: RunResult) -> None:
        """Write everything about a finished run."""
        self.note("report", result.plan.rounds)
        for name, text in Release.of(result).documents().items():
            write_text(self.release / name, text)
        # Of the files, so that nothing else can be in it.
        write_text(self.release / REPORT, render_release(Release.load(self.release)))
        lines = "".join(to_json(line, indent=None) for line in metrics_lines(result))
        for name, text in (
            (METRICS, lines),
            (SUMMARY, to_json(result.summary())),
            (REPORT, render_report(result)),
        ):
            write_private(self.private / name, text.encode(), durable=False)
        self._keep(files=_digests(self.private, PRIVATE))
        self._status.update(state="finished", files=_digests(self.release, RELEASE))
        self._save()

    def _keep(self, **fields: Any) -> None:
        body = {"kind": KIND, "layout": LAYOUT, "reason": None, "files": {}, **fields}
        write_private(self.private / STATUS, to_json(body).encode(), durable=False)

    def _save(self) -> None:
        self._status["updated"] = _now()
        write_text(self.release / STATUS, to_json(self._status))


def _digests(folder: Path, half: str) -> dict[str, str]:
    present = [name for name in HALVES[half] if (folder / name).exists()]
    return {name: file_digest(folder / name) for name in present}


def file_digest(path: Path) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _make_way(folder: Path) -> None:
    number = 1
    while (aside := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    folder.rename(aside)
    log.warning("the earlier run in %s is now in %s", folder, aside)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
