"""The sums that standard errors follow from; what a row adds: `parties.kernel.sums.products`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parties.kernel.integers import symmetric
from parties.kernel.sums.products import Information, Products
from protocols.errors import ParameterError
from protocols.exchange.serialise import to_plain
from protocols.names import RANGES_VIEW
from protocols.sums.one_sum import OneSum

Array = NDArray[np.float64]
FINE = 2.0**-56
"""Of exact sums: beside the rows' own rounding, and float64's, it adds nothing to a coefficient of
columns that depend on each other, which multiply errors by the root of their condition."""
SCALED = (
    "rows are scaled by the ranges of their columns for it, whatever the schema says of standard "
    "scaling, and not clipped to its row norm"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class InformationObjective(OneSum):
    """Score and information at a point.

    model: "logistic", of a label in {0, 1}, or "poisson", of a target that is the count over its
    range, whose mean is exp(x theta); theta: shape (d,), bias last; row_norm: B, of every row;
    epsilon_in_all: announced, of all such sums, in a simulation with the training; None without
    privacy.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = "information"
    statistic = "standard errors of a model"
    released = "at one public model, the gradient and the curvature of the loss over all rows"
    view = RANGES_VIEW
    precision = FINE

    model: str
    theta: tuple[float, ...]
    row_norm: float
    epsilon_in_all: float | None = None

    def __post_init__(self) -> None:
        _ = self.row_function

    @property
    def row_function(self) -> Information:
        """Score and information of a row."""
        return Information(
            model=self.model,
            theta=self.theta,
            row_norm=self.row_norm,
            private=self.epsilon_in_all is not None,
        )

    def remarks(self) -> tuple[str, ...]:
        """Of the other sums, and of the point."""
        if self.epsilon_in_all is not None:
            return (
                SCALED,
                "it is one of several sums, each at a point that follows from those before, for "
                "which you are asked again: the coordinator announces that they spend "
                f"epsilon={self.epsilon_in_all:g} together; a training across machines comes on "
                "top, and a ledger counts each sum",
            )
        return (
            SCALED,
            "it is one of several sums, each at a point that follows from those before, for which "
            "you are asked again",
            "sums are exact, and the coordinator names the point: at one where a single row has "
            "all the weight, the sum is this row",
        )

    def read(self, values: Array, rows: int) -> tuple[Array, Array]:
        """Score, shape (d,), and information, shape (d, d), from the opened sum; of all rows."""
        d = len(self.theta)
        return values[:d] * rows, symmetric.square(values[d:]) * rows / self.row_function.kappa

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": self.kind, **to_plain(self)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ProductsObjective(OneSum):
    """Products of columns and targets, of each two.

    row_norm: B, of every row without its targets; outputs: c; epsilon_in_all: of this sum and what
    it follows, None without privacy.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = "products"
    statistic = "products of columns: a linear model with its errors, or scales of covariates"
    released = "mean products of columns and targets, of each two"
    view = RANGES_VIEW
    precision = FINE

    row_norm: float
    outputs: int
    epsilon_in_all: float | None = None

    def __post_init__(self) -> None:
        if self.outputs < 1:
            raise ParameterError(f"outputs={self.outputs} is below 1")
        _ = self.row_function

    @property
    def row_function(self) -> Products:
        """Of columns and targets."""
        return Products(row_norm=self.row_norm, outputs=self.outputs)

    def remarks(self) -> tuple[str, ...]:
        """What it spends, or that it is exact."""
        if self.epsilon_in_all is not None:
            return (
                SCALED,
                f"the coordinator announces that it spends epsilon={self.epsilon_in_all:g}; a "
                "training across machines comes on top, and a ledger counts each",
            )
        return SCALED, "sums are exact: a category or a value that few rows have shows these rows"

    def read(self, values: Array, rows: int) -> Array:
        """U^T U over all rows, shape (d + c, d + c)."""
        return symmetric.square(values) * rows

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": self.kind, **to_plain(self)}
