"""Survival curves from counts with privacy noise, and what the noise adds to their variance.

Of cells x + noise, or of U x + noise (`parties.kernel.study.lifetimes`), suffix sums come with
errors of a known covariance. They are made monotone first: each is the middle of the least monotone
curve above and the largest below. A curve ends where the number at risk is not `RELIABLE` standard
deviations of its noise any more; with late entries it begins where it is so many, and is the
survival of who lived until then.

To first order in the noise, with d events among n at risk,

    d ln S = sum_j -d d_j / (n_j - d_j) + d_j d n_j / (n_j (n_j - d_j)),
    d (O - E)_g = sum_k sum_h (1[g = h] - n_g / n) d d_h - d (1[g = h] / n - n_g / n^2) d n_h,

which is linear in independent noise: its variance is added to Greenwood's and to the
hypergeometric one.

Sums are factored whatever the grid: noise on a number at risk is at most (1 + (ln K + .43) / pi)
sigma, that of plain counts sqrt(K) sigma, which is more from K = 3 on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular, toeplitz
from scipy.stats import chi2

from parties.kernel.study.lifetimes import square_root
from protocols.statistics.study.curves import Curve, observed_less_expected

Array = NDArray[np.float64]
RELIABLE = 5.0
"""Standard deviations of its noise that a number at risk is at least."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Of opened cells.

    std: of each, times N; bins: K; series: 2, or 3 with entries; factored: whether they are U x.
    """

    std: float
    bins: int
    series: int
    factored: bool

    @cached_property
    def root(self) -> Array:
        """U, or the identity, shape (bins, bins)."""
        if not self.factored:
            return np.eye(self.bins)
        return np.asarray(toeplitz(np.eye(1, self.bins)[0], square_root(self.bins)))

    @cached_property
    def counts(self) -> Array:
        """What noise does to counts of events, shape (bins, bins)."""
        return np.asarray(solve_triangular(self.root, self.std * np.eye(self.bins)))

    @cached_property
    def at_risk(self) -> Array:
        """What noise of one series does to its suffix sums, shape (bins, bins)."""
        return np.asarray(np.triu(np.ones((self.bins, self.bins))) @ self.counts)

    @property
    def spread(self) -> Array:
        """Standard deviation of a number at risk, shape (bins,)."""
        found = np.linalg.norm(self.at_risk, axis=1) * np.sqrt(self.series)
        return np.asarray(found)

    def moved(self, by_events: Array, by_risk: Array) -> Array:
        """What noise does to sums of events and of numbers at risk, shape (…, series, bins).

        by_events, by_risk: factors of each, shape (…, bins).
        """
        risk = by_risk @ self.at_risk
        signs = (risk, risk + by_events @ self.counts, -risk)
        return np.stack(signs[: self.series], axis=-2)

    def curve(self, cells: Array, times: Array, start: float, most: float) -> Curve | None:
        """Of one group; None: it has too few rows for the noise.

        cells: opened, shape (bins, series); most: N, public.
        """
        suffix = np.triu(np.ones((self.bins, self.bins))) @ solve_triangular(self.root, cells)
        exits, events, *entries = (
            falling(each, most) for each in (suffix[:, 0] + suffix[:, 1], *suffix.T[1:])
        )
        at_risk = np.maximum(exits - sum(entries), 0.0)
        reliable = np.append(at_risk >= RELIABLE * self.spread, False)
        first = int(np.argmax(reliable)) if entries else 0
        reached = first + int(np.argmin(reliable[first:]))
        if reached == first:
            return None
        inside = (np.arange(self.bins) >= first) & (np.arange(self.bins) < reached)
        dying = np.where(inside, -np.diff(events, append=0.0), 0.0)
        dying = np.minimum(dying, at_risk * (1 - 1e-9))
        alive = np.where(inside, at_risk - dying, 1.0)
        risk = np.where(inside, at_risk, 1.0)
        by_events, by_risk = np.where(inside, -1 / alive, 0.0), dying / (risk * alive)
        steps = np.tril(np.ones((self.bins, self.bins)))
        moved = self.moved(steps * by_events, steps * by_risk).reshape(self.bins, -1)
        return Curve(
            times=times,
            start=start,
            at_risk=at_risk,
            events=dying,
            survival=np.cumprod(1 - dying / risk),
            greenwood=np.cumsum(dying / (risk * alive)),
            moved=moved,
            reached=reached,
        )

    def log_rank(self, curves: list[Curve]) -> tuple[float, int, float]:
        """As `curves.log_rank`, with the noise in the covariance."""
        reached = max(curve.reached or 0 for curve in curves)
        gap, covariance = observed_less_expected(curves, reached)
        at_risk = np.stack([curve.at_risk for curve in curves])
        events = np.stack([curve.events for curve in curves]).sum(axis=0)
        total = np.maximum(at_risk.sum(axis=0), 1.0)
        inside = np.arange(self.bins) < reached
        share = at_risk / total
        for h in range(len(curves)):
            own = np.arange(len(curves))[:, None] == h
            by_risk = -events * (own - share) / total
            moved = self.moved((own - share) * inside, by_risk * inside).reshape(len(curves), -1)
            covariance = covariance + moved @ moved.T
        own = slice(len(curves) - 1)
        square = float(gap[own] @ np.linalg.pinv(covariance[own, own], hermitian=True) @ gap[own])
        return square, len(curves) - 1, float(chi2.sf(square, len(curves) - 1))


def falling(values: Array, most: float) -> Array:
    """Monotone, and within [0, most]."""
    below = np.minimum.accumulate(values)
    above = np.maximum.accumulate(values[::-1])[::-1]
    return np.asarray(np.clip((above + below) / 2, 0.0, most))
