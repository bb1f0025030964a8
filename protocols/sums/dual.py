"""What a party contributes in a round of dual coordinate descent: the public part."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from parties.kernel.sums.dual import DUAL
from protocols.errors import ParameterError
from protocols.exchange.serialise import to_plain
from protocols.sums.objective import Objective
from protocols.updates.coordinate import DualPlan

ROUNDING = 1e-10
"""Relative slack of the scale of rows; `DualParty` allows ten times as much."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DualObjective(Objective):
    """Dual coordinate descent: a party's step of v = X^T alpha; its dual variables stay with it.

    loss: "ridge", "logistic" or "svm"; ridge: lambda > 0; batches, schedule: see
    `protocols.updates.coordinate.DualPlan`; clip: C, bound on one row's step of v; row_scale:
    rows are divided by it, so that their norm is at most 1.

    Raises:
        ParameterError: a field is out of range.
    """

    has_places = True
    drops = dict.fromkeys(
        ("weight", "offset"), "update scd moves one variable a row, all alike: take another update"
    )

    loss: str
    ridge: float
    batches: int
    clip: float
    schedule: str = "cyclic"
    row_scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("ridge", "clip", "row_scale"):
            if not 0 < getattr(self, name) < math.inf:
                raise ParameterError(f"{name}={getattr(self, name)} must be finite and positive")
        self.plan(rows=self.batches, rounds=1)

    def plan(self, *, rows: int, rounds: int, norm: int = 2) -> DualPlan:
        """The run's parameters, for so many rows of all parties and clips in that norm."""
        return DualPlan(
            loss=self.loss,  # type: ignore[arg-type]
            lam=self.ridge,
            rows=rows,
            batches=self.batches,
            rounds=rounds,
            clip=self.clip,
            schedule=self.schedule,  # type: ignore[arg-type]
            norm=norm,
            row_scale=self.row_scale,
        )

    def function_of(self, *, rows: int, rounds: int, norm: int) -> DualPlan:
        """Its steps."""
        return self.plan(rows=rows, rounds=rounds, norm=norm)

    def check_rows(self, norm_bound: float) -> None:
        """The scale must bring them to norm 1."""
        if not self.row_scale >= norm_bound * (1 - ROUNDING):
            raise ParameterError(
                f"row_scale={self.row_scale:.6g} is below {norm_bound:.6g}, the norm bound of the "
                "party's schema: rows could be longer than 1"
            )

    @property
    def public_batches(self) -> int:
        """See `DualSteps`."""
        return self.plan(rows=self.batches, rounds=1).public_batches

    @property
    def rate(self) -> float:
        """Chance of a row to take part in a round, by its owner's secret coin."""
        return 1.0 if self.schedule == "cyclic" else 1 / self.batches

    def queries(self, rounds: int) -> tuple[str, ...]:
        """One step per iteration."""
        return (DUAL,) * rounds

    def norm_bound(self, query: str) -> float:
        """C."""
        return self.clip

    def diameter(self, query: str) -> float:
        """Opposite steps."""
        return 2 * self.clip

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": DUAL, **to_plain(self)}
