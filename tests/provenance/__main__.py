"""`python -m tests.provenance`: every protocol and option under ledger and audit.

What the columns mean is in `audit.Finding`; a leak has an exact equation, or a combination of few
units beside thousands. Residuals are those of `residuals.check` and `sums.check`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.provenance import residuals, runs, sums
from tests.provenance.audit import Finding, audit
from tests.provenance.mutants import MUTANTS
from tests.provenance.runs import Run, record, resumed

COVERED = {"parties": 4, "cover": 2}
LOST = {"refresh/1": ["hospital-4"], "decrypt": ["hospital-3"]}
RESTARTS = {"relinearise": ["hospital-1"], "refresh/1": ["hospital-2"], "decrypt": ["hospital-1"]}
STAND_IN = ("hospital-1", "hospital-4")

RUNS: dict[str, Callable[[], Run]] = {
    "rows, gradient descent": lambda: record(runs.rows_session("gd")),
    "rows, barrier": lambda: record(runs.rows_session("barrier-2", degree=5)),
    "rows, nesterov": lambda: record(runs.rows_session("nag", rounds=3)),
    "rows, quadratic nesterov": lambda: record(runs.quadratic_session()),
    "rows, parties restarted": lambda: record(runs.rows_session("nag", rounds=3), None, RESTARTS),
    "rows, cover, nobody lost": lambda: record(runs.rows_session("gd", **COVERED)),
    "rows, cover, two lost": lambda: record(runs.rows_session("gd", **COVERED), LOST),
    "rows, cover, lost and restarted": lambda: record(
        runs.rows_session("nag", rounds=3, **COVERED), LOST, {"refresh/2": ["hospital-2"]}
    ),
    "rows, coordinator resumed": lambda: resumed(Path(tempfile.mkdtemp())),
    "gram, linear (no map)": lambda: record(runs.gram_session("linear")),
    "gram, improved lffr (no map)": lambda: record(runs.gram_session("improved-lffr")),
    "lffr": lambda: record(runs.lffr_session()),
    "encrypted sums": lambda: record(runs.sums_session(features=64)),
}


def examined(name: str) -> tuple[int, Finding]:
    """Residuals checked, and the audit's finding."""
    run = RUNS[name]()
    check = sums.check if name == "encrypted sums" else residuals.check
    count = len(check(run))
    covering = getattr(run.plan, "cover", None)
    lost = covering and any(step.startswith("cover-refresh") for step, *_ in run.messages)
    return count, audit(run.samples, covering, STAND_IN if lost else None)


def main() -> int:
    """Print the table; 1 if a run fails, or a mutant passes."""
    head = ("run", "residuals", "samples", "left", "exact", "cancelling", "leaving", "random")
    print("".join(f"{title:>11}" if k else f"{title:36}" for k, title in enumerate(head)))
    failed = False
    for name in RUNS:
        count, found = examined(name)
        failed |= not found.passed
        print(f"{name:36}{count:>11}{_figures(found)}", flush=True)
    ledgers = RUNS["rows, gradient descent"]().samples
    for name, mutant in MUTANTS.items():
        found = audit({party: mutant(samples) for party, samples in ledgers.items()}, whole=0)
        failed |= found.passed
        print(f"{'mutant: ' + name:36}{'':>11}{_figures(found)}", flush=True)
    return int(failed)


def _figures(found: Finding) -> str:
    lengths = (found.cancelling, found.leaving, found.random)
    return f"{found.samples:>11}{found.left:>11}{found.exact:>11}" + "".join(
        f"{length:>11.4g}" for length in lengths
    )


if __name__ == "__main__":
    sys.exit(main())
