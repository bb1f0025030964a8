"""What a row adds to a Cox model: to the sums over risk sets, and, once fitted, its residual.

`RiskSets`, at a public point theta: w (1, x, x x^T), w = e^{x theta}, to its own bin alone, and
once more to the events of that bin if it is one. A risk set is a suffix sum over bins, so that
nothing about a person needs an order across sites; one who enters late is taken off again at the
bin of the entry. Ties take Efron's weights, from the sums over events.

`CoxRows`, at the fitted point, with the public tables of each stratum and bin
    a: sum of 1 / D, b: of m / D, up to and with the bin; ta, tb: of (l / n) / D and (l / n) m / D
    over the n events of the bin, D = S_0 - (l / n) T_0 and m = (S_1 - (l / n) T_1) / D, l < n;
    c: the mean of m,
the score residual (Lin and Wei, 1989, with Efron's weights)
    r = e (x - c) - w (x (a_T - a_E) - (b_T - b_E)) + e w (x ta - tb)
of exit T, entry E and event e: r r^T; a one in the cell of stratum, bin, event and score, for the
concordance; and the survival e^{-H w} at each bin, were its factor each of its levels.

Without privacy alone: norms are those of exact sums, which need them for their range.
"""

from __future__ import annotations

import math
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np
from scipy.special import ndtr

from parties.kernel.integers import added, blocks, symmetric
from parties.kernel.integers.exact import Exact, joined
from parties.kernel.study.described import add, check_numbers, check_places, chosen
from parties.kernel.study.lifetimes import Grid, Places
from parties.kernel.sums.integer_sums import PartSum, row_scores
from parties.kernel.sums.products import LARGEST_SCORE, of_each
from parties.kernel.sums.row_function import LARGEST, Array, SumFunction, check_sizes
from protocols.errors import ParameterError

MOST_TEXT = 1 << 21


@dataclass(frozen=True, kw_only=True, slots=True)
class AtPoint(SumFunction):
    """A sum at a public point of a Cox model.

    theta: of the covariates, shape (d,); columns: their places; strata: places of the features that
    say which stratum a row is of, one more has the rows of none; bins, recorded, late: see
    `Lifetimes`; row_norm: B, of the covariates.

    Raises:
        ParameterError: a field is out of range.
    """

    without_noise = True

    theta: tuple[float, ...]
    columns: tuple[int, ...]
    bins: int
    recorded: bool
    row_norm: float
    late: bool = False
    strata: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_places(columns=self.columns, strata=self.strata)
        check_numbers(len(self.columns) or -1, theta=self.theta)  # none has no model
        if {type(self.recorded), type(self.late)} != {bool}:
            raise ParameterError("recorded and late are true or false")
        check_sizes(row_norm=self.row_norm)
        _ = self.grid

    @property
    def grid(self) -> Grid:
        """Of times."""
        return Grid(self.bins, self.recorded)

    @property
    def num_strata(self) -> int:
        """With that of the rows of none."""
        return len(self.strata) + 1

    @property
    def largest_score(self) -> float:
        """Of |x theta|, entries of x within [-1, 1]."""
        return min(float(np.abs(self.theta).sum()), LARGEST_SCORE)

    def weights(self, x: Array) -> Array:
        """w, of covariates, shape (rows,)."""
        scores = row_scores(x, np.array(self.theta)[:, None])[:, 0]
        return np.asarray(np.exp(np.clip(scores, -self.largest_score, self.largest_score)))


@dataclass(frozen=True, kw_only=True, slots=True)
class RiskSets(AtPoint):
    """w (1, x, x x^T) by stratum and bin: of exits less entries, then of events."""

    kind = "risk-sets"

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Exits and events, strata, bins, values."""
        d = len(self.theta)
        return 2, self.num_strata, self.bins, 1 + d + symmetric.length(d)

    def length(self, features: int) -> int:
        """Values of all cells."""
        return math.prod(self.shape)

    @property
    def _part(self) -> float:
        """w |(1, x, x x^T)|."""
        square = self.row_norm**2
        return math.exp(self.largest_score) * math.sqrt(1 + square + square**2)

    def most(self, query: str) -> float:
        """In two cells, or three."""
        return self._part * math.sqrt(2 + self.late)

    def exact_sum(self, x: Array, y: Array, name: str) -> Exact:
        """Sums of integers by cell, each row's from itself alone."""
        into, out, event = self.grid.stay(y, self.late)
        stratum, covariates = chosen(x[:, list(self.strata)] > 0.5), x[:, list(self.columns)]
        values = self.shape[-1]
        total = PartSum(Fraction(self._part), 2, values, len(x))
        room = len(x) * total.limit < 1 << 61
        table = np.zeros(self.shape, np.int64 if room else object)
        for rows in blocks(len(x), values):
            own = covariates[rows]
            w = self.weights(own)
            parts = np.column_stack([w, own * w[:, None], of_each(own, w)])
            whole = total.rounded(parts).astype(np.int64)
            here, leave, enter, dies = stratum[rows], out[rows], into[rows], event[rows]
            for kept, half, place, sign in (
                (leave >= 0, 0, leave, 1),
                (dies, 1, leave, 1),
                (enter >= 0, 0, enter, -1),
            ):
                add(table, (half, here[kept], place[kept]), sign * whole[kept])
        most = isqrt((2 + self.late) * total.limit**2) + 1
        return Exact(table.ravel(), total.bits, most)


@dataclass(frozen=True, kw_only=True, slots=True)
class CoxRows(AtPoint):
    """Residuals, concordance and adjusted curves; see the module.

    theta: the fitted point; tables: a, ta and H, the cumulative hazard, of shape (strata, bins),
    then b, tb and c, (strata, bins, d), little-endian in base 64; scores: (mean, std, count) of the
    bins of x theta, as wide as normal ones would fill evenly; factor: places of a covariate's
    features, which are set to none and to each.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = "cox-rows"

    tables: str
    scores: tuple[float, float, int]
    factor: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        AtPoint.__post_init__(self)  # Classes with slots are made twice: `super` knows the first.
        check_places(factor=self.factor)
        _ = self.read
        if max(self.factor, default=0) >= len(self.theta):
            raise ParameterError(f"factor={self.factor} is beyond the {len(self.theta)} covariates")
        mean, std, count = self.scores
        check_sizes(std=std)
        if not (abs(mean) <= LARGEST and type(count) is int and 2 <= count <= 1 << 10):
            raise ParameterError(f"scores={self.scores} are no bins")

    @property
    def read(self) -> dict[str, Array]:
        """The tables by name, shape (strata, bins, 1 or d)."""
        strata, bins, d = self.num_strata, self.bins, len(self.theta)
        widths = {"a": 1, "ta": 1, "hazard": 1, "b": d, "tb": d, "c": d}
        size = strata * bins * sum(widths.values())
        try:
            found = np.frombuffer(b64decode(self.tables[:MOST_TEXT], validate=True), "<f8")
        except ValueError:
            found = np.zeros(0)
        if len(found) != size or not np.abs(found).max() <= LARGEST:
            raise ParameterError(f"tables is no text of {size} numbers")
        ends = np.cumsum([strata * bins * each for each in widths.values()])[:-1]
        parts = zip(widths.items(), np.split(found, ends), strict=True)
        return {name: part.reshape(strata, bins, width) for (name, width), part in parts}

    @property
    def levels(self) -> int:
        """Of the factor; 0: there is none."""
        return len(self.factor) + 1 if self.factor else 0

    @property
    def shapes(self) -> tuple[int, tuple[int, int, int, int], tuple[int, int]]:
        """Values of r r^T; cells of stratum, bin, event and score; curves by level and bin."""
        cells = (self.num_strata, self.bins, 2, self.scores[2])
        return symmetric.length(len(self.theta)), cells, (self.levels, self.bins)

    def length(self, features: int) -> int:
        """Of all three."""
        return sum(math.prod(np.atleast_1d(shape).tolist()) for shape in self.shapes)

    @property
    def _residual(self) -> float:
        """Bound on |r|^2, for |x| and all means within B."""
        tables = self.read
        steps = float(np.abs(tables["a"]).max() + np.abs(tables["ta"]).max())
        hazard = steps * math.exp(self.largest_score)
        return float((2 * self.row_norm * (1 + hazard)) ** 2)

    def most(self, query: str) -> float:
        """Of r r^T, a count and survivals."""
        return math.hypot(self._residual, 1.0, math.sqrt(self.levels * self.bins))

    def exact_sum(self, x: Array, y: Array, name: str) -> Exact:
        """The three tables, of one party's rows."""
        (residuals, cells, curves), tables = self.shapes, self.read
        into, out, event = self.grid.stay(y, self.late)
        stratum, x = chosen(x[:, list(self.strata)] > 0.5), x[:, list(self.columns)]
        w, counted = self.weights(x), out >= 0

        def outer(rows: slice) -> Array:
            stays = into[rows], out[rows], stratum[rows], event[rows]
            own = score_residuals(tables, x[rows], w[rows], *stays)
            return of_each(own, counted[rows].astype(float))

        def survival(rows: slice) -> Array:
            own = w[rows] * np.exp(-(x[rows][:, list(self.factor)] @ self._effects))
            risks = [own * math.exp(shift) for shift in (0.0, *self._effects)]
            hazard = tables["hazard"][stratum[rows], :, 0]
            found = np.exp(-hazard[:, None] * np.stack(risks, axis=1)[:, :, None])
            return np.asarray(found.reshape(len(own), -1) * counted[rows][:, None])

        table = np.zeros(cells, np.int64)
        mean, std, count = self.scores
        score = np.minimum(ndtr((np.log(w) - mean) / std) * count, count - 1).astype(np.intp)
        own = (stratum, out, event.astype(np.intp), score)
        add(table, tuple(each[counted] for each in own), 1)
        found = [
            Exact(*added(outer, len(x), residuals, self._residual)),
            Exact(table.ravel(), 0),
        ]
        if self.levels:
            found.append(Exact(*added(survival, len(x), math.prod(curves), 1.0)))
        return joined(*found)

    @property
    def _effects(self) -> Array:
        return np.array(self.theta)[list(self.factor)]


def score_residuals(
    tables: Mapping[str, Array],
    x: Array,
    w: Array,
    into: Places,
    out: Places,
    stratum: Places,
    event: Any,
) -> Array:
    """r of some rows, shape (rows, d); tables: see `CoxRows.read`."""

    def at(name: str, bins: Places) -> Array:
        """Of a bin, 0 before the first."""
        return np.asarray(tables[name][stratum, bins] * (bins >= 0)[:, None])

    a, b = (at(name, out) - at(name, into) for name in ("a", "b"))
    dies, w = event[:, None].astype(float), w[:, None]
    tied = x * at("ta", out) - at("tb", out)
    return np.asarray(dies * (x - at("c", out)) - w * (x * a - b) + dies * w * tied)
