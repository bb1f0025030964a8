"""What a person adds to a regression of hazards with noise: score and information at a point.

Hazards are constant on J intervals of time (piecewise exponential), which is a Poisson model of
person-time. With E_j the part of interval j that a person is at risk for, (e, m) whether and in
which interval it has an event, and x~ = W (x - centre) its whitened covariates,

    mu_j = E_j exp(base_j + scale_j a_j + b x~),   H = sum_j mu_j,
    g = ((scale_j (mu_j - e [j = m]))_j, (H - e) x~),
    I = sum_j mu_j z_j z_j^T,   z_j = (scale_j at place j of the first J, then x~),

theta = (a, b). A person is one row, whatever intervals it is at risk in, and adds **one** vector

    v = min(1, C / M) u,   u = (g, kappa I),

I with sqrt(2) off its diagonal, and without the products of two intervals, which are 0.

**Neither biases the estimate.** A person is followed until H reaches h = `most_hazard`: a time that
x and theta fix, whatever happens, so that leaving then is no information. M = M(x) is the largest
|u| over all exits from its entry on, with an event or without; a weight of x alone keeps the mean
of g at the true theta 0. (To clip u by its own length did not: who lives longest is clipped most.)
Within an interval u is affine in mu_m, so that |u| is largest at an end: M is exact.

**A person counts once.** |v| <= C whatever the row and the public numbers (`integer_sums` holds it
in integers, too), and replacing a person, with all of its intervals, moves a sum by |v - v'| <=
**2 C**. J does not enter: were each interval's part clipped by itself, it would be 2 J C.

Persons that enter late are at risk from their entry on; one whose entry is not before its exit adds
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from parties.kernel.integers import symmetric
from parties.kernel.integers.exact import Exact
from parties.kernel.integers.integer_rows import along
from parties.kernel.study.described import check_numbers, check_places
from parties.kernel.sums.integer_sums import row_scores, summed
from parties.kernel.sums.products import LARGEST_SCORE, of_each
from parties.kernel.sums.row_function import Array, SumFunction, check_sizes
from protocols.errors import ParameterError


@dataclass(frozen=True, kw_only=True, slots=True)
class PersonTime(SumFunction):
    """Clipped score and information; see the module.

    columns: places of the covariates, shape (d,); cuts: between intervals, rising in (0, 1) of the
    range of times, shape (J - 1,); base, scale: shape (J,); centre: shape (d,); matrix: W, row by
    row, shape (d d,); theta: shape (J + d,); clip: C; kappa: of the information; most_hazard: h;
    late: whether there is an entry.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = "person-time"

    columns: tuple[int, ...]
    cuts: tuple[float, ...]
    base: tuple[float, ...]
    scale: tuple[float, ...]
    centre: tuple[float, ...]
    matrix: tuple[float, ...]
    theta: tuple[float, ...]
    clip: float
    kappa: float
    most_hazard: float
    late: bool = False

    def __post_init__(self) -> None:
        check_places(columns=self.columns)
        check_sizes(clip=self.clip, kappa=self.kappa, most_hazard=self.most_hazard)
        if type(self.late) is not bool:
            raise ParameterError("late is true or false")
        d, intervals = len(self.columns), len(self.cuts) + 1
        check_numbers(intervals, base=self.base, scale=self.scale)
        check_numbers(intervals + d, theta=self.theta)
        check_numbers(d, centre=self.centre)
        check_numbers(d * d, matrix=self.matrix)
        if not d or not (np.diff([0.0, *self.cuts, 1.0]) > 0).all():
            raise ParameterError(
                f"cuts={self.cuts} do not rise in (0, 1), or there is no covariate"
            )

    def length(self, features: int) -> int:
        """Of g and I."""
        d, intervals = len(self.columns), len(self.base)
        return 2 * intervals + d + intervals * d + symmetric.length(d)

    def most(self, query: str) -> float:
        """C."""
        return self.clip

    def exact_sum(self, x: Array, y: Array, name: str) -> Exact:
        """Of persons, each held to the clip by itself."""
        length = self.length(x.shape[1])
        return summed(lambda own: self.parts(x[own], y[own]), len(x), length, Fraction(self.clip))

    def parts(self, x: Array, y: Array) -> Array:
        """v of every person, by itself, shape (rows, length); y: as of `Grid.stay`."""
        if y.shape[1:] != (2 + self.late,):
            raise ParameterError(f"outcomes of shape {y.shape[1:]} are no stay")
        d, intervals = len(self.columns), len(self.base)
        edges, scale = np.array([0.0, *self.cuts, 1.0]), np.array(self.scale)
        time, event = y[:, :1], y[:, 1] > 0.5
        entry = y[:, 2:] if self.late else np.full(time.shape, -1.0)
        own = x[:, list(self.columns)] - np.array(self.centre)
        own = row_scores(own, np.array(self.matrix).reshape(d, d).T)
        score = row_scores(own, np.array(self.theta)[intervals:, None])
        level = np.array(self.base) + scale * np.array(self.theta)[:intervals]
        hazard = np.exp(np.clip(level + score, -LARGEST_SCORE, LARGEST_SCORE))

        def hazards(end: Array) -> Array:
            """Of each interval from the entry to an end, summed, shape (rows, J)."""
            stay = np.clip(end, edges[:-1], edges[1:]) - np.clip(entry, edges[:-1], edges[1:])
            return np.asarray(np.cumsum(hazard * np.maximum(stay, 0.0), axis=1))

        whole = hazards(time)
        mean = np.diff(np.minimum(whole, self.most_hazard), axis=1, prepend=0.0)
        dies = np.flatnonzero(event & (entry < time)[:, 0] & (whole[:, -1] <= self.most_hazard))
        residual = mean.copy()
        residual[dies, np.searchsorted(self.cuts, time[dies, 0])] -= 1.0
        longest = self.reach(np.minimum(hazards(np.ones((1, 1))), self.most_hazard), along(own**2))
        weight = np.minimum(1.0, self.clip / np.maximum(longest, 1e-300))[:, None]
        residual, mean = weight * residual, self.kappa * weight * mean
        crossed = np.sqrt(2) * (scale * mean)[:, :, None] * own[:, None]
        parts = (
            scale * residual,
            own * along(residual)[:, None],
            scale**2 * mean,
            crossed.reshape(len(x), -1),
            of_each(own, along(mean)),
        )
        return np.concatenate(parts, axis=1)

    def reach(self, hazards: Array, square: Array) -> Array:
        """|u| of any exit, with an event or without, shape (rows,); hazards: summed by interval.

        square: |x~|^2, shape (rows,).
        """
        scale, square = np.array(self.scale), square[:, None]
        each = np.diff(hazards, axis=1, prepend=0.0)
        before, parts = hazards - each, (scale * each) ** 2
        own = np.cumsum(parts, axis=1) - parts
        fourth = np.cumsum(scale**2 * parts, axis=1) - scale**2 * parts
        found = np.zeros(len(hazards))
        dies = (each > 0).astype(float)  # at risk in the interval
        for a, e in ((0.0, dies), (each, 0.0), (each, dies)):
            g = own + (scale * (a - e)) ** 2 + (before + a - e) ** 2 * square
            i = fourth + scale**4 * a**2 + 2 * square * (own + (scale * a) ** 2)
            i = i + ((before + a) * square) ** 2
            found = np.maximum(found, (g + self.kappa**2 * i).max(axis=1))
        return np.asarray(np.sqrt(found))
