"""`python -m tests.provenance`: every protocol and option under ledger and audit.

What the columns mean is in `audit.Finding`; a leak has an exact equation, or a combination of few
units beside thousands. Residuals are those of `residuals.check` and `sums.check`.
"""

from __future__ import annotations

import sys

from tests.provenance.audit import Finding, audit
from tests.provenance.mutants import MUTANTS
from tests.provenance.options import RUNS, examined


def main() -> int:
    """Print the table; 1 if a run fails, or a mutant passes."""
    head = ("run", "residuals", "samples", "left", "exact", "cancelling", "leaving", "random")
    print("".join(f"{title:>11}" if k else f"{title:46}" for k, title in enumerate(head)))
    failed = False
    for name in RUNS:
        count, found = examined(name)
        failed |= not found.passed
        print(f"{name:46}{count:>11}{_figures(found)}", flush=True)
    ledgers = RUNS["rows, gradient descent"]().samples
    for name, mutant in MUTANTS.items():
        found = audit({party: mutant(samples) for party, samples in ledgers.items()}, whole=0)
        failed |= found.passed
        print(f"{'mutant: ' + name:46}{'':>11}{_figures(found)}", flush=True)
    return int(failed)


def _figures(found: Finding) -> str:
    lengths = (found.cancelling, found.leaving, found.random)
    return f"{found.samples:>11}{found.left:>11}{found.exact:>11}" + "".join(
        f"{length:>11.4g}" for length in lengths
    )


if __name__ == "__main__":
    sys.exit(main())
