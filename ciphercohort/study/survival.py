"""Survival curves of groups, from one secure sum: Kaplan-Meier, log-rank, restricted means.

What leaves of exact sums is thinned: a step stands for `least` rows or more that left since the
last, and a curve ends where fewer than `least` are at risk. Its values, and every figure, are of
all times. With epsilon a curve ends where noise is a fifth of the number at risk, and bands hold
it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ciphercohort.after.sums import Opened, SumSeries
from ciphercohort.results.exact_sums import exact_fields
from ciphercohort.study.asked import CurveOptions
from ciphercohort.study.pictures import marks, survival_picture
from ciphercohort.study.stays import OTHER, Stays
from ciphercohort.study.tables import PaperTable, documents, number, p_value
from parties.kernel.study.lifetimes import Lifetimes
from protocols.errors import ParameterError
from protocols.statistics.evaluation.figures import LEAST, shown
from protocols.statistics.study.curves import LEVEL, Curve, log_rank
from protocols.statistics.study.noisy import Noise
from protocols.statistics.study.objectives import LifetimesObjective

ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Survival:
    """Curves by group; test: chi-squared, degrees of freedom and p of the log-rank test, or None.

    tau: end of the restricted mean [data units]; noise: on the cells; least: exact counts below it
    are left out.
    """

    stays: Stays
    curves: dict[str, Curve]
    by: str | None
    test: tuple[float, int, float] | None
    tau: float
    num_rows: int
    opened: Opened = field(repr=False)
    noise: Noise = field(repr=False)
    least: int = LEAST
    notes: tuple[str, ...] = ()

    @property
    def private(self) -> bool:
        """Whether there is noise."""
        return self.noise.std > 0

    @property
    def floor(self) -> int:
        """Of counts that are told."""
        return 0 if self.private else self.least

    def at_risk(self, curve: Curve, time: float) -> float | None:
        """Rows at risk just after a time, None where they are few."""
        later = np.flatnonzero(curve.times > time * (1 + 1e-12))
        count = float(curve.at_risk[later[0]]) if len(later) else 0.0
        return shown(count, self.floor)

    def kept(self, curve: Curve) -> NDArray[np.intp]:
        """Bins whose step is told."""
        if curve.reached is not None:
            return np.arange(curve.reached)
        found, left, last = [], 0.0, float(curve.at_risk[0]) if len(curve.at_risk) else 0.0
        ends = np.append(curve.at_risk[1:], 0.0)
        for k, after in enumerate(ends):
            left, last = left + last - after, after
            if curve.at_risk[k] < self.least:
                break
            if left >= self.least and (after == 0 or after >= self.least):
                found.append(k)
                left = 0.0
        return np.array(found, dtype=np.intp)

    def rows(self) -> list[dict[str, Any]]:
        """Of each group: rows, events, median and restricted mean with intervals.

        No figure of a group of which `least` rows are never at risk together.
        """
        found = []
        for name, curve in self.curves.items():
            median = low = high = mean = error = math.nan
            if curve.at_risk.max(initial=0.0) >= self.floor:
                median, low, high = curve.quantile()
                mean, error = curve.restricted_mean(self.tau)
            count = float(curve.at_risk[0]) if not self.stays.late else None
            found.append(
                {
                    "group": name,
                    "rows": None if count is None else shown(count, self.floor),
                    "events": shown(float(curve.events.sum()), self.floor),
                    "median": median,
                    "median_low": low,
                    "median_high": high,
                    "restricted_mean": mean,
                    "restricted_mean_se": error,
                    "tau": self.tau,
                }
            )
        return found

    def released(self) -> dict[str, Any]:
        """For JSON."""
        plan, promise = self.opened.plan, self.opened.plan.privacy
        curves, own = {}, marks(*self.stays.ends)
        for name, curve in self.curves.items():
            kept, (low, high) = self.kept(curve), curve.band()
            curves[name] = {
                "time": curve.times[kept].tolist(),
                "survival": curve.survival[kept].tolist(),
                "low": low[kept].tolist(),
                "high": high[kept].tolist(),
                "at_risk": {f"{mark:g}": self.at_risk(curve, mark) for mark in own},
            }
        test = dict(zip(("chi2", "freedom", "p"), self.test, strict=True)) if self.test else None
        return {
            **exact_fields(plan.opens_exact_sums),
            "rows": self.num_rows,
            "by": self.by,
            "level": LEVEL,
            "grid": self.stays.words,
            "groups": self.rows(),
            "log_rank": test,
            "curves": curves,
            "suppressed": None if self.private else {"below": self.least},
            "noise_std": self.noise.std,
            "privacy": {"epsilon": promise.epsilon, "delta": promise.delta} if promise else None,
            "session": plan.session,
            "plan": plan.digest(),
            "notes": list(self.notes),
        }

    def tables(self) -> tuple[PaperTable, ...]:
        """One row a group."""
        title = f"Survival of {self.num_rows:,} rows by {self.by}" if self.by else "Survival of "
        title += "" if self.by else f"{self.num_rows:,} rows"
        lines = [
            (
                row["group"],
                _count(row["rows"], self.stays.late),
                _count(row["events"]),
                f"{_time(row['median'])} [{_time(row['median_low'])}, {_time(row['median_high'])}]",
                f"{number(row['restricted_mean'])} ({number(row['restricted_mean_se'])})",
            )
            for row in self.rows()
        ]
        heads = ("group", "n", "events", "median [95 % CI]", f"mean to {self.tau:g} (SE)")
        return (
            PaperTable(
                name="survival",
                title=title,
                heads=heads,
                rows=tuple(lines),
                notes=tuple(self._notes()),
            ),
        )

    def _notes(self) -> Iterator[str]:
        if self.test:
            square, freedom, p = self.test
            yield f"log-rank chi-squared {square:.2f}, {freedom} df, p {p_value(p)}"
        yield from self.notes
        yield f"times: {self.stays.words}"
        if self.private:
            most = float(self.noise.spread.max())
            yield (
                f"privacy noise of standard deviation {most:.3g} or less is on every number at "
                "risk; intervals, bands and the test count it"
            )
            return
        yield (
            f"*: counts below {self.least} are left out, and steps of curves that fewer rows make; "
            "rows in all less those of the other groups still tell them"
        )

    def picture(self) -> str:
        """Curves with bands, numbers at risk below."""
        drawn = {}
        for name, curve in self.curves.items():
            kept, (low, high) = self.kept(curve), curve.band()
            drawn[name] = tuple(
                np.concatenate([[first], each[kept]])
                for first, each in (
                    (curve.start, curve.times),
                    (1.0, curve.survival),
                    (1.0, low),
                    (1.0, high),
                )
            )
        counts = {
            name: [_count(self.at_risk(curve, mark)) for mark in marks(*self.stays.ends)]
            for name, curve in self.curves.items()
        }
        return survival_picture(drawn, self.stays.ends, counts, self.stays.time, self.by)

    def documents(self) -> Iterator[tuple[str, str]]:
        """Files by name; see `tables.documents`."""
        words = "Survival with 95 % bands, and numbers at risk"
        yield from documents("Survival", self.tables(), {"survival": (self.picture(), words)})


def _count(value: float | None, unknown: bool = False) -> str:
    return "–" if unknown else "*" if value is None else f"{value:,.0f}"


def _time(value: float) -> str:
    if math.isnan(value):
        return "–"
    return "not reached" if math.isinf(value) else f"{value:.5g}"


def survival_by(sums: SumSeries, asked: CurveOptions) -> Survival:
    """By any sums over rows of `views.by_range`.

    asked: tau None: the last time at which every group has `least` rows at risk, or that its noisy
    curve reaches.

    Raises:
        ParameterError: `asked.by` is no column with categories, there is no event, or noise drowns
            all. CohortError: the sum is refused, or aborted.
    """
    private = sums.wanted.epsilon is not None
    by, tau, least = asked.by, asked.tau, asked.least
    stays = Stays.of(sums.schema, asked.bins, private=private)
    places, groups = stays.places(by) if by is not None else ((), ())
    adds = Lifetimes(
        bins=stays.grid.bins,
        recorded=stays.grid.recorded,
        late=stays.late,
        groups=places,
        factored=private,
    )
    opened = sums.open(LifetimesObjective(adds=adds, exact=not private))
    cells = (opened.values * sums.rows).reshape(adds.shape)
    noise = Noise(
        std=opened.noise_std * sums.rows,
        bins=adds.bins,
        series=adds.shape[-1],
        factored=adds.factored,
    )
    named = dict(zip((*groups, OTHER if groups else ALL), cells, strict=True))
    # What sums know of rows stands in no document that has an epsilon.
    notes = [] if private else list(sums.notes)
    if private:
        named.pop(OTHER, None)
        found = {
            name: noise.curve(own, stays.times, stays.low, sums.rows) for name, own in named.items()
        }
        curves = {name: curve for name, curve in found.items() if curve is not None}
        if not curves:
            raise ParameterError(
                f"noise of standard deviation {noise.spread.max():.3g} on a number at risk drowns "
                "every group: take a larger epsilon, a coarser grid, or more rows"
            )
        if len(curves) < len(found):
            left_out = ", ".join(name for name in found if name not in curves)
            notes.append(f"left out, for noise drowns so few rows: {left_out}")
    else:
        if not np.rint(cells[..., 1]).any():
            raise ParameterError(f"event={stays.event!r}: no row has an event at its upper end")
        curves = {
            name: Curve.of(np.rint(own), stays.times, stays.low)
            for name, own in named.items()
            if np.rint(own).any()
        }
    test = noise.log_rank if private else log_rank
    few = [name for name, c in curves.items() if not private and c.at_risk.max() < least]
    if few:  # the test would tell of rows whose curves are not shown
        notes.append(f"no log-rank test, for fewer than {least} rows: {', '.join(few)}")
    if tau is None:
        reached = [
            c.times[: c.reached] if private else c.times[c.at_risk >= least]
            for c in curves.values()
        ]
        tau = min((float(each[-1]) for each in reached if len(each)), default=stays.high)
    if not stays.low < tau <= stays.high:
        raise ParameterError(f"tau={tau:g} is outside ({stays.low:g}, {stays.high:g}]")
    return Survival(
        stays=stays,
        curves=curves,
        by=by,
        test=test([*curves.values()]) if len(curves) > 1 and not few else None,
        tau=tau,
        num_rows=sums.rows,
        opened=opened,
        noise=noise,
        least=least,
        notes=tuple(notes),
    )
