"""From counts by group, time and event to survival curves and their comparison.

Of a bin d events among n at risk. Survival, Kaplan and Meier: S = prod (1 - d / n); its variance,
Greenwood: S^2 G, G = sum d / (n (n - d)); bands where ln(-ln S) is normal, which keeps them on
[0, 1]. Restricted mean to tau: the area under S, of variance sum A^2 d / (n (n - d)), A the area
after the bin. Log-rank: O - E of each group, E = d n_g / n, with the hypergeometric covariance
d (n - d) / (n - 1) (n_g / n) (1[g = h] - n_h / n).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

Array = NDArray[np.float64]
LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Of one group, after each bin, shape (bins,).

    times: of the bins [data units]; start: of the first [data units]; at_risk, exits, events: rows
    in the bin; survival, of who lived to `begin`; greenwood: G; drawn: rows at risk and
    events, each shape (draws, bins), with privacy noise drawn anew; moved: what it adds to ln S,
    over sqrt(draws), shape (bins, draws); first, reached: bins that are known, the last excluded.
    Survival and what follows from it are of these alone; rows and events of all from the first on.
    """

    times: Array
    start: float
    at_risk: Array
    exits: Array
    events: Array
    survival: Array
    greenwood: Array
    first: int
    reached: int
    drawn: tuple[Array, Array] | None = None
    moved: Array | None = None

    @classmethod
    def of(
        cls, counts: Array, times: Array, start: float, *, least: int = 1, begin: float = -math.inf
    ) -> Curve:
        """Known where `least` rows are at risk, on the longest run of bins.

        counts: ends without event, events and, with entries, these, shape (bins, 2 or 3); begin:
        it is of who lived to this time or a later one [data units].
        """
        leave = counts[:, 0] + counts[:, 1]
        if counts.shape[1] == 3:
            leave = leave - counts[:, 2]
        at_risk, events = np.cumsum(leave[::-1])[::-1], counts[:, 1]
        first, reached = run((at_risk >= least) & after(times, begin))
        inside = between(first, reached, len(times))
        with np.errstate(divide="ignore", invalid="ignore"):
            dying = (events > 0) & inside
            share = np.where(dying, events / at_risk, 0.0)
            spread = np.where(dying, events / (at_risk * (at_risk - events)), 0.0)
        return cls(
            times=times,
            start=start,
            at_risk=at_risk,
            exits=counts[:, 0] + counts[:, 1],
            events=events,
            survival=np.cumprod(1 - np.clip(share, 0.0, 1.0)),
            greenwood=np.cumsum(spread),
            first=first,
            reached=reached,
        )

    @property
    def rows(self) -> float:
        """Of the group, that lived to `begin`."""
        return float(self.exits[self.first :].sum())

    @property
    def deaths(self) -> float:
        """Events of these rows."""
        return float(self.events[self.first :].sum())

    @property
    def known(self) -> bool:
        """Whether it has a bin, and that ends after its begin: no time passes in the first one."""
        return self.reached > self.first and bool(self.times[self.reached - 1] > self.begin)

    @property
    def begin(self) -> float:
        """It is of who lived to this time [data units]."""
        return float(self.times[self.first - 1]) if self.first else self.start

    @property
    def end(self) -> float:
        """Of the last bin that is known [data units]; `begin` if none is."""
        return float(self.times[self.reached - 1]) if self.known else self.begin

    @property
    def is_cut(self) -> bool:
        """Whether rows are left at risk where it ends, too few to be told, or drowned by noise."""
        left = self.at_risk[self.reached :]
        return self.known and bool(len(left) if self.drawn is not None else (left > 0.5).any())

    @property
    def spread(self) -> Array:
        """Variance of ln S, that of noise included."""
        noise = 0.0 if self.moved is None else (self.moved**2).sum(axis=1)
        return np.asarray(self.greenwood + noise)

    def band(self, level: float = LEVEL) -> tuple[Array, Array]:
        """Lower and upper end; 1 before the first event, 0 after the last of all.

        With noise S itself is taken as normal: where it is nearly 1, noise moves ln(-ln S) by any
        amount.
        """
        if self.moved is not None:
            own = norm.ppf((1 + level) / 2) * self.survival * np.sqrt(self.spread)
            return np.maximum(self.survival - own, 0.0), np.minimum(self.survival + own, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(self.survival)
            reach = norm.ppf((1 + level) / 2) * np.sqrt(self.spread) / log
            ends = np.exp(log * np.exp(-reach)), np.exp(log * np.exp(reach))
        flat = (self.survival >= 1) | (self.survival <= 0)
        low, high = (np.where(flat, self.survival, end) for end in ends)
        return np.minimum(low, high), np.maximum(low, high)

    def quantile(self, share: float = 0.5) -> tuple[float, float, float]:
        """First time at which survival is `share` or less, and where the band's ends are.

        NaN: no bin is known; infinite: it is not reached in those that are.
        """
        if not self.known:
            return math.nan, math.nan, math.nan
        low, high = self.band()
        found = [self._first(each <= share) for each in (self.survival, low, high)]
        return found[0], found[1], found[2]

    def _first(self, reached: NDArray[np.bool_]) -> float:
        return float(self.times[int(np.argmax(reached))]) if reached.any() else math.inf

    def restricted_mean(self, tau: float) -> tuple[float, float]:
        """Mean of the earlier of death and tau [data units], and its standard error.

        NaN: the curve ends before tau, above 0.
        """
        if not self.known or (tau > self.end and self.survival[-1] > 0):
            return math.nan, math.nan
        ends = np.minimum(np.concatenate([[self.start], self.times]), tau)
        area = np.diff(ends) * np.concatenate([[1.0], self.survival[:-1]])
        last = (tau - ends[-1]) * self.survival[-1]
        after = np.cumsum(area[::-1])[::-1] + last
        after = np.concatenate([after[1:], [last]])
        spread = np.diff(self.greenwood, prepend=0.0)
        own = np.where((self.times <= tau) & np.isfinite(spread), spread, 0.0)
        variance = float(after**2 @ own)
        if self.moved is not None:
            # d S = S d ln S, over the time after each bin.
            rest = np.diff(np.append(ends, tau))[1:] * self.survival
            variance += float(((rest @ self.moved) ** 2).sum())
        return float(area.sum() + last), math.sqrt(variance)


def after(times: Array, begin: float) -> NDArray[np.bool_]:
    """Bins that end after a time; one that ends within rounding of it does not."""
    return np.asarray(times > begin + 1e-12 * abs(begin) if math.isfinite(begin) else times > begin)


def run(known: NDArray[np.bool_]) -> tuple[int, int]:
    """The longest run of bins that are known: the first, and the first after it; 0, 0: none."""
    change = np.flatnonzero(np.diff(np.concatenate([[0], known.astype(np.int8), [0]])))
    first, reached = change[::2], change[1::2]
    if not len(first):
        return 0, 0
    longest = int(np.argmax(reached - first))
    return int(first[longest]), int(reached[longest])


def between(first: int, reached: int, bins: int) -> NDArray[np.bool_]:
    """The bins from the first on, before `reached`."""
    places = np.arange(bins)
    return np.asarray((places >= first) & (places < reached))


Test = tuple[float, int, float]
"""Chi-squared, its degrees of freedom and p."""


def compared_from(curves: list[Curve]) -> int:
    """The first bin of a comparison: of rows that lived to the latest of all begins."""
    return max(curve.first for curve in curves)


def log_rank(curves: list[Curve]) -> Test | None:
    """Of known curves, over all bins from `compared_from` on; None: none has an event.

    It is one number of all rows, and counts bins in which few are at risk, too.
    """
    bins = len(curves[0].times)
    inside = between(compared_from(curves), bins, bins)
    gap, covariance = observed_less_expected(curves, inside)
    return chi_squared(gap, covariance) if covariance.any() else None


def chi_squared(gap: Array, covariance: Array) -> Test:
    """Of O - E, which add up to 0."""
    freedom = len(gap) - 1
    own = slice(freedom)
    square = float(gap[own] @ np.linalg.pinv(covariance[own, own], hermitian=True) @ gap[own])
    return square, freedom, float(chi2.sf(square, freedom))


def excess(at_risk: Array, events: Array, inside: NDArray[np.bool_]) -> Array:
    """O - E, shape (…, groups), of counts, shape (…, groups, bins); inside: bins that count."""
    n, d = at_risk.sum(axis=-2, keepdims=True), events.sum(axis=-2, keepdims=True)
    kept = (n > 1) & (d > 0) & inside
    gap = np.where(kept, events - d * at_risk / np.where(kept, n, 1.0), 0.0)
    return np.asarray(gap.sum(axis=-1))


def observed_less_expected(curves: list[Curve], inside: NDArray[np.bool_]) -> tuple[Array, Array]:
    """O - E of each group, and their covariance; inside: see `excess`."""
    at_risk = np.stack([curve.at_risk for curve in curves])
    events = np.stack([curve.events for curve in curves])
    n, d = at_risk.sum(axis=0), events.sum(axis=0)
    kept = (n > 1) & (d > 0) & inside
    share = at_risk[:, kept] / n[kept]
    scale = d[kept] * (n[kept] - d[kept]) / (n[kept] - 1)
    covariance = np.diag((scale * share).sum(axis=1)) - (scale * share) @ share.T
    return excess(at_risk, events, inside), covariance
