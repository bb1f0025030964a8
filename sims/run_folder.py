"""The folder that a run leaves behind: what was agreed, what came out, or where it stopped.

    status.json       see `RunFolder`; the only file that changes while the run goes on
    transcript.jsonl  one line per message, a hash chain (see protocols.transcript)
    plan.json         the agreed RunPlan and its `digest`
    model.json        the jointly decrypted model, see `documents.model_document`
    metrics.jsonl     figures by iteration, costs, scores, see `documents.metrics_lines`
    summary.json      SimulationResult.summary()
    certificate.json  the privacy certificate, where there is one
    report.html       all of this for a person
    messages/         every message, where the run keeps them (see coordinator.log)
    second-moment/    transcript and messages of the run that went before, where rows are whitened
    inference.tex     the table of coefficients, where it was asked for
    inference/        transcripts of its sums
    evaluation.json   how good the model is on rows that were held back, where it was asked for
    evaluation/       transcript of its sum
    held-out.json     the owners' coins, where rows were held back: see sims.held_out

No file but held-out.json holds a row of data or anything secret; but the report of a regression
draws the test rows' targets.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from protocols.errors import ParameterError
from sims.documents import metrics_lines, model_document, to_json
from sims.places import KIND, STATUS, check_place
from sims.report import render_report
from sims.result import RunResult

log = logging.getLogger(__name__)

TRANSCRIPT, PLAN = "transcript.jsonl", "plan.json"
MODEL, METRICS, SUMMARY = "model.json", "metrics.jsonl", "summary.json"
CERTIFICATE, REPORT = "certificate.json", "report.html"
MESSAGES = "messages"
SECOND_MOMENT = "second-moment"
INFERENCE_SUMS, INFERENCE, TABLE = "inference", "inference.json", "inference.tex"
EVALUATION_SUM, EVALUATION, HELD_BACK = "evaluation", "evaluation.json", "held-out.json"
SUMS, MISSING = "sums", "missing.json"
FIRST = f"{SECOND_MOMENT}/{TRANSCRIPT}"
FILES = (TRANSCRIPT, PLAN, MODEL, METRICS, SUMMARY, CERTIFICATE, TABLE, REPORT)
OPTIONAL = (CERTIFICATE, TABLE)
"""Not of every run."""


class RunFolder:
    """One run's folder; `create` it before the run, `note` events, `write` or `abort` in the end.

    status.json holds {kind, state, phase, iteration, rounds, reason, started, updated, pid, files}.
    state: "running", "finished" or "aborted"; phase, iteration: how far the run came; reason: why
    it was aborted; started, updated: UTC; pid: the process; files: SHA-256 by file name, once
    finished. It is replaced as a whole at every event, so a killed run still tells where it was.
    """

    def __init__(self, path: Path, rounds: int) -> None:
        self.path = path
        self._status: dict[str, Any] = {
            "kind": KIND,
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
    def create(cls, path: str | Path, *, rounds: int = 0, overwrite: bool = False) -> RunFolder:
        """Make the folder, with its parents.

        An earlier run in the same place is moved to PATH.1, PATH.2, … and a log message says so;
        with `overwrite` its files are deleted instead. Anything else is left alone.

        Raises:
            ParameterError: the path is a file, a folder of something else, a run that is still
                going on, or cannot be written.
        """
        folder = Path(path).resolve()
        try:
            check_place(folder, str(path))
            if folder.exists() and any(folder.iterdir()):
                _make_way(folder, overwrite)
            folder.mkdir(parents=True, exist_ok=True)
            return cls(folder, rounds)
        except OSError as error:
            raise ParameterError(
                f"out={str(path)!r} cannot be written ({error.strerror}): choose another folder"
            ) from None

    @property
    def transcript_path(self) -> Path:
        """Where the coordinator logs its messages."""
        return self.path / TRANSCRIPT

    @property
    def messages_path(self) -> Path:
        """Where it keeps them, if it does."""
        return self.path / MESSAGES

    @property
    def status(self) -> Mapping[str, Any]:
        """What status.json holds."""
        return dict(self._status)

    def note(self, phase: str, iteration: int = 0) -> None:
        """Record progress; iteration: finished iterations, 0 for "as before"."""
        self._status["phase"] = phase
        self._status["iteration"] = max(iteration, self._status["iteration"])
        self._save()

    def abort(self, reason: str) -> None:
        """Record that the run ended early; a finished run stays finished."""
        if self._status["state"] == "finished":
            return
        self._status.update(state="aborted", reason=reason)
        self._save()

    def write(self, result: RunResult) -> None:
        """Write everything about a finished run."""
        self.note("report", result.plan.rounds)
        plan = {**result.plan.to_dict(), "digest": result.plan.digest()}
        write_text(self.path / PLAN, to_json(plan))
        write_text(self.path / MODEL, to_json(model_document(result)))
        lines = "".join(to_json(line, indent=None) for line in metrics_lines(result))
        write_text(self.path / METRICS, lines)
        write_text(self.path / SUMMARY, to_json(result.summary()))
        if result.certificate is not None:
            write_text(self.path / CERTIFICATE, to_json(result.certificate))
        if result.inference is not None:
            write_text(self.path / TABLE, result.inference.latex())
        write_text(self.path / REPORT, render_report(result))
        present = [name for name in FILES if (self.path / name).exists()]
        files = {name: file_digest(self.path / name) for name in present}
        self._status.update(state="finished", files=files)
        self._save()

    def _save(self) -> None:
        self._status["updated"] = _now()
        write_text(self.path / STATUS, to_json(self._status))


def write_text(path: Path, text: str) -> None:
    """Replace a file as a whole: a reader sees the old text or the new one."""
    scratch = path.with_name(f".{path.name}.tmp")
    scratch.write_text(text, encoding="utf-8")
    os.replace(scratch, path)


def file_digest(path: Path) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _make_way(folder: Path, overwrite: bool) -> None:
    if overwrite:
        for name in (STATUS, *FILES):
            (folder / name).unlink(missing_ok=True)
        for name in (EVALUATION, HELD_BACK):
            (folder / name).unlink(missing_ok=True)
        for name in (MESSAGES, SECOND_MOMENT, INFERENCE_SUMS, EVALUATION_SUM):
            shutil.rmtree(folder / name, ignore_errors=True)
        log.warning("the earlier run in %s is overwritten", folder)
        return
    number = 1
    while (aside := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    folder.rename(aside)
    log.warning("the earlier run in %s is now in %s", folder, aside)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
