"""`python -m tests.holders [RUN …]`: modules that ever hold a row, a secret or noise; `holders`."""

from __future__ import annotations

import argparse

from ciphercohort.cli.trusted import Trusted
from tests.holders.holders import KINDS, ROOT, RUNS, Holders, holders_of

READER = "parties.reader"
KERNEL = {*Trusted.of(ROOT).kernel}


def outside(found: Holders) -> set[str]:
    """Modules that hold something, and are neither reader nor kernel, with all that it loads."""
    held = {module for kind in KINDS for module in found.modules(kind)}
    return {module for module in held - KERNEL if not module.startswith(READER)}


def main() -> None:
    """Print lines of functions by module and run, and how many are outside kernel and reader."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"of {', '.join(RUNS)}")
    for run in parser.parse_args().runs or RUNS:
        found = holders_of(run)
        print(f"{run}: lines of functions that hold a", *KINDS, sep="\n  ")
        by_kind = {kind: found.modules(kind) for kind in KINDS}
        for module in sorted({name for lines in by_kind.values() for name in lines}):
            row = "".join(f"{by_kind[kind].get(module, 0) or '':>6}" for kind in KINDS)
            print(f"  {module:44}{row}")
        print(f"  outside kernel and reader: {len(outside(found))} modules\n", flush=True)


if __name__ == "__main__":
    main()
