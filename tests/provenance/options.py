"""Every protocol and option, as a recorded toy run (INSECURE) under residuals and audit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.provenance import residuals, runs, sums
from tests.provenance.audit import PART, WHOLE, Finding, audit
from tests.provenance.runs import Run, record, resumed
from tests.support import sessions

COVERED = {"parties": 4, "cover": 2}
LOST = {"refresh/1": ["hospital-4"], "decrypt": ["hospital-3"]}
RESTARTS = {"relinearise": ["hospital-1"], "refresh/1": ["hospital-2"], "decrypt": ["hospital-1"]}
STAND_IN = ("hospital-1", "hospital-4")

RUNS: dict[str, Callable[[], Run]] = {
    "rows, gradient descent": lambda: record(runs.rows_session("gd")),
    "rows, barrier": lambda: record(runs.rows_session("barrier-2", degree=5)),
    "rows, nesterov": lambda: record(runs.rows_session("nag", rounds=3)),
    "rows, quadratic nesterov": lambda: record(sessions.quadratic_session()),
    "rows, parties restarted": lambda: record(runs.rows_session("nag", rounds=3), None, RESTARTS),
    "rows, cover, nobody lost": lambda: record(runs.rows_session("gd", **COVERED)),
    "rows, cover, two lost": lambda: record(runs.rows_session("gd", **COVERED), LOST),
    "rows, cover, lost and restarted": lambda: record(
        runs.rows_session("nag", rounds=3, **COVERED), LOST, {"refresh/2": ["hospital-2"]}
    ),
    "rows, coordinator resumed": lambda: resumed(Path(tempfile.mkdtemp())),
    "rows, whitened": lambda: record(sessions.whitened_session()),
    "gram, linear (no map)": lambda: record(sessions.gram_session("linear")),
    "gram, improved lffr (no map)": lambda: record(sessions.gram_session("improved-lffr")),
    "lffr": lambda: record(sessions.lffr_session()),
    "model, nesterov, in parts": lambda: record(sessions.model_session(update="nag", rounds=3)),
    "model, parties restarted": lambda: record(
        sessions.model_session(update="nag", rounds=3),
        None,
        {"gradient/1": ["hospital-1"], "refresh/1": ["hospital-2"], "decrypt": ["hospital-3"]},
    ),
    "model, cover, two lost": lambda: record(
        sessions.model_session(**COVERED, rounds=3),
        {"gradient/1": ["hospital-4"], "refresh/2": ["hospital-3"]},
    ),
    "model, lffr": lambda: record(sessions.lffr_model_session()),
    "encrypted sums": lambda: record(sessions.sums_session(features=64)),
}


def examined(name: str, *, whole: int = WHOLE, part: int = PART) -> tuple[int, Finding]:
    """Residuals checked, and the audit's finding; whole, part: see `audit`."""
    run = RUNS[name]()
    check = sums.check if name == "encrypted sums" else residuals.check
    count = len(check(run))
    covering = getattr(run.plan, "cover", None)
    lost = covering and any(step.startswith("cover-refresh") for step, *_ in run.messages)
    covered = STAND_IN if lost else None
    return count, audit(run.sent, covering, covered, whole=whole, part=part)
