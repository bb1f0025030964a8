"""What a row adds to the sums that standard errors follow from.

`InformationObjective`, of logistic and Poisson models at a public point theta: the score and the
Fisher information, v = (r x, kappa w x x^T), with r = mean - y and w the variance of an outcome.

**The information is free.** Of a logistic model |r| is p or 1 - p and w = |r| (1 - |r|), whatever
the label, hence |v|^2 = r^2 |x|^2 + kappa^2 r^2 (1 - |r|)^2 |x|^4. With kappa = phi^(5/2) / B and
|x| <= B that is at most B^2 r^2 (1 + phi^5 (1 - |r|)^2) <= B^2 for all |r| <= 1: the last step
says phi^5 <= (1 + r) / (r^2 (1 - r)), whose least value, at r = 1 / phi, is phi^5 = 11.09, phi the
golden ratio. So |v| <= B, and two rows differ by at most 2 B, which the score alone attains: both
together take no more noise than the score.

Of a Poisson model with privacy the mean m is capped at 1, the end of the range of y, and kappa =
1 / B. With c the cosine of two rows, of lengths a and b, the squared distance of their v is

    (a r)^2 + (b r')^2 - 2 a b r r' c + kappa^2 (m^2 a^4 + m'^2 b^4 - 2 m m' a^2 b^2 c^2),

convex in (r, m, r', m') together, hence largest where (m, r) is a corner of 0 <= m <= 1, m - 1 <= r
<= m: (0, 0), (0, -1), (1, 1) or (1, 0). Of all pairs of corners (1, 1) and (0, -1) are the
furthest apart, at a = b = B and c = 1: the **diameter is sqrt(5) B**. (Twice (1, 1) gives 4.5 B^2
at most, at c = -1/2; |v|^2 <= 2 B^2.) Without privacy means above 1 are let through, and v is
clipped at `ROOM` B. Rows longer than B are shortened first, whatever the plan says of B.

`ProductsObjective`, of linear models: u u^T of u = (x, y), of which least squares, residuals and
the information all follow. |u u^T - t t^T|^2 <= 2 U^4 for |u|, |t| <= U, see `protocols.whitening`;
U^2 = B^2 + c, with c targets on [0, 1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from parties.kernel.sums import symmetric
from parties.kernel.sums.integer_sums import Exact, lengths, row_scores, summed
from protocols.errors import ParameterError
from protocols.one_sum import LARGEST, RANGES, OneSum, check_sizes
from protocols.serialise import to_plain

Array = NDArray[np.float64]
GOLDEN = (1 + math.sqrt(5)) / 2
ROOM = 64.0
"""Of rows of a Poisson model without privacy."""
LARGEST_SCORE = 30.0
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
    released = "at one public model, the gradient and the curvature of the loss over all rows"
    view = RANGES

    model: str
    theta: tuple[float, ...]
    row_norm: float
    epsilon_in_all: float | None = None

    def __post_init__(self) -> None:
        if self.model not in ("logistic", "poisson"):
            raise ParameterError(f"model={self.model!r} is not logistic or poisson")
        if not self.theta or not np.abs(self.theta).max() <= LARGEST:
            raise ParameterError(f"theta is empty, or an entry is not within {LARGEST:g}")
        check_sizes(row_norm=self.row_norm)

    @property
    def kappa(self) -> float:
        """Scale of the information beside the score."""
        capped = self.private and self.model == "poisson"
        return (1.0 if capped else math.pow(GOLDEN, 2.5)) / self.row_norm

    @property
    def private(self) -> bool:
        """Whether there is noise."""
        return self.epsilon_in_all is not None

    def length(self, features: int) -> int:
        """d and d (d + 1) / 2.

        Raises:
            ParameterError: theta is of other rows.
        """
        if len(self.theta) != features:
            raise ParameterError(f"theta has {len(self.theta)} entries for {features} features")
        return features + symmetric.length(features)

    def norm_bound(self, query: str) -> float:
        """B; of a Poisson model sqrt(2) B, without privacy ROOM B."""
        counted = math.sqrt(2) if self.private else ROOM
        return self.row_norm * (1.0 if self.model == "logistic" else counted)

    def diameter(self, query: str) -> float:
        """2 B; of a Poisson model with privacy sqrt(5) B."""
        if self.private and self.model == "poisson":
            return math.sqrt(5) * self.row_norm
        return 2 * self.norm_bound(query)

    def exact_sum(self, x: Array, y: Array, name: str) -> Exact:
        """Clipped, which with privacy moves no row of norm B."""
        bound = self.norm_bound(self.kind)
        length = self.length(x.shape[1])
        return summed(lambda rows: self._parts(x[rows], y[rows]), len(x), length, Fraction(bound))

    def _parts(self, x: Array, y: Array) -> Array:
        """v of every row, by itself."""
        x = x * np.minimum(1.0, self.row_norm / np.maximum(lengths(x, 2), 1e-300))[:, None]
        z = row_scores(x, np.array(self.theta)[:, None])[:, 0]
        if self.model == "logistic":
            mean = expit(z)
            w = mean * (1 - mean)
        else:
            most = 0.0 if self.private else LARGEST_SCORE
            mean = w = np.exp(np.clip(z, -LARGEST_SCORE, most))
        score = x * (mean - y.reshape(len(x)))[:, None]
        return np.concatenate([score, symmetric.of_each(x, self.kappa * w)], axis=1)

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
        return values[:d] * rows, symmetric.square(values[d:]) * rows / self.kappa

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
    released = "mean products of columns and targets, of each two"
    view = RANGES

    row_norm: float
    outputs: int
    epsilon_in_all: float | None = None

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

    def exact_sum(self, x: Array, y: Array, name: str) -> Exact:
        """sum_i u_i u_i^T, each clipped, which moves no row of norm B."""
        u = np.column_stack([x, y.reshape(len(x), -1)])
        return symmetric.products_of(u, math.sqrt(self.norm_bound(self.kind)))

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
