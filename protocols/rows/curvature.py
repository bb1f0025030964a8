"""The diagonal bound of the Hessian, additive over rows, hence over parties.

The Hessian of the mean loss is X^T D X / N with 0 <= D <= constant (1/4 for the logistic loss), and

    B = diag(b),   b_k = offset + constant / N * sum_i |x_ik| sum_j |x_ij|

lies above it in the Loewner order, by Gershgorin's circles (Chiang, "Privacy-Preserving Logistic
Regression Training with a Faster Gradient Variant", Lemma III.1). The paper takes the absolute
values of X^T X instead: never larger, equal where no entry is negative, but not a sum over rows.

Where the paper adds 1e-8 for invertibility, the offset here is public and large enough for b to lie
in a range [offset, high] on which a short polynomial inverts: a column of zeros has b = offset.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError
from protocols.numerics.inverse import InversePlan, plan_inverse

Array = NDArray[np.float64]
# Largest second derivative of the logistic loss.
LOGISTIC = 0.25
# Parties encrypt b / high times this, which divides the encryption's error by as much.


def row_sums(rows: Array) -> Array:
    """sum_i |x_ik| sum_j |x_ij| for every column k, shape (num_features,)."""
    absolute = np.abs(rows)
    sums: Array = absolute.T @ absolute.sum(axis=1)
    return sums


def largest_row_sum(
    num_features: int, *, norm: float | None = None, columns: Sequence[float] | None = None
) -> float:
    """Public bound of |x_k| sum_j |x_j| over every row and column k.

    norm: bound of the row's Euclidean norm c. The largest eigenvalue of the form x_1 sum_j x_j
    gives c^2 (1 + sqrt(num_features)) / 2. columns: bound a_k of each |x_k|; gives
    max_k a_k sum_j a_j. The smaller of the two holds.

    Raises:
        ParameterError: no bound is given, or one is not positive and finite.
    """
    bounds = []
    if norm is not None:
        bounds.append(norm**2 * (1 + math.sqrt(num_features)) / 2)
    if columns is not None:
        if len(columns) != num_features:
            raise ParameterError(f"{len(columns)} column bounds for {num_features} features")
        bounds.append(max(columns) * math.fsum(columns))
    if not bounds or not all(0 < bound < math.inf for bound in bounds):
        raise ParameterError("the curvature's range needs a positive row norm or column bounds")
    return min(bounds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Curvature:
    """Public numbers of the diagonal bound and of its inverse.

    offset: added to every b_k, and the least b; high: the largest; error: largest relative error of
    the inverse; constant: bound of the loss's second derivative in the linear predictor.

    Raises:
        ParameterError: a field is out of range, or the inverse's error is out of reach.
    """

    offset: float
    high: float
    error: float = 1e-3
    constant: float = LOGISTIC

    def __post_init__(self) -> None:
        if not 0 < self.offset < self.high < math.inf:
            raise ParameterError(f"offset={self.offset}, high={self.high}: need 0 < offset < high")
        for name in ("constant", "error"):
            if not 0 < getattr(self, name) < math.inf:
                raise ParameterError(f"{name}={getattr(self, name)} must be finite and positive")
        _ = self.inverse

    @classmethod
    def for_rows(
        cls, largest: float, *, offset: float, error: float = 1e-3, constant: float = LOGISTIC
    ) -> Curvature:
        """largest: from `largest_row_sum`."""
        return cls(offset=offset, high=offset + constant * largest, error=error, constant=constant)

    @property
    def inverse(self) -> InversePlan:
        """The polynomial inverse on [offset, high]."""
        return plan_inverse(self.offset, self.high, self.error)

    @property
    def range(self) -> tuple[float, float, float]:
        """Constant, end and offset: see `kernel.rows.curvature.curvature_share`."""
        return self.constant, self.high, self.offset

    def bound(self, rows: Array) -> Array:
        """B's diagonal for all rows, shape (num_features,)."""
        diagonal: Array = self.offset + self.constant * row_sums(rows) / len(rows)
        return diagonal

    def preconditioner(self, rows: Array) -> Array:
        """The polynomial inverse of `bound`, as the encrypted run's."""
        inverse: Array = self.inverse.invert(self.bound(rows))
        return inverse
