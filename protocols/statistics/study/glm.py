"""From sums at a point to a generalised linear model: Fisher's scoring, errors, dispersion.

Dispersion phi: Pearson's chi-squared over n - k of gaussian and gamma, else 1. With information I
and the scores' outer products R,

    covariance  phi I^-1,   robust  I^-1 R I^-1   (HC0),
    by cluster  c I^-1 (sum_g t_g t_g^T) I^-1,   c = G / (G - 1) (n - 1) / (n - k).

Of a negative binomial, ln r = -ln alpha takes Newton's steps beside: the expected information has
no term of both (Lawless, 1987).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit, ndtri

from parties.kernel.integers import symmetric
from parties.kernel.study.glm import FIGURES, Generalised

Array = NDArray[np.float64]
CONVERGED = 1e-12
"""Squared decrement over phi: 10^-6 of a standard error is left, and a step more is made."""
LONGEST = 4.0
"""Of a step, in any coefficient of a scaled column; a mean itself is found in one."""


@dataclass(frozen=True, kw_only=True)
class GlmSums:
    """Opened sums at a point, of all rows.

    figures: by name, see `parties.kernel.study.glm`; score: shape (d,); information, robust:
    shape (d, d); clusters: likewise, or None.
    """

    adds: Generalised
    figures: dict[str, float]
    score: Array
    information: Array
    robust: Array
    clusters: Array | None

    @classmethod
    def of(cls, adds: Generalised, values: Array) -> GlmSums:
        """values: of all rows, in the order of `adds`."""
        first, *squares = np.split(values, np.cumsum(adds.values)[:-1])
        information, robust, *clusters = (
            symmetric.square(each) for each in squares[: 2 + adds.clusters]
        )
        return cls(
            adds=adds,
            figures=dict(zip(FIGURES, first[: len(FIGURES)].tolist(), strict=True)),
            score=first[len(FIGURES) :],
            information=information,
            robust=robust,
            clusters=clusters[0] if clusters else None,
        )

    def dispersion(self, freedom: float) -> float:
        """phi; freedom: n - k."""
        estimated = self.adds.family in ("gaussian", "gamma")
        return self.figures["pearson"] / max(freedom, 1.0) if estimated else 1.0

    def step(self, kept: NDArray[np.bool_]) -> tuple[Array, float]:
        """Of theta, and the squared decrement; coefficients of other columns stay 0.

        Raises:
            LinAlgError: the information is singular.
        """
        moved = np.zeros(len(self.score))
        moved[kept] = np.linalg.solve(self.information[np.ix_(kept, kept)], self.score[kept])
        size = float(np.abs(moved).max(initial=0.0))
        longest = np.inf if self.adds.link == "identity" else LONGEST
        return moved * min(1.0, longest / max(size, 1e-300)), float(self.score @ moved)

    def ratio_step(self) -> tuple[float, float]:
        """Of ln r, and its squared decrement."""
        first, second = self.figures["first"], self.figures["second"]
        if second >= 0:  # beyond the turn: uphill
            return float(np.sign(first)), np.inf
        return float(np.clip(-first / second, -1.0, 1.0)), first**2 / -second

    def covariances(
        self, kept: NDArray[np.bool_], dispersion: float, correction: float
    ) -> dict[str, Array]:
        """Of those kept: "se", "robust_se" and, with clusters, "cluster_se"."""
        block = np.ix_(kept, kept)
        inverse = np.linalg.inv(self.information[block])
        found = {"se": dispersion * inverse, "robust_se": inverse @ self.robust[block] @ inverse}
        if self.clusters is not None:
            found["cluster_se"] = correction * inverse @ self.clusters[block] @ inverse
        return found


def linked(link: str, mean: float) -> float:
    """eta of a mean; not finite at an end."""
    with np.errstate(all="ignore"):
        return float(
            {
                "identity": lambda m: m,
                "log": np.log,
                "logit": logit,
                "probit": ndtri,
                "cloglog": lambda m: np.log(-np.log1p(-m)),
            }[link](np.float64(mean))
        )
