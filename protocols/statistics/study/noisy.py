"""Survival curves from counts with privacy noise, and what the noise adds to their variance.

Of cells x + noise, or of U x + noise (`parties.kernel.study.lifetimes`), suffix sums come with
errors of a known covariance. They are made monotone first: each is the middle of the least monotone
curve above and the largest below. A curve ends where the number at risk is not `RELIABLE` standard
deviations of its noise any more; of late entries it is the longest run of times at which it
is so many, and the survival of who lived until then.

What the noise does to figures is found by drawing it anew, onto the monotone sums, and through the
same steps: to first order figures are linear in the noise, but of few rows monotone sums hold much
less of it than that. The draws are fixed: they are at points of which all linear figures have
their very variance, each with its opposite. Mean squares of what they move are added to
Greenwood's variance and to the hypergeometric one.

Sums are factored whatever the grid: noise on a number at risk is at most (1 + (ln K + .43) / pi)
sigma, that of plain counts sqrt(K) sigma, which is more from K = 3 on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular, toeplitz

from parties.kernel.study.lifetimes import square_root
from protocols.statistics.study.curves import (
    Curve,
    Test,
    after,
    between,
    chi_squared,
    compared_from,
    excess,
    observed_less_expected,
    run,
)

Array = NDArray[np.float64]
RELIABLE = 5.0
"""Standard deviations of its noise that a number at risk is at least."""
PAIRS = 500
"""Of draws, or as many more as a group has values."""


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

    @cached_property
    def draws(self) -> Array:
        """Noise of suffix sums of all, events and entries, shape (draws, series, bins).

        Of mean 0, and with the covariance that it has.
        """
        values = self.series * self.bins
        pairs = max(PAIRS, values)
        normal = np.random.default_rng(0).standard_normal((pairs, values))
        own = np.sqrt(pairs) * np.linalg.qr(normal)[0].reshape(pairs, self.series, self.bins)
        own = own @ self.at_risk.T
        own[:, 0] += own[:, 1]  # who leaves does so with an event or without
        return np.concatenate([own, -own])

    def curve(
        self, cells: Array, times: Array, start: float, most: float, begin: float = -math.inf
    ) -> Curve | None:
        """Of one group; None: it has too few rows for the noise.

        cells: opened, shape (bins, series); most: N, public; begin: as of `Curve.of`.
        """
        suffix = (np.triu(np.ones((self.bins, self.bins))) @ solve_triangular(self.root, cells)).T
        suffix[0] += suffix[1]
        sums = falling(suffix, most)
        at_risk = _at_risk(sums)
        first, reached = run((at_risk >= RELIABLE * self.spread) & after(times, begin))
        if reached == first or (self.series == 2 and after(times[:first], begin).any()):
            return None
        inside = between(first, reached, self.bins)
        dying = _dying(sums, inside)
        survival = _survival(at_risk, dying)
        again = falling(sums + self.draws, most)
        drawn = _at_risk(again), _dying(again, inside)
        alive, risk = (np.where(inside, each, 1.0) for each in (at_risk - dying, at_risk))
        found = Curve(
            times=times,
            start=start,
            at_risk=at_risk,
            exits=-np.diff(sums[0], append=0.0),
            events=np.where(inside, dying, -np.diff(sums[1], append=0.0)),
            survival=survival,
            greenwood=np.cumsum(dying / (risk * alive)),
            drawn=drawn,
            moved=(_survival(*drawn) / survival - 1).T / np.sqrt(len(self.draws)),
            first=first,
            reached=reached,
        )
        return found if found.known else None

    def log_rank(self, curves: list[Curve]) -> Test | None:
        """As `curves.log_rank`, with the noise in the covariance; where all curves are known."""
        reached = min(curve.reached for curve in curves)
        inside = between(compared_from(curves), reached, self.bins)
        if not inside.any():
            return None
        gap, covariance = observed_less_expected(curves, inside)
        fitted = [curve.at_risk for curve in curves], [curve.events for curve in curves]
        for k, curve in enumerate(curves):
            assert curve.drawn is not None  # noqa: S101 (as `curve` made it)
            at_risk, events = (
                np.stack(np.broadcast_arrays(*others[:k], drawn, *others[k + 1 :]), axis=-2)
                for drawn, others in zip(curve.drawn, fitted, strict=True)
            )
            moved = excess(at_risk, events, inside) - gap
            covariance = covariance + moved.T @ moved / len(moved)
        return chi_squared(gap, covariance)


def falling(values: Array, most: float) -> Array:
    """Monotone along the last axis, and within [0, most]."""
    below = np.minimum.accumulate(values, axis=-1)
    above = np.maximum.accumulate(values[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray(np.clip((above + below) / 2, 0.0, most))


def _at_risk(sums: Array) -> Array:
    """Of all that leave later, less those that enter later, shape (…, bins)."""
    return np.asarray(np.maximum(sums[..., 0, :] - sums[..., 2:, :].sum(axis=-2), 0.0))


def _dying(sums: Array, inside: NDArray[np.bool_]) -> Array:
    """Events inside, fewer than rows at risk, shape (…, bins)."""
    events = np.where(inside, -np.diff(sums[..., 1, :], append=0.0), 0.0)
    return np.asarray(np.minimum(events, _at_risk(sums) * (1 - 1e-9)))


def _survival(at_risk: Array, dying: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.cumprod(1 - np.where(dying > 0, dying / at_risk, 0.0), axis=-1))
