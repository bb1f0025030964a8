"""Sums of products of columns, of scores and information at a point, and of empty cells.

`Information`, of logistic and Poisson models at a public point theta: the score and the
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

`Products`, of linear models: u u^T of u = (x, y), of which least squares, residuals and the
information all follow. |u u^T - t t^T|^2 <= 2 U^4 for |u|, |t| <= U;
U^2 = B^2 + c, with c targets on [0, 1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.special import expit

from parties.kernel.integers import symmetric
from parties.kernel.integers.exact import Exact
from parties.kernel.integers.integer_rows import IntegerRows, lengths
from parties.kernel.sums.integer_sums import row_scores, summed
from parties.kernel.sums.row_function import LARGEST, Array, SumFunction, check_sizes
from protocols.errors import ParameterError

GOLDEN = (1 + math.sqrt(5)) / 2
ROOM = 64.0
"""Of rows of a Poisson model without privacy."""
LARGEST_SCORE = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Products(SumFunction):
    """u u^T as `symmetric.flat`, of u = x, or of u = (x, y) with c `outputs` y on [0, 1].

    row_norm: B of |x|, to which a row is shortened, so that |u|^2 <= U^2 = B^2 + c.

    |u u^T - t t^T|^2 = |u|^4 + |t|^4 - 2 <u, t>^2 <= 2 U^4.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = "products"

    row_norm: float
    outputs: int = 0

    def __post_init__(self) -> None:
        check_sizes(row_norm=self.row_norm)
        if self.outputs < 0:
            raise ParameterError(f"outputs={self.outputs} is below 0")

    def length(self, features: int) -> int:
        """Of a symmetric matrix of d + c columns."""
        return symmetric.length(features + self.outputs)

    def most(self, query: str) -> float:
        """U^2."""
        return self.row_norm**2 + self.outputs

    def moves(self, query: str) -> float:
        """sqrt(2) U^2."""
        return math.sqrt(2) * self.most(query)

    def exact_sum(self, x: Array, y: Array, name: str) -> Exact:
        """Of rows of integers, whose diameter is that of any rows."""
        if not self.outputs:
            return products_of(x, self.row_norm)
        u = np.column_stack([x, y.reshape(len(x), -1)])
        return products_of(u, math.sqrt(self.most(self.kind)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Information(SumFunction):
    """v = (r x, kappa w x x^T) at a point: score and Fisher information; r = mean - y.

    model: "logistic" or "poisson"; theta: shape (d,); row_norm: B, to which rows are shortened;
    private: whether there is noise.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = "information"

    model: str
    theta: tuple[float, ...]
    row_norm: float
    private: bool

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

    def length(self, features: int) -> int:
        """d and d (d + 1) / 2."""
        if len(self.theta) != features:
            raise ParameterError(f"theta has {len(self.theta)} entries for {features} features")
        return features + symmetric.length(features)

    def most(self, query: str) -> float:
        """B; of a Poisson model sqrt(2) B, without privacy ROOM B."""
        counted = math.sqrt(2) if self.private else ROOM
        return self.row_norm * (1.0 if self.model == "logistic" else counted)

    def moves(self, query: str) -> float:
        """2 B; of a Poisson model with privacy sqrt(5) B."""
        if self.private and self.model == "poisson":
            return math.sqrt(5) * self.row_norm
        return 2 * self.most(query)

    def exact_sum(self, x: Array, y: Array, name: str) -> Exact:
        """Clipped, which with privacy moves no row of norm B."""
        bound, length = self.most(self.kind), self.length(x.shape[1])
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
        return np.concatenate([score, of_each(x, self.kappa * w)], axis=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingCells(SumFunction):
    """A one for each empty cell of k columns, of rows that have 1 for one, -1 else, the bias last.

    Raises:
        ParameterError: there is no column.
    """

    kind = "missing-cells"

    columns: int

    def __post_init__(self) -> None:
        if self.columns < 1:
            raise ParameterError(
                "the schema fills no cells in (missing: typical or indicator), so none is empty"
            )

    def length(self, features: int) -> int:
        """k."""
        if features != self.columns + 1:
            raise ParameterError(f"columns={self.columns} for {features} features, bias included")
        return self.columns

    def most(self, query: str) -> float:
        """sqrt(k)."""
        return math.sqrt(self.columns)

    def moves(self, query: str) -> float:
        """The same: all values are 0 or 1."""
        return math.sqrt(self.columns)

    def exact_sum(self, x: Array, y: Array, name: str) -> Exact:
        """Empty cells of every column."""
        return Exact((x[:, :-1] > 0).sum(axis=0, dtype=np.int64), 0)


def of_each(rows: Array, factor: Array) -> Array:
    """`symmetric.flat` of factor_i x_i x_i^T, shape (n, d (d + 1) / 2), each of its row alone."""
    d = rows.shape[1]
    found, start = np.empty((len(rows), symmetric.length(d))), 0
    scaled = rows * factor[:, None]
    for k in range(d):
        np.multiply(rows[:, k:], scaled[:, k : k + 1], out=found[:, start : start + d - k])
        start += d - k
    found *= symmetric.weights(d)
    return found


def products_of(x: Array, bound: float) -> Exact:
    """`symmetric.flat` of sum_i x_i x_i^T for rows of norm at most `bound`, which is public.

    Of rows of integers, so that |x x^T - y y^T|^2 <= 2 bound^4 holds of them as of any rows.
    """
    rows = IntegerRows(x, bound)
    d = x.shape[1]
    found = rows.products(lambda some: rows.x[some])
    return Exact(found[np.triu_indices(d)], 2 * rows.bits).times(symmetric.weights(d))
