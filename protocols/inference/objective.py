"""What a row adds to the sums that standard errors follow from.

`InformationObjective`, of logistic and Poisson models at a public point theta: the score and the
Fisher information, v = (r x, kappa w x x^T), with r = mean - y and w the variance of an outcome.

**The information is free.** Of a logistic model |r| is p or 1 - p and w = |r| (1 - |r|), whatever
the label, hence |v|^2 = r^2 |x|^2 + kappa^2 r^2 (1 - |r|)^2 |x|^4. With kappa = phi^(5/2) / B and
|x| <= B that is at most B^2 r^2 (1 + phi^5 (1 - |r|)^2) <= B^2 for all |r| <= 1: the last step
says phi^5 <= (1 + r) / (r^2 (1 - r)), whose least value, at r = 1 / phi, is phi^5 = 11.09, phi the
golden ratio. So |v| <= B, and two rows differ by at most 2 B, which the score alone attains: both
together take no more noise than the score.

Of a Poisson model, which no promise is made for, rows are clipped at `ROOM` B.

`ProductsObjective`, of linear models: u u^T of u = (x, y), of which least squares, residuals and
the information all follow. |u u^T - t t^T|^2 <= 2 U^4 for |u|, |t| <= U, see `protocols.whitening`;
U^2 = B^2 + c, with c targets on [0, 1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from protocols import symmetric
from protocols.errors import ParameterError
from protocols.one_sum import LARGEST, OneSum, check_sizes
from protocols.serialise import to_plain

Array = NDArray[np.float64]
GOLDEN = (1 + math.sqrt(5)) / 2
ROOM = 64.0
"""Of rows of a Poisson model, whose mean is usually at most 1 in parts of the range."""
LARGEST_SCORE = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class InformationObjective(OneSum):
    """Score and information at a point.

    model: "logistic", of a label in {0, 1}, or "poisson", of a target that is the count over its
    range, whose mean is exp(x theta); theta: shape (d,), bias last; row_norm: B, of every row.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = "information"
    released = "at one public model, the gradient and the curvature of the loss over all rows"

    model: str
    theta: tuple[float, ...]
    row_norm: float

    def __post_init__(self) -> None:
        if self.model not in ("logistic", "poisson"):
            raise ParameterError(f"model={self.model!r} is not logistic or poisson")
        if not self.theta or not np.abs(self.theta).max() <= LARGEST:
            raise ParameterError(f"theta is empty, or an entry is not within {LARGEST:g}")
        check_sizes(row_norm=self.row_norm)

    @property
    def kappa(self) -> float:
        """Scale of the information beside the score."""
        return math.pow(GOLDEN, 2.5) / self.row_norm

    def length(self, features: int) -> int:
        """d and d (d + 1) / 2.

        Raises:
            ParameterError: theta is of other rows.
        """
        if len(self.theta) != features:
            raise ParameterError(f"theta has {len(self.theta)} entries for {features} features")
        return features + symmetric.length(features)

    def norm_bound(self, query: str) -> float:
        """B, of a Poisson model ROOM B."""
        return self.row_norm * (1.0 if self.model == "logistic" else ROOM)

    def of_rows(self, x: Array, y: Array, name: str) -> Array:
        """Clipped, which moves no row of norm B of a logistic model."""
        z = x @ np.array(self.theta)
        if self.model == "logistic":
            mean = expit(z)
            w = mean * (1 - mean)
        else:
            mean = w = np.exp(np.clip(z, -LARGEST_SCORE, LARGEST_SCORE))
        r, square = mean - y.reshape(len(x)), np.einsum("ij,ij->i", x, x)
        norms = np.sqrt(square * r**2 + (self.kappa * w * square) ** 2)
        kept = np.minimum(1.0, self.norm_bound(self.kind) / np.maximum(norms, 1e-300))
        information = (x * (kept * w)[:, None]).T @ x
        return np.concatenate([x.T @ (kept * r), self.kappa * symmetric.flat(information)])

    def read(self, values: Array, rows: int) -> tuple[Array, Array]:
        """Score, shape (d,), and information, shape (d, d), from the opened sum; of all rows."""
        d = len(self.theta)
        return values[:d] * rows, symmetric.square(values[d:]) * rows / self.kappa

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": self.kind, **to_plain(self)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ProductsObjective(OneSum):
    """Products of columns and targets, of each two.

    row_norm: B, of every row without its targets; outputs: c.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = "products"
    released = "mean products of columns and targets, of each two"

    row_norm: float
    outputs: int

    def __post_init__(self) -> None:
        check_sizes(row_norm=self.row_norm)
        if self.outputs < 1:
            raise ParameterError(f"outputs={self.outputs} is below 1")

    def length(self, features: int) -> int:
        """Of a symmetric matrix of d + c columns."""
        return symmetric.length(features + self.outputs)

    def norm_bound(self, query: str) -> float:
        """U^2."""
        return self.row_norm**2 + self.outputs

    def diameter(self, query: str) -> float:
        """sqrt(2) U^2."""
        return math.sqrt(2) * self.norm_bound(query)

    def of_rows(self, x: Array, y: Array, name: str) -> Array:
        """sum_i u_i u_i^T, each clipped, which moves no row of norm B."""
        u = np.column_stack([x, y.reshape(len(x), -1)])
        square = np.einsum("ij,ij->i", u, u)
        kept = np.minimum(1.0, self.norm_bound(self.kind) / np.maximum(square, 1e-300))
        return symmetric.flat((u * kept[:, None]).T @ u)

    def read(self, values: Array, rows: int) -> Array:
        """U^T U over all rows, shape (d + c, d + c)."""
        return symmetric.square(values) * rows

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": self.kind, **to_plain(self)}
