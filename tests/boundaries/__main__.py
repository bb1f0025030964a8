"""The property over both boundaries, for as many pairs as are asked for.

python -m tests.boundaries --pairs 20000 [--only csv,xlsx] [--seed 1]
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis.strategies import SearchStrategy

from tests.boundaries.explore import Found, explore
from tests.boundaries.folders import OPTIONS, Folders, rows
from tests.boundaries.formats import FORMATS, Format
from tests.boundaries.moves import MOVED, Moves, moves
from tests.boundaries.reading import Reading
from tests.boundaries.replies import CASES, Case, Runs, changes
from tests.boundaries.tables import KINDS, Kind, pairs

SHARES = {"read": 0.7, "say": 0.0975, "move": 0.2, "keep": 0.0025}
"""Of all pairs: a run takes ten times as long as files, a simulation and its folder hundreds."""
Made = tuple[Callable[[Any], bool], SearchStrategy[Any]]


def _cases(folder: Path) -> dict[str, Callable[[], Made]]:
    """What makes a check and its pairs, by the name of a line."""

    def reading(form: Format, kind: Kind) -> Callable[[], Made]:
        return lambda: (Reading(form, kind, folder).check, pairs(kind, form.cells))

    def runs(case: Case) -> Callable[[], Made]:
        return lambda: (Runs(case, folder).check, changes)

    def sums(case: Case) -> Callable[[], Made]:
        return lambda: (Moves(case).check, moves)

    def kept(name: str) -> Callable[[], Made]:
        return lambda: (Folders(OPTIONS[name], folder / name).check, rows)

    return {
        **{
            f"read {form.name}, {kind.name}": reading(form, kind)
            for form in FORMATS.values()
            for kind in KINDS
            if not form.kinds or kind.name in form.kinds
        },
        **{f"say {case.name}": runs(case) for case in CASES.values()},
        **{f"move {case.name}": sums(case) for case in MOVED},
        **{f"keep {name}": kept(name) for name in OPTIONS},
    }


def tried(count: int, by: int, only: list[str], folder: Path) -> Iterator[Found]:
    """So many pairs in all, as `SHARES` has it, over all cases or those with one of the words."""
    wanted = {n: c for n, c in _cases(folder).items() if not only or any(w in n for w in only)}
    kinds = Counter(name.split()[0] for name in wanted)
    whole = sum(SHARES[kind] for kind in kinds)
    for name, make in wanted.items():
        kind = name.split()[0]
        each = math.ceil(count * SHARES[kind] / whole / kinds[kind])
        check, strategy = make()
        yield explore(name, check, strategy, each, _seed(by, name))


def _seed(by: int, name: str) -> int:
    return zlib.crc32(f"{by}/{name}".encode())


def main() -> int:
    """Print a table; 1 if anything fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    only = [word for word in asked.only.split(",") if word]
    logging.disable()
    warnings.simplefilter("ignore")
    total = failed = 0
    print(f"{'format or protocol, option':<44}{'pairs':>7}{'failures':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for found in tried(asked.pairs, asked.seed, only, Path(folder)):
            print(f"{found.name:<44}{found.pairs:>7}{found.failures:>9}", flush=True)
            if found.failures:
                print(f"  {found.least}", flush=True)
            total, failed = total + found.pairs, failed + found.failures
    print(f"{'in all':<44}{total:>7}{failed:>9}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
