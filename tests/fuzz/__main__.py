"""`python -m tests.fuzz --inputs 1000000 --seed 1`: exit code 1 if anything was found.

`--target agent`: a party agent, through its socket as a process of its own, and `Agent.handle`.
"""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.worker import spawn


def main() -> int:
    """Fuzz and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--target", choices=("all", "agent"), default="all")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    report, codes = spawn(options.inputs, options.seed, options.workers, options.target)
    for (target, outcome), count in sorted(report.outcomes.items()):
        print(f"{target:12} {outcome:32} {count:9,}")
    print(f"{report.inputs:,} inputs in {report.seconds:.0f} s, ", end="")
    print(f"{report.inputs / max(report.seconds, 1e-9):.0f}/s; slowest {report.slowest:.2f} s")
    print(f"memory {report.warm / 1e6:.0f} MB after warm-up, at most {report.peak / 1e6:.0f} MB")
    print(f"exit codes {codes}, findings {len(report.findings)}")
    print("\n".join(report.findings))
    return int(bool(report.findings) or any(codes))


if __name__ == "__main__":
    sys.exit(main())
