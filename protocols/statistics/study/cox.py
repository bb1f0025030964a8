"""From sums over risk sets to a Cox model: estimates, tests, concordance, baseline hazard.

Of a bin with n events, risk sets S (w, w x, w x x^T summed) and sums T over its events, Efron's
approximation has for l = 0 .. n - 1, with f = l / n, D = S_0 - f T_0 and m = (S_1 - f T_1) / D:

    ln L = sum theta x - sum ln D,   score = sum x - sum m,
    information = sum (S_2 - f T_2) / D - m m^T.

Proportional hazards, tested as R's `cox.zph` does since version 3: the score test of x g(t) beside
x, g a function of time (Grambsch and Therneau, 1994, but for their approximation that information
I_k of all events is alike). With u = sum g (x - m), A = sum I_k, B = sum g I_k, C = sum g^2 I_k,

    u_j^2 / (C - B A^-1 B)_jj,  and of all covariates together  u^T (C - B A^-1 B)^-1 u,

are chi-squared, with 1 and d degrees of freedom.
"""

from __future__ import annotations

import math
from base64 import b64encode
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from parties.kernel.integers import symmetric

Array = NDArray[np.float64]
CONVERGED = 1e-10
"""Squared Newton decrement: 10^-5 of a standard error is left."""
LONGEST = 4.0
"""Of a step, in any coefficient of a scaled column."""
ALIASED = 1e-6
"""Of the largest diagonal entry: what is left of a column that the others determine."""


@dataclass(frozen=True, kw_only=True)
class RiskSums:
    """Opened sums at theta, of all rows.

    theta: shape (d,); table: exits less entries, and events, shape (2, strata, bins, 1 + d + d (d +
    1) / 2); deaths: events, shape (strata, bins); sum_x: over these, shape (strata, bins, d).
    """

    theta: Array
    table: Array
    deaths: Array
    sum_x: Array

    @classmethod
    def first(cls, table: Array) -> RiskSums:
        """At 0, where weights are 1 and the table counts events."""
        d = int((math.isqrt(8 * table.shape[-1] + 1) - 3) // 2)
        return cls(
            theta=np.zeros(d),
            table=table,
            deaths=np.rint(table[1, ..., 0]),
            sum_x=table[1, ..., 1 : d + 1],
        )

    def at(self, theta: Array, table: Array) -> RiskSums:
        """The same rows at another point."""
        return RiskSums(theta=theta, table=table, deaths=self.deaths, sum_x=self.sum_x)

    @cached_property
    def sets(self) -> Array:
        """S of every bin: suffix sums."""
        return np.asarray(np.cumsum(self.table[0, :, ::-1], axis=1)[:, ::-1])

    @cached_property
    def _sums(self) -> tuple[Array, ...]:
        """sum 1 / D, f / D, 1 / D^2, f / D^2, f^2 / D^2, ln D over l, each (strata, bins)."""
        found = np.zeros((6, *self.deaths.shape))
        for cell in zip(*np.nonzero(self.deaths), strict=True):
            n = int(self.deaths[cell])
            f = np.arange(n) / n
            one = 1 / (self.sets[cell][0] - f * self.table[(1, *cell)][0])
            terms = (one, f * one, one**2, f * one**2, (f * one) ** 2, -np.log(one))
            found[(slice(None), *cell)] = [each.sum() for each in terms]
        return tuple(found)

    @cached_property
    def means(self) -> Array:
        """sum of m over the events of a bin, shape (strata, bins, d)."""
        d, (one, f, *_) = len(self.theta), self._sums
        first = slice(1, d + 1)
        return np.asarray(
            one[..., None] * self.sets[..., first] - f[..., None] * self.table[1][..., first]
        )

    @property
    def log_likelihood(self) -> float:
        """Partial."""
        return float(self.theta @ self.sum_x.sum(axis=(0, 1)) - self._sums[5].sum())

    @property
    def gaps(self) -> Array:
        """Schoenfeld residuals summed over the events of a bin, all strata, shape (bins, d)."""
        return np.asarray((self.sum_x - self.means).sum(axis=0))

    @property
    def score(self) -> Array:
        """Shape (d,)."""
        return np.asarray(self.gaps.sum(axis=0))

    @property
    def information(self) -> Array:
        """Shape (d, d)."""
        return self.weighted_information(np.ones(self.deaths.shape[1]))

    def weighted_information(self, weights: Array) -> Array:
        """By bin, shape (bins,), the information times a weight, summed; shape (d, d)."""
        d, (one, f, squares, crosses, both, _) = len(self.theta), weights * np.array(self._sums)
        first, second = slice(1, d + 1), slice(d + 1, None)
        s, t = (each.reshape(-1, each.shape[-1]) for each in (self.sets, self.table[1]))
        inner = symmetric.square(one.ravel() @ s[:, second] - f.ravel() @ t[:, second])
        s, t = s[:, first], t[:, first]
        cross = (s * crosses.ravel()[:, None]).T @ t
        outer = (s * squares.ravel()[:, None]).T @ s + (t * both.ravel()[:, None]).T @ t
        return np.asarray(inner - outer + cross + cross.T)

    def tables(self) -> dict[str, Array]:
        """a, b, ta, tb and c, of `parties.kernel.study.hazards`; a row is a stratum."""
        d, (one, f, squares, crosses, both, _) = len(self.theta), self._sums
        first = slice(1, d + 1)
        s, t = self.sets[..., first], self.table[1][..., first]
        # sum m / D and sum f m / D.
        b = squares[..., None] * s - crosses[..., None] * t
        tb = crosses[..., None] * s - both[..., None] * t
        c = self.means / np.maximum(self.deaths, 1)[..., None]
        strata = len(one)
        return {
            "a": np.cumsum(one, axis=1),
            "b": np.cumsum(b, axis=1).reshape(strata, -1),
            "ta": f,
            "tb": tb.reshape(strata, -1),
            "c": c.reshape(strata, -1),
        }

    def hazard(self, inside: NDArray[np.bool_]) -> Array:
        """Breslow's cumulative baseline hazard at x = 0, shape (strata, bins).

        inside: bins whose events are counted, of a shape that goes with it.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where((self.deaths > 0) & inside, self.deaths / self.sets[..., 0], 0.0)
        return np.asarray(np.cumsum(steps, axis=1))


def independent(information: Array) -> NDArray[np.bool_]:
    """Columns that vary, and that earlier ones do not determine."""
    kept = np.zeros(len(information), dtype=bool)
    floor = ALIASED * float(np.max(np.diag(information)))
    for j in range(len(information)):
        left = float(information[j, j])
        if kept.any():
            cross = information[kept, j]
            left -= float(cross @ np.linalg.solve(information[np.ix_(kept, kept)], cross))
        kept[j] = left > floor
    return kept


def step(sums: RiskSums, kept: NDArray[np.bool_]) -> tuple[Array, float]:
    """The next point and the squared decrement; coefficients of other columns stay 0.

    Raises:
        LinAlgError: the information is singular.
    """
    score, moved = sums.score, np.zeros_like(sums.theta)
    moved[kept] = np.linalg.solve(sums.information[np.ix_(kept, kept)], score[kept])
    size = float(np.abs(moved).max(initial=0.0))
    shorter = min(1.0, LONGEST / max(size, 1e-300))
    return sums.theta + moved * shorter, float(score @ moved)


def proportional(
    sums: RiskSums, kept: NDArray[np.bool_], times: Array
) -> tuple[Array, Array, tuple[float, float]]:
    """Chi-squared and p of each covariate, NaN of those left out; both of all together.

    times: g of each bin, shape (bins,).
    """
    deaths = sums.deaths.sum(axis=0)
    g = times - float(deaths @ times / deaths.sum())
    square = np.full(len(kept), np.nan)
    if not deaths @ g**2 > 0:
        return square, square.copy(), (math.nan, math.nan)
    block, u = np.ix_(kept, kept), (g @ sums.gaps)[kept]
    a, b, c = (sums.weighted_information(g**k)[block] for k in range(3))
    left = c - b @ np.linalg.solve(a, b)
    square[kept] = u**2 / np.diag(left)
    whole = float(u @ np.linalg.pinv(left, hermitian=True) @ u)
    return square, np.asarray(chi2.sf(square, 1)), (whole, float(chi2.sf(whole, int(kept.sum()))))


def concordance(cells: Array) -> float:
    """Share of pairs of one stratum in which who had the event first has the higher score.

    cells: rows by stratum, bin, event and score, scores ascending. Of an event, rows that left
    later, or in the same bin without one; scores in one bin count half. NaN: there is no pair.
    """
    events, later, pairs = _pairs(cells)
    below = np.cumsum(later, axis=-1) - later / 2
    return float((events * below).sum()) / pairs if pairs else math.nan


def unsure(cells: Array) -> float:
    """How far the concordance of the scores themselves may be off that of their bins.

    Half the share of pairs whose scores are in one bin. NaN: there is no pair.
    """
    events, later, pairs = _pairs(cells)
    return float((events * later).sum()) / pairs / 2 if pairs else math.nan


def _pairs(cells: Array) -> tuple[Array, Array, float]:
    """Events, those that left later, and how many pairs they make."""
    events, others = cells[:, :, 1], cells[:, :, 0]
    later = np.cumsum((events + others)[:, ::-1], axis=1)[:, ::-1] - events
    return events, later, float((events.sum(axis=-1) * later.sum(axis=-1)).sum())


def written(*tables: Array) -> str:
    """For `CoxRows`: a plan is read and signed many times."""
    flat = np.concatenate([np.asarray(each, "<f8").ravel() for each in tables])
    return b64encode(flat.astype("<f8").tobytes()).decode()
