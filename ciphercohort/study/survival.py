"""Survival curves of groups, from one secure sum: Kaplan-Meier, log-rank, restricted means.

A curve of exact sums begins where `least` rows are at risk, and ends where fewer are; so do median
and mean. All figures are of who lived to its begin, the log-rank test of who lived to the latest
one: it, rows and events count all times after it. What leaves of a curve is thinned: a step stands
for `least` rows or more that left since the last, and has the value of its time. With epsilon a
curve ends where noise is a fifth of the number at risk, and bands hold it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ciphercohort.after.sums import Opened, SumSeries, noise_std
from ciphercohort.results.exact_sums import exact_fields
from ciphercohort.study.asked import CurveOptions
from ciphercohort.study.pictures import marks, survival_picture
from ciphercohort.study.stays import Stays
from ciphercohort.study.tables import PaperTable, Tabled, number, p_value
from parties.kernel.study.lifetimes import Lifetimes
from parties.reader.arms import OTHER
from protocols.errors import ParameterError, PrivacyError
from protocols.statistics.evaluation.figures import LEAST, Told
from protocols.statistics.study.curves import LEVEL, Curve, Test, after, log_rank
from protocols.statistics.study.noisy import RELIABLE, Noise
from protocols.statistics.study.objectives import LifetimesObjective
from protocols.words import NONE


@dataclass(frozen=True, kw_only=True)
class Survival(Tabled):
    """Curves by group; test: chi-squared, degrees of freedom and p of the log-rank test, or None.

    tau: end of the restricted mean [data units]; begin: that was asked for [data units]; noise: on
    the cells; least: exact counts below it are left out.
    """

    title = "Survival"

    stays: Stays
    curves: dict[str, Curve]
    by: str | None
    test: Test | None
    tau: float
    begin: float | None
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

    @property
    def ends(self) -> tuple[float, float]:
        """Of the axis [data units]: from the first curve's begin to the last one's end."""
        known = [curve for curve in self.curves.values() if curve.known]
        if not known:
            return self.stays.ends
        return min(curve.begin for curve in known), max(curve.end for curve in known)

    def counts(self, curve: Curve) -> tuple[float | None, float | None, dict[float, float | None]]:
        """Rows of a curve, events, and at risk at each mark of the axis, as R counts them.

        None where they are few, beyond the curve's ends, or few less or more than what is told: the
        group's size, which may be that of all, or a count before.
        """
        told = Told(self.floor, float(curve.exits.sum()))
        rows = told.shown(curve.rows) if curve.known else None
        # Events, and who is at risk at a time, are no part of each other.
        events = Told(self.floor, *told.counts).shown(curve.deaths) if curve.known else None
        found = dict[float, float | None]()
        for mark in marks(*self.ends):
            place = int(np.argmax(curve.times >= mark * (1 - 1e-12)))  # ends then or later
            count = float(curve.at_risk[place])
            is_told = curve.known and curve.first <= place <= (curve.reached if count else place)
            found[mark] = told.shown(count) if is_told else None
        return rows, events, found

    def kept(self, curve: Curve) -> NDArray[np.intp]:
        """Bins whose step is told."""
        if self.private:
            return np.arange(curve.first, curve.reached)
        found, left = list[int](), 0.0
        ends = np.append(curve.at_risk[1:], 0.0)
        for k in range(curve.first, curve.reached):
            after, left = ends[k], left + curve.exits[k]
            if left >= self.least and (after == 0 or after >= self.least):
                found.append(k)
                left = 0.0
        return np.array(found, dtype=np.intp)

    def rows(self) -> list[dict[str, Any]]:
        """Of each group: rows, events, median and restricted mean with intervals.

        Figures are of its curve: none of a group of which `least` rows are never at risk together.
        """
        found = []
        for name, curve in self.curves.items():
            median, low, high = curve.quantile()
            mean, error = curve.restricted_mean(self.tau)
            rows, events, _ = self.counts(curve)
            found.append(
                {
                    "group": name,
                    "rows": rows,
                    "events": events,
                    "median": median,
                    "median_low": low,
                    "median_high": high,
                    "restricted_mean": mean,
                    "restricted_mean_se": error,
                    "tau": self.tau,
                    "until": curve.end,
                    "cut": curve.is_cut,
                }
            )
        return found

    def released(self) -> dict[str, Any]:
        """For JSON."""
        plan, promise = self.opened.plan, self.opened.plan.privacy
        curves = {}
        for name, curve in self.curves.items():
            kept, (low, high) = self.kept(curve), curve.band()
            curves[name] = {
                "from": curve.begin,
                "until": curve.end,
                "time": curve.times[kept].tolist(),
                "survival": curve.survival[kept].tolist(),
                "low": low[kept].tolist(),
                "high": high[kept].tolist(),
                "at_risk": {f"{mark:g}": count for mark, count in self.counts(curve)[2].items()},
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
        title = f"Survival of {self.num_rows:,} rows" + (f" by {self.by}" if self.by else "")
        if promise := self.opened.plan.privacy:
            title += f", epsilon {promise.epsilon:g}"
        lines = [
            (
                row["group"],
                _count(row["rows"]),
                _count(row["events"]),
                "{} [{}, {}]".format(
                    *(_time(row, f"median{end}") for end in ("", "_low", "_high"))
                ),
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
            yield f"log-rank chi-squared {square:.2f}, {freedom} df, p {p_value(p)}" + self._tested
        yield from self._bounds()
        yield from self.notes
        yield f"times: {self.stays.words}"
        if self.private:
            most = float(self.noise.spread.max())
            yield (
                f"privacy noise of standard deviation {most:.3g} or less is on every number at "
                "risk; intervals, bands and the test count it"
            )
            return
        words = f"*: counts below {self.least} are left out, and those as near to one that is told"
        still = "; rows in all less those of the other groups still tell them"
        yield words + still * (len(self.curves) > 1)
        yield self._thinned()

    @property
    def _tested(self) -> str:
        """Of which rows the test is, where that is not all."""
        latest = max(curve.begin for curve in self.curves.values())
        if latest == self.stays.low:
            return ""
        return f", of rows that lived to {self.stays.time} {latest:.5g}"

    def _bounds(self) -> Iterator[str]:
        """Where curves begin and end, where that is not where times do."""
        few = "noise drowns them" if self.private else f"fewer than {self.least} are at risk"
        named = {name: curve for name, curve in self.curves.items() if curve.known}
        if self.private and self.stays.late:
            yield (
                "rows that leave in the bin of time that they enter in count nowhere; --grid makes "
                "bins narrower"
            )
        if any(curve.begin > curve.start for curve in named.values()):
            begins = ", ".join(f"{name}: {curve.begin:.5g}" for name, curve in named.items())
            yield (
                f"figures and curves are of rows that lived to {self.stays.time} {begins}: before, "
                f"{few}" + ("" if len(named) < 2 else "; --from TIME gives all groups one begin")
                if self.begin is None
                else f"figures and curves are of rows that lived to {self.stays.time} {begins}"
            )
        if few_of := [name for name in self.curves if name not in named]:
            yield (
                f"no curve, no median and no mean, for never after the first time are {self.least} "
                f"rows at risk together: {', '.join(few_of)}"
            )
        cut = {name: c for name, c in named.items() if c.is_cut and math.inf in c.quantile()}
        if cut:
            told = ", ".join(f"{name}: {curve.end:.5g}" for name, curve in cut.items())
            yield (
                f"curves end while rows are left, where {few}: {told}; a median or an end of its "
                "interval that lies behind is told as > that time"
            )
        ended = {name: c for name, c in named.items() if math.isnan(c.restricted_mean(self.tau)[0])}
        if ended:
            told = ", ".join(f"{name}: {curve.end:.5g}" for name, curve in ended.items())
            yield (
                f"no mean to {self.tau:g} of curves that end before it, where {few}: {told}; "
                "--tau TIME gives an earlier end"
            )

    def _thinned(self) -> str:
        """Of the picture: how far steps lie above the curve of all times."""
        off = 0.0
        for curve in self.curves.values():
            told = np.ones(len(curve.times))
            for k in self.kept(curve):
                told[k:] = curve.survival[k]
            inside = slice(curve.first, curve.reached)
            off = max(off, float((told - curve.survival)[inside].max(initial=0.0)))
        return (
            f"steps of curves are drawn for every {self.least} rows or more that left, at the last "
            f"of them: between steps a curve lies up to {math.ceil(1000 * off) / 1000:.3f} above "
            "that of all times; medians and means are of all times"
        )

    def picture(self) -> str:
        """Curves with bands, numbers at risk below."""
        drawn = {}
        for name, curve in self.curves.items():
            kept, (low, high) = self.kept(curve), curve.band()
            if not curve.known:
                continue
            times = np.concatenate([[curve.begin], curve.times[kept], [curve.end]])
            told = [np.concatenate([[1.0], e[kept]]) for e in (curve.survival, low, high)]
            drawn[name] = times, *(np.append(each, each[-1]) for each in told)
        unknown = NONE if self.private else "*"
        counts = {
            name: [_count(count, unknown) for count in self.counts(curve)[2].values()]
            for name, curve in self.curves.items()
        }
        return survival_picture(drawn, self.ends, counts, self.stays.time, self.by)

    def pictures(self) -> dict[str, tuple[str, str]]:
        """Curves."""
        words = "Survival with 95 % bands, and numbers at risk"
        if not self.private:
            words += f": {self._thinned()}"
        return {"survival": (self.picture(), words)}


def _count(value: float | None, unknown: str = "*") -> str:
    return unknown if value is None else f"{value:,.0f}"


def _time(row: Mapping[str, Any], key: str) -> str:
    """Of a group; where rows are left at the end of its curve, nobody knows what is behind."""
    value = row[key]
    if math.isnan(value):
        return NONE
    beyond = f"> {row['until']:.5g}" if row["cut"] else "not reached"
    return beyond if math.isinf(value) else f"{value:.5g}"


def noise_of(adds: Lifetimes, std: float) -> Noise:
    """std: of each opened cell, times N."""
    return Noise(std=std, bins=adds.bins, series=adds.shape[-1], factored=adds.factored)


def check_noise(noise: Noise, stays: Stays, begin: float, rows: int) -> None:
    """Before a sum is opened; rows: N, which no number at risk is above.

    Raises:
        PrivacyError: noise drowns every group, whatever the rows are.
    """
    spread = noise.spread[after(stays.times, begin)]
    # Without late entries a curve is known from its first time on, or nowhere.
    std = float((spread if stays.late else spread[:1]).min(initial=math.inf))
    if math.isfinite(std) and rows < RELIABLE * std:
        raise PrivacyError(
            f"noise of standard deviation {std:.3g} on a number at risk drowns every group of "
            f"{rows:,} rows: a curve takes {math.ceil(RELIABLE * std):,} rows or more, or a larger "
            "epsilon, or a coarser grid; nothing was spent"
        )


def survival_by(sums: SumSeries, asked: CurveOptions) -> Survival:
    """By any sums over rows of `views.by_range`.

    asked: tau None: the last time that every group's curve reaches.

    Raises:
        ParameterError: `asked.by` is no column with groups, there is no event, or noise drowns
            all. PrivacyError: see `check_noise`. CohortError: the sum is refused, or aborted.
    """
    private = sums.wanted.epsilon is not None
    by, tau, least = asked.by, asked.tau, asked.least
    stays = Stays.of(sums.schema, asked.bins, private=private)
    if tau is not None and not stays.low < tau <= stays.high:
        raise ParameterError(f"tau={tau:g} is outside ({stays.low:g}, {stays.high:g}]")
    begin = -math.inf if asked.begin is None else asked.begin
    if asked.begin is not None and not stays.low <= begin < (tau or stays.high):
        raise ParameterError(f"from={begin:g} is outside [{stays.low:g}, {tau or stays.high:g})")
    groups = stays.groups("by", by)
    adds = Lifetimes(
        bins=stays.grid.bins,
        recorded=stays.grid.recorded,
        late=stays.late,
        groups=groups.places,
        factored=private,
    )
    task = LifetimesObjective(adds=adds, exact=not private)
    if private and not sums.begun:
        check_noise(noise_of(adds, noise_std(sums.plan(task)) * sums.rows), stays, begin, sums.rows)
    opened = sums.open(task)
    cells = (opened.values * sums.rows).reshape(adds.shape)
    noise = noise_of(adds, opened.noise_std * sums.rows)
    named = dict(zip(groups.several, cells[groups.order], strict=True))
    # What sums know of rows stands in no document that has an epsilon.
    notes = [] if private else list(sums.notes)
    if private:
        named.pop(OTHER, None)
        found = {
            name: noise.curve(own, stays.times, stays.low, sums.rows, begin)
            for name, own in named.items()
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
            name: Curve.of(np.rint(own), stays.times, stays.low, least=least, begin=begin)
            for name, own in named.items()
            if np.rint(own).any()
        }
    if not private and (gone := sums.rows - float(np.rint(cells[..., :2].sum()))):
        notes.append(stays.nowhere(gone, least))
    few = [name for name, curve in curves.items() if not curve.known]
    if few and len(curves) > 1:  # the test would tell of rows whose curves are not shown
        notes.append(f"no log-rank test, for fewer than {least} rows: {', '.join(few)}")
    compares = noise.log_rank if private else log_rank
    test = compares([*curves.values()]) if len(curves) > 1 and not few else None
    if test is None and len(curves) > 1 and not few:
        notes.append("no log-rank test: at no time with events are all groups' curves known")
    if tau is None:
        tau = min((curve.end for curve in curves.values() if curve.known), default=stays.high)
    return Survival(
        stays=stays,
        curves=curves,
        by=by,
        test=test,
        tau=tau,
        begin=asked.begin,
        num_rows=sums.rows,
        opened=opened,
        noise=noise,
        least=least,
        notes=tuple(notes),
    )
