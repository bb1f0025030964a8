"""Gradients of generalised linear models, of every row clipped by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import expit

from parties.kernel.integers.exact import Exact
from parties.kernel.integers.integer_rows import IntegerRows, Rows, along
from parties.kernel.sums.integer_sums import Factors, PartSum, scores
from parties.kernel.sums.row_function import Array, Contributor, Own, RowFunction
from protocols.errors import ParameterError, PolicyError

GRADIENT, CURVATURE = "gradient", "curvature"
LOGISTIC = 0.25
"""Largest second derivative of the logistic loss."""


def _softmax(z: Array) -> Array:
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    means: Array = powers / along(powers.copy())[:, None]
    return means


MEANS: Mapping[str, Callable[[Array], Array]] = {
    "logistic": expit,
    "squared": lambda z: z,
    "softmax": _softmax,
    "one-vs-rest": expit,
}
"""mu(z) of scores z, shape (rows, K), by the loss, each row by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gradients(RowFunction):
    """u clip(x (mu(z) - y)^T) of every row, z = x w + offset.

    loss: one of MEANS; clip: bound on a row's gradient; curvature_clip: on its part of the diagonal
    bound of the Hessian, `constant` |x_k| sum_j |x_j|; outputs: K.

    x: shape (rows, d), y: (rows, K); the entrywise q-norm of x r^T is |x|_q |r|_q, so that a row is
    clipped by its residual r. The weight u comes after the clip, so that a row of weight 2 is two
    rows.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = "gradient"

    loss: str
    clip: float
    curvature_clip: float = 0.0
    outputs: int = 1
    constant: float = LOGISTIC

    def __post_init__(self) -> None:
        if self.loss not in MEANS or not (type(self.outputs) is int and self.outputs >= 1):
            raise ParameterError(f"loss={self.loss!r} or outputs={self.outputs!r} is not known")
        if not (0 < self.clip < math.inf and 0 <= self.curvature_clip < math.inf):
            raise ParameterError("clips must be finite and positive")

    def length(self, features: int) -> int:
        """Of d K."""
        return features * self.outputs

    def most(self, query: str) -> float:
        """The clip of the query."""
        return self.curvature_clip if query == CURVATURE else self.clip

    def of(self, rows: Any, own: Own) -> Contributor:
        """Rows have K labels or targets."""
        return _RowGradients(self, rows, own)


class _RowGradients(Contributor):
    def __init__(self, function: Gradients, rows: Any, own: Own) -> None:
        x, y = rows.x, rows.y.reshape(rows.rows, -1)
        if y.shape[1] != function.outputs:
            raise PolicyError(
                f"outputs={function.outputs} of {function.loss} are not this party's {y.shape[1]}"
            )
        self._function, self._own, self._x, self._y = function, own, x, y
        self._row_weights, self._offset = rows.weight[:, None], rows.offset[:, None]
        self._rows = IntegerRows(x, rows.schema.norm_bound, own.norm)
        self._factors = Factors(self._rows, self._bound(GRADIENT), own.norm, own.weight)

    def _bound(self, query: str) -> Fraction:
        return Fraction(self._function.most(query) * self._own.weight)

    def exact(self, query: str, t: int, point: Array) -> Exact:
        """weight sum_i u_i clip(g_i), shape (d K,)."""
        if query == CURVATURE:
            return self._curvature()
        point, mean = point.reshape(-1, self._function.outputs), MEANS[self._function.loss]

        def residuals(rows: Rows) -> Array:
            z = scores(self._rows, point, rows) + self._offset[rows]
            return np.asarray(mean(z) - self._y[rows])

        return self._factors.total(residuals, self._row_weights)

    def _curvature(self) -> Exact:
        """Of a diagonal bound that all classes share, in the first's column; shape (d K,)."""
        function, own, (rows, d) = self._function, self._own, self._x.shape
        total = PartSum(self._bound(CURVATURE), own.norm, d, rows)
        for block in self._rows.blocks():
            magnitude = np.abs(self._x[block])
            parts = function.constant * magnitude * along(magnitude.copy())[:, None]
            total.add(own.weight * parts, self._row_weights[block])
        found = np.zeros((d, function.outputs), object)
        found[:, 0] = total.exact.units
        return Exact(found.ravel(), total.bits, total.limit)
