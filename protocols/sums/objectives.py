"""What a party contributes in a round of the secure-aggregation protocol: the public part.

The aggregate of a query is sum_p weight_p / n_p sum_i u_i clip(g_i), a weighted mean over rows; u_i
on [0, 1] is a row's weight over its bound, 1 without weights. A party clips in plaintext, so the
sensitivity needs no bound on the iterates: |u clip(g) - u' clip(g')| <= 2 clip, and replacing one
row of party p moves the aggregate by at most `diameter` weight_p / n_p. Parties clip in the norm
that the run's mechanism needs (`privacy.laws.noise`); an objective names none.
"""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parties.kernel.sums.gradients import CURVATURE, GRADIENT
from parties.kernel.sums.products import Products
from protocols.errors import MessageError, ParameterError
from protocols.exchange.serialise import from_plain, to_plain
from protocols.sums.objective import Objective
from protocols.sums.one_sum import OneSum

Array = NDArray[np.float64]
MOMENT = "second-moment"
OF_CLASSES = ("softmax", "one-vs-rest")
"""Kinds of row objectives that have a score for each class."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowObjective(Objective):
    """A loss that is a sum over rows.

    kind: "logistic": ln(1 + exp(-z)) and its like for the other label; "squared": (z - y)^2 / 2;
    "softmax" and "one-vs-rest": of a label of several classes, see `protocols.models`; "torch": a
    module's loss, known to the parties. clip: bound on each row's whole gradient, > 0.
    curvature_clip: bound on each row's part of the Hessian's diagonal bound, which is asked for
    first (0: it is not). outputs: K, scores of a row; vectors are (d, K) matrices, row by row.

    Raises:
        ParameterError: a field is out of range.
    """

    kind: str
    clip: float
    curvature_clip: float = 0.0
    outputs: int = 1

    def __post_init__(self) -> None:
        if self.kind not in (*OF_CLASSES, "logistic", "squared", "torch"):
            raise ParameterError(
                f"objective={self.kind!r} is not logistic, squared, {', '.join(OF_CLASSES)} or "
                "torch"
            )
        if (self.outputs > 1) != (self.kind in OF_CLASSES) or self.outputs < 1:
            raise ParameterError(
                f"outputs={self.outputs} of objective {self.kind}: {' and '.join(OF_CLASSES)} have "
                "two or more, any other one"
            )
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

    def diameter(self, query: str) -> float:
        """Opposite contributions."""
        return 2 * self.norm_bound(query)

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return dict(to_plain(self))


@dataclass(frozen=True, kw_only=True, slots=True)
class MomentObjective(OneSum):
    """|W - C|^2 / 2, Frobenius, of the rows' second moment C = sum_i x_i x_i^T / N.

    Its gradient at W = 0 is -C, so that one step of rate 1 gives C. Symmetric matrices are vectors
    as in `symmetric.flat`, which keeps distances.
    row_norm: B, of every row; epsilon_in_all: what this sum and the training that follows it
    promise together; unproven: whether nothing is proven of that training's slots.

    Weights and offsets of the training that follows leave it as it is: C bounds the second moment
    of rows with weights on [0, 1].

    |x x^T| = |x|^2 <= B^2, and |x x^T - y y^T|^2 = |x|^4 + |y|^4 - 2 <x, y>^2 <= 2 B^4.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = MOMENT
    statistic = "a second moment, for the training that follows"
    released = "noisy mean products of the columns, of each two; nothing of what is predicted"
    drops: ClassVar[Mapping[str, str]] = {}
    several = None

    row_norm: float
    epsilon_in_all: float
    unproven: bool = False

    def __post_init__(self) -> None:
        for name in ("row_norm", "epsilon_in_all"):
            if not 0 < getattr(self, name) < math.inf:
                raise ParameterError(f"{name}={getattr(self, name)} must be finite and positive")

    def check_rows(self, norm_bound: float) -> None:
        """It must bound them."""
        if not self.row_norm >= norm_bound:
            raise ParameterError(
                f"row_norm={self.row_norm:.6g} is below {norm_bound:.6g}, the norm bound of the "
                "party's schema: rows could be longer"
            )

    @property
    def row_function(self) -> Products:
        """x x^T."""
        return Products(row_norm=self.row_norm)

    def remarks(self) -> tuple[str, ...]:
        """What follows."""
        return (
            "a training on the same rows is to follow, for which you are asked again: both "
            f"together spend epsilon={self.epsilon_in_all:g}",
        )

    @property
    def stream(self) -> str:
        """One second moment a session."""
        return MOMENT

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": MOMENT, **to_plain(self)}


_STATISTICS = "protocols.statistics"
_KINDS: Mapping[str, str] = {
    "dual": "protocols.sums.dual:DualObjective",
    MOMENT: "protocols.sums.objectives:MomentObjective",
    "evaluation": f"{_STATISTICS}.evaluation.objective:EvaluationObjective",
    "information": f"{_STATISTICS}.inference.objective:InformationObjective",
    "products": f"{_STATISTICS}.inference.objective:ProductsObjective",
    "missing-cells": "protocols.sums.missing_cells:MissingObjective",
    "description": f"{_STATISTICS}.study.objectives:DescriptionObjective",
    "lifetimes": f"{_STATISTICS}.study.objectives:LifetimesObjective",
    "risk-sets": f"{_STATISTICS}.study.objectives:RiskSetsObjective",
    "cox-rows": f"{_STATISTICS}.study.objectives:CoxRowsObjective",
    "generalised": f"{_STATISTICS}.study.objectives:GeneralisedObjective",
    "person-time": f"{_STATISTICS}.study.objectives:PersonTimeObjective",
}
"""Whose fields do not name their kind; each is loaded when a plan names one."""


def objective_from_dict(fields: Mapping[str, Any]) -> Objective:
    """The objective that a plan describes.

    Raises:
        ParameterError: the kind is unknown or a field is wrong.
    """
    try:
        name = str(fields.get("kind"))
        if name in _KINDS:
            kind = pkgutil.resolve_name(_KINDS[name])
            found: Objective = from_plain(kind, {k: v for k, v in fields.items() if k != "kind"})
            return found
        return from_plain(RowObjective, dict(fields))
    except MessageError as error:
        raise ParameterError(f"objective: {error}") from None
