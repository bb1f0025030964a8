"""Regression check: two revisions on this machine, turn by turn.

Question: is B slower than A? Each turn runs the fixed benchmark once in the tree of A and once in
that of B, in alternating order, so that whatever else the machine does hits both. The ratio is the
geometric mean of the turns' ratios, with Student's interval on their logarithms.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from protocols.errors import ParameterError

ROOT = Path(__file__).resolve().parents[1]
FIXED = Path(__file__).with_name("fixed.py")
CONFIDENCE = 0.95
# The checkout as it stands, changes that are in no revision included.
HERE = "."


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """Seconds of B over seconds of A: geometric mean and its confidence interval."""

    mean: float
    low: float
    high: float
    turns: int

    @property
    def verdict(self) -> str:
        """In words."""
        if self.low > 1:
            return "slower"
        return "faster" if self.high < 1 else "no difference shown"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        names = ("mean", "low", "high", "turns", "verdict")
        return {name: getattr(self, name) for name in names}


def ratio(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> Ratio:
    """Of paired turns.

    Raises:
        ParameterError: fewer than 2 pairs.
    """
    from scipy.stats import t

    if len(a) != len(b) or len(a) < 2:
        raise ParameterError(f"turns={min(len(a), len(b))} is below 2: no interval follows")
    logs = [math.log(y / x) for x, y in zip(a, b, strict=True)]
    count, mean = len(logs), sum(logs) / len(logs)
    variance = sum((value - mean) ** 2 for value in logs) / (count - 1)
    half = float(t.ppf((1 + confidence) / 2, count - 1)) * math.sqrt(variance / count)
    return Ratio(
        mean=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half), turns=count
    )


def compare(
    left: str, right: str, *, turns: int = 7, ring_dim: int = 1 << 15, repetitions: int = 5
) -> Ratio:
    """Alternate between two revisions; HERE names the checkout as it stands."""
    # A worktree that is left behind stays registered: end as an exception would.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tree(left) as a, tree(right) as b:
        found: tuple[list[float], list[float]] = ([], [])
        for turn in range(turns):
            sides = ((0, a), (1, b)) if turn % 2 == 0 else ((1, b), (0, a))
            for side, folder in sides:
                found[side].append(_run(folder, ring_dim, repetitions))
    return ratio(*found)


@contextmanager
def tree(revision: str) -> Iterator[Path]:
    """A worktree of the revision, gone afterwards.

    Raises:
        ParameterError: git knows no such revision.
    """
    if revision == HERE:
        yield ROOT
        return
    with TemporaryDirectory(prefix="cohort-tree-") as folder:
        path = Path(folder) / "tree"
        made = _git("worktree", "add", "--detach", str(path), revision)
        if made.returncode:
            raise ParameterError(f"revision={revision!r}: {made.stderr.strip()}")
        try:
            yield path
        finally:
            _git("worktree", "remove", "--force", str(path))


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _run(folder: Path, ring_dim: int, repetitions: int) -> float:
    done = subprocess.run(
        [sys.executable, str(FIXED), str(ring_dim), str(repetitions)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{folder}: {done.stderr.strip()[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1]))
