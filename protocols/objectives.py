"""What a party contributes in a round of the secure-aggregation protocol: the public part.

The aggregate of a query is sum_p weight_p / n_p sum_i clip(g_i), a weighted mean over rows. A
party clips in plaintext, so the sensitivity needs no bound on the iterates:
replacing one row of party p moves it by at most 2 clip weight_p / n_p. Parties clip in the norm
that the run's mechanism needs (`privacy.noise`); an objective names none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from protocols.errors import MessageError, ParameterError
from protocols.fields import from_fields
from protocols.updates.coordinate import DualPlan

GRADIENT = "gradient"
CURVATURE = "curvature"
DUAL = "dual"


class Objective(Protocol):
    """Public description of the rounds' queries."""

    def queries(self, rounds: int) -> tuple[str, ...]:
        """Name of the query of every round, for so many iterations."""
        ...

    def norm_bound(self, query: str) -> float:
        """Bound on one row's contribution, in the norm of the mechanism."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types with the field `kind`."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class RowObjective:
    """A loss that is a sum over rows.

    kind: "logistic": ln(1 + exp(-z)) and its like for the other label; "squared": (z - y)^2 / 2;
    "torch": a module's loss, known to the parties. clip: bound on each row's gradient, > 0.
    curvature_clip: bound on each row's part of the Hessian's diagonal bound, which is asked for
    first (0: it is not).

    Raises:
        ParameterError: a field is out of range.
    """

    kind: str
    clip: float
    curvature_clip: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in ("logistic", "squared", "torch"):
            raise ParameterError(f"objective={self.kind!r} is not logistic, squared or torch")
        if not 0 < self.clip < math.inf:
            raise ParameterError(f"clip={self.clip} must be finite and positive")
        if not 0 <= self.curvature_clip < math.inf:
            raise ParameterError(f"curvature_clip={self.curvature_clip} must not be negative")

    def queries(self, rounds: int) -> tuple[str, ...]:
        """The curvature, if asked for, then one gradient per iteration."""
        first = (CURVATURE,) if self.curvature_clip else ()
        return (*first, *(GRADIENT,) * rounds)

    def norm_bound(self, query: str) -> float:
        """The clip of the query."""
        return self.curvature_clip if query == CURVATURE else self.clip

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class DualObjective:
    """Dual coordinate descent: a party's step of v = X^T alpha; its dual variables stay with it.

    loss: "ridge", "logistic" or "svm"; ridge: lambda > 0; batches, schedule: see
    `protocols.updates.coordinate.DualPlan`; clip: C, bound on one row's step of v; row_scale:
    rows are divided by it, so that their norm is at most 1.

    Raises:
        ParameterError: a field is out of range.
    """

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
        )

    @property
    def public_batches(self) -> int:
        """K of batches that everybody knows; 1 where coins are secret."""
        return self.batches if self.schedule == "cyclic" else 1

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

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": DUAL, **asdict(self)}


def objective_from_dict(fields: Mapping[str, Any]) -> Objective:
    """The objective that a plan describes.

    Raises:
        ParameterError: the kind is unknown or a field is wrong.
    """
    try:
        if fields.get("kind") == DUAL:
            return from_fields(DualObjective, {k: v for k, v in fields.items() if k != "kind"})
        return from_fields(RowObjective, dict(fields))
    except MessageError as error:
        raise ParameterError(f"objective: {error}") from None
