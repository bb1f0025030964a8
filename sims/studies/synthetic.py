"""The synthetic logistic regression of arXiv:2008.01989, section 5, many weight vectors at once.

Rows are uniform on [0, 1]^d, so that ||u||_1 <= d; a label is the sign of <u, w> for one standard
normal w. The objective is mean_i ln(1 + exp(-y_i <u_i, w>)) + lambda ||w||^2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_BLOCK = 4096
_NEWTON_STEPS = 50


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """Rows with their labels, and the regularised objective on them.

    signed: rows u_i times labels y_i = +-1, float64 array, shape (n, d).
    penalty: lambda > 0. l1_bound: public bound on every row's l1 norm.
    """

    signed: Floats
    penalty: float
    l1_bound: float

    @property
    def positive_share(self) -> float:
        """Share of rows with the label +1; rows themselves are not negative."""
        return float((self.signed[:, 0] > 0).mean())

    @property
    def features(self) -> int:
        """Columns d."""
        return int(self.signed.shape[1])

    def data_gradient(self, weights: Floats) -> Floats:
        """Gradients of the mean loss without its penalty, shape of `weights`: (runs, d).

        -mean sigmoid(-m_i) y_i u_i with margins m, sigmoid(-m) = (1 - tanh(m / 2)) / 2; blocks of
        rows stay in the cache.
        """
        total = np.zeros_like(weights)
        for rows in self._blocks():
            half = rows @ (0.5 * weights.T)
            np.tanh(half, out=half)
            half -= 1.0
            total += half.T @ rows
        return total / (2 * len(self.signed))

    def objective(self, weights: Floats) -> Floats:
        """Values for every run, shape (runs,): ln(1 + e^-m) = max(-m, 0) + ln(1 + e^-|m|)."""
        total = np.zeros(len(weights))
        for rows in self._blocks():
            margin = rows @ weights.T
            total -= np.minimum(margin, 0.0).sum(axis=0)
            np.abs(margin, out=margin)
            total += np.log1p(np.exp(-margin)).sum(axis=0)
        penalty = self.penalty * np.einsum("ij,ij->i", weights, weights)
        return np.asarray(total / len(self.signed) + penalty)

    def optimum(self) -> Floats:
        """The minimiser by Newton's method with step halving, shape (d,)."""
        w: Floats = np.zeros(self.features)
        for _ in range(_NEWTON_STEPS):
            gradient = self.data_gradient(w[None])[0] + 2 * self.penalty * w
            p = 0.5 * (1 - np.tanh(0.5 * (self.signed @ w)))
            hessian = self.signed.T @ (self.signed * (p * (1 - p))[:, None]) / len(self.signed)
            hessian[np.diag_indices_from(hessian)] += 2 * self.penalty
            step = np.linalg.solve(hessian, gradient)
            if gradient @ step < 1e-24:  # twice the suboptimality
                break
            here = self.objective(w[None])[0]
            while self.objective((w - step)[None])[0] > here and step @ step > 1e-24:
                step /= 2
            w = w - step
        return np.asarray(w)

    def _blocks(self) -> Iterator[Floats]:
        for start in range(0, len(self.signed), _BLOCK):
            yield self.signed[start : start + _BLOCK]


def synthetic_problem(
    rng: np.random.Generator, *, rows: int = 100_000, features: int = 20, penalty: float = 0.01
) -> Problem:
    """A problem of the paper's kind; its sizes by default."""
    data = rng.random((rows, features))
    labels = np.where(data @ rng.standard_normal(features) < 0, -1.0, 1.0)
    return Problem(signed=data * labels[:, None], penalty=penalty, l1_bound=float(features))
