"""Sums of rows: what replacing one row moves, in integers and against the certified figure.

Nothing here is rounded: contributions are integers, norms are compared by their squares, and the
certified figure is the fraction that its float64 stands for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from parties.reader.shard import Shard
from parties.verifier.objectives import open_contributor
from protocols.privacy.laws.seeded import SeededRandomness
from tests.boundaries.reading import BoundaryError
from tests.boundaries.replies import CASES, Case, Change, changes
from tests.support.sessions import VICTIM

MOVED = tuple(case for case in CASES.values() if case.charged)
"""Plans of sums with a certificate."""


SIZES = (0.0, 1e-300, 0.1, 1.0, 30.0, 1e8, 1e150, 1.7e308)
"""Of points."""


@dataclass(frozen=True)
class Move:
    """One row twice, and where the coordinator asks: at numbers of such a size."""

    first: Change
    second: Change
    point: int
    size: float


moves = st.builds(
    Move,
    first=changes,
    second=changes,
    point=st.integers(0, 2**16),
    size=st.sampled_from(SIZES),
)


class Moves:
    """One plan, and one owner's rows."""

    def __init__(self, case: Case) -> None:
        session = case.open()
        session.run()
        self.plan: Any = session.plan
        self._shard = session.parties[VICTIM].run.rows._value

    def check(self, move: Move) -> bool:
        """True; raises BoundaryError."""
        plan, rng = self.plan, np.random.default_rng(move.point)
        # Rows keep their places, for coins are theirs.
        one, two = (
            replace(change, order=None, at=move.first.at)(self._shard)
            for change in (move.first, move.second)
        )
        owners = [self._owner(shard) for shard in (one, two)]
        for t, query in enumerate(plan.queries[:2]):
            point = rng.uniform(-1, 1, plan.length) * move.size
            sums = [owner.exact(query, t, point) for owner in owners]
            self._check_distance(t, *([int(v) for v in plan.on_grid(t, own)] for own in sums))
            if not plan.task.has_places:
                alone = (two.only(np.array([k])) for k in range(two.rows))
                parts = [self._owner(row).exact(query, t, point) for row in alone]
                _check_parts(t, sums[1], parts)
        return True

    def _owner(self, shard: Shard) -> Any:
        source = SeededRandomness(1)  # coins of secret batches
        return open_contributor(self.plan, VICTIM, shard, source)

    def _check_distance(self, t: int, one: list[int], two: list[int]) -> None:
        plan, gaps = self.plan, [abs(a - b) for a, b in zip(one, two, strict=True)]
        bound = Fraction(plan.sum_setting().widened[t]) / Fraction(plan.grid(t).unit)
        squared = sum(gaps) ** 2 if plan.noise.norm == 1 else sum(gap * gap for gap in gaps)
        if not squared <= bound**2:
            raise BoundaryError(
                f"round {t} moves by {squared**0.5} units of the grid, where {float(bound)} are "
                "certified"
            )


def _check_parts(t: int, whole: Any, alone: list[Any]) -> None:
    """The sum is that of each row alone, unit for unit."""
    if {part.bits for part in alone} != {whole.bits}:
        raise BoundaryError(f"round {t}: rows alone are on another grid")
    if (sum(part.units.astype(object) for part in alone) != whole.units.astype(object)).any():
        raise BoundaryError(f"round {t}: the sum is not that of each row alone")
