"""What the loops of the Gram protocol share: refreshes when levels run out, and the inverse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from protocols.ckks import REFRESH_TOWERS
from protocols.ckks.circuits.evaluator import EncryptedVector
from protocols.errors import ParameterError
from protocols.exchange.messages import Exchange
from protocols.gram.contributions import GramTask
from protocols.steps.refresh import Refresh

Vectors = Sequence[EncryptedVector]
# Levels between two refreshes: the least with which training runs.
LEAST_LEVELS = 3


class Loop(ABC):
    """One run.

    evaluator: on the task's layout; refresh: makes levels new.

    Raises:
        ParameterError: too few levels.
    """

    def __init__(self, evaluator: Any, task: GramTask, refresh: Refresh) -> None:
        self._evaluator = evaluator
        self._task = task
        self._pace = task.pace
        self._refresh = refresh
        self._deepest = evaluator.context.params.num_towers - REFRESH_TOWERS
        if self._deepest < LEAST_LEVELS:
            raise ParameterError(
                f"depth={task.ckks.depth} levels is below the "
                f"{LEAST_LEVELS + REFRESH_TOWERS - 1} that the inverse needs"
            )

    @abstractmethod
    def run(self, sums: Vectors, on_iteration: Callable[[int], None]) -> Exchange[EncryptedVector]:
        """W / UNIT from the parties' sums."""

    def invert(self, row_sums: Vectors) -> Exchange[Vectors]:
        """`inverse_lift` u of every vector, usable for two levels more."""
        plan, last = self._task.inverse, len(self._task.inverse.steps) - 1
        gain, lift = self._task.lift, self._task.inverse_lift
        y: Sequence[Any]
        if not last:
            # High is 1: this is -b / scale.
            beta = [part * (-lift / gain) - lift * plan.low for part in row_sums]
            y = [plan.multiplier(-1, part, lift) for part in beta]
        else:
            y = yield from self._corrected(row_sums)
        y = yield from self.with_levels(3, *y)
        return [part * plan.factor for part in y]

    def _corrected(self, row_sums: Vectors) -> Exchange[Vectors]:
        """y after the last of several steps, times `inverse_lift`."""
        plan, gain, lift = self._task.inverse, self._task.lift, self._task.inverse_lift
        y: Sequence[Any] = [None] * len(row_sums)
        u: Vectors = [part * (-1 / gain) - plan.low for part in row_sums]
        for k in range(len(plan.steps) - 1):
            if k:
                both = yield from self.with_levels(1, *y, *u)
                y, u = both[: len(y)], both[len(y) :]
            y, u = zip(*(plan.advance(k, *pair) for pair in zip(y, u, strict=True)), strict=True)
        y = yield from self.with_levels(3, *y)
        # b as it is encrypted: a rounding of beta would count by 1 / beta.
        whole = [part + gain * plan.low for part in row_sums]
        return [
            v * plan.multiplier(-1, (b * v) * (-lift / gain), lift)
            for v, b in zip(y, whole, strict=True)
        ]

    def with_levels(
        self, levels: int, *vectors: EncryptedVector, below: int = 0
    ) -> Exchange[Vectors]:
        """The vectors, refreshed unless each can be used for so many levels.

        below: levels that may be used beyond the deepest that a refresh can start from.
        """
        if all(vector.level + levels <= self._deepest + below for vector in vectors):
            return vectors
        return (yield from self._refresh(vectors))
