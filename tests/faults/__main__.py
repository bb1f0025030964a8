"""`python -m tests.faults`: the whole matrix; exit code 1 if one case ended otherwise than stated.

About ten minutes on two quiet cores; most of it is waiting for time-outs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--workers", type=int, default=3, help="worlds at once")
    parser.add_argument("--step-seconds", type=float, default=6.0, help="more on a busy machine")
    parser.add_argument("--csv", type=Path, default=Path("faults.csv"))
    parser.add_argument("--only", default="", help="cases whose words hold this text")
    options = parser.parse_args()
    from protocols.plan.protocol import sequence
    from tests.faults.matrix import all_cases, run_all, write_csv
    from tests.support.helpers import make_plan

    steps = sequence(make_plan(rows=(4, 4), degree=3, update="gd", ring_dim=512))
    cases = [c for c in all_cases(steps) if options.only in f"{c.role}, {c.fault}, {c.step}"]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-", dir="/tmp") as folder:
        rows = run_all(Path(folder), cases, options.workers, options.step_seconds, tell)
    write_csv(options.csv, rows)
    print(table(rows))
    wrong = [row for row in rows if not row.ok]
    print(f"{len(rows)} cases in {time.monotonic() - began:.0f} s, {len(wrong)} not as stated")
    return int(bool(wrong))


def tell(row: Any) -> None:
    """A line as soon as a case is over."""
    mark = "" if row.ok else "  <-- NOT AS STATED"
    print(
        f"{row.role}, {row.fault}, {row.step}: {row.outcome} {row.who} "
        f"{row.seconds:.1f} s {row.reason[:90]}{mark}",
        flush=True,
    )


def table(rows: Sequence[Any]) -> str:
    """One line per role and fault: outcomes, longest times, most shares."""
    from tests.faults.matrix import COORDINATOR

    groups: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for row in rows:
        groups[COORDINATOR if row.role == COORDINATOR else "party", row.fault].append(row)
    head = ("role", "fault", "outcomes over the steps", "s to end", "s to no key", "shares", "off")
    lines = ["{:12}{:40}{:34}{:>9}{:>12}{:>7}{:>9}".format(*head)]
    for (role, fault), held in groups.items():
        ends = Counter(row.outcome for row in held)
        words = ", ".join(f"{count} {end}" for end, count in ends.most_common())
        lines.append(
            f"{role:12}{fault:40}{words:34}{max(r.seconds for r in held):9.1f}"
            f"{max(r.erased_seconds for r in held):12.1f}{max(r.given for r in held):7}"
            f"{max(r.difference for r in held):9.0e}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
