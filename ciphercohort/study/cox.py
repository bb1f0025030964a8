"""A Cox model over the rows of several parties, by a few secure sums.

Newton's method from 0, one sum a step; then one sum of each row's residuals. Numbers of a schema
enter over half their range, and come back in their own units; of a column's categories the first is
the reference, and so are rows of none that is listed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from ciphercohort.after.sums import SumSeries
from ciphercohort.results.coefficients import LEVEL, coefficient, left_out
from ciphercohort.results.exact_sums import exact_fields
from ciphercohort.results.result import Array
from ciphercohort.study.asked import CoxOptions
from ciphercohort.study.pictures import forest_picture, survival_picture
from ciphercohort.study.stays import Stays
from ciphercohort.study.tables import (
    RATIO_HEADS,
    PaperTable,
    Tabled,
    number,
    p_value,
    ratio_cells,
)
from parties.kernel.integers import symmetric
from parties.kernel.study.hazards import CoxRows, RiskSets
from parties.reader.arms import MISSING, groups_of, placed
from parties.reader.schema import CategoricalColumn, NumericColumn, Schema
from protocols.errors import ParameterError
from protocols.exchange.documents import shown
from protocols.statistics.evaluation.figures import LEAST, Told
from protocols.statistics.study.cox import (
    CONVERGED,
    RiskSums,
    concordance,
    independent,
    proportional,
    step,
    unsure,
    written,
)
from protocols.statistics.study.curves import between, run
from protocols.statistics.study.description import hidden
from protocols.statistics.study.objectives import CoxRowsObjective, RiskSetsObjective
from protocols.sums.plan import GradientPlan

MOST_ROUNDS = 30
LONGEST = 100_000
"""Values of a sum: 0.8 MB from each owner, and as much back."""
FEWEST_BINS = 50
MOST_SCORES = 400
"""Bins of scores for the concordance; ties count half."""
LONGEST_LAST = 450_000
"""Values of the one sum that has them, 3.6 MB: with 1,100 bins of time there is room for 204."""
FAR = 1e3
"""Of a coefficient per half a range: no hazard ratio is e^1000."""
SEPARATED = 1e-3
"""Of a column's information at 0: all events that it touches are fitted to the end."""


@dataclass(frozen=True, kw_only=True)
class Covariates:
    """Features of the schema that are fitted.

    names, places; scale: half a number's range, 1 of a category; groups: places among the
    covariates and names of each column's categories; flags: places of those that are 0 or 1, in
    groups of which a row has at most one 1; binary: places of those that are one of two numbers,
    with what a missing cell is taken as, scaled, None: none is missing.
    """

    names: tuple[str, ...]
    places: tuple[int, ...]
    scale: Array
    groups: dict[str, tuple[tuple[int, ...], tuple[str, ...]]]
    columns: int
    flags: tuple[tuple[int, ...], ...]
    binary: dict[int, float | None]

    @property
    def numbers(self) -> frozenset[str]:
        """Columns of two numbers."""
        return frozenset(self.names[j] for j in self.binary)

    @property
    def reference(self) -> tuple[str, ...]:
        """A note: of each column the category that the others are compared with."""
        firsts = [f"{name} {levels[0]}" for name, (_, levels) in self.groups.items()]
        return (f"reference: {', '.join(firsts)}",) * bool(firsts)

    @classmethod
    def of(
        cls,
        schema: Schema,
        strata: str | None = None,
        taken: Collection[str] = (),
        treated: str = "",
    ) -> Covariates:
        """All but the strata, of a schema as `views.by_range` gives it; taken: empty: all.

        treated: a category that others are not compared with, "column=category".
        """
        names, places, scale, groups = list[str](), list[int](), list[float](), {}
        flags, binary = list[tuple[int, ...]](), dict[int, float | None]()
        place = columns = 0
        for column in schema.columns:
            features = [*enumerate(column.features, place)]
            place += len(features)
            if column.name == strata or (taken and column.name not in taken):
                continue
            columns += 1 + (isinstance(column, NumericColumn) and column.missing == "indicator")
            if isinstance(column, CategoricalColumn):
                own = tuple(range(len(names), len(names) + len(features) - 1))
                if features[0][1] == treated:
                    features[:2] = features[1::-1]
                groups[column.name] = own, tuple(n.partition("=")[2] for _, n in features)
                features = features[1:]
            numeric = isinstance(column, NumericColumn)
            if isinstance(column, NumericColumn) and column.binary:
                middle, half = column.affine("range")
                filled = None if column.missing == "refuse" else column.typical
                binary[len(names)] = None if filled is None else (filled - middle) / half
            flags.append(tuple(range(len(names) + numeric, len(names) + len(features))))
            for k, (where, name) in enumerate(features):
                names.append(name)
                places.append(where)
                scale.append((column.high - column.low) / 2 if numeric and not k else 1.0)  # type: ignore[union-attr]
        if not names:
            raise ParameterError("no covariate is left: a model needs one column or more")
        return cls(
            names=tuple(names),
            places=tuple(places),
            scale=np.array(scale),
            groups=groups,
            columns=columns,
            flags=tuple(filter(None, flags)),
            binary=binary,
        )

    def few(self, means: Array, sizes: Array, least: int) -> NDArray[np.bool_]:
        """Those of a column that has a cell of few rows, which means would count, shape (d,).

        means: scaled, by group, shape (groups, d); sizes: rows, shape (groups,), 0: not known.
        """
        found = np.zeros(len(self.names), bool)
        groups = [([*group], means[:, group]) for group in self.flags]
        for j, filled in self.binary.items():
            counted = f"{self.names[j]}=missing" in self.names
            missing = means[:, [j + 1]] if counted else 0.0
            high = (1 + means[:, [j]] - missing * (1 + (filled or 0.0))) / 2
            groups.append(([j], np.hstack([high, missing + 0 * high])))
            # Cells that were filled in, and not counted, keep the others from being counted.
            found[j] = sizes.any() and filled is not None and not counted
        for group, shares in groups:
            counts = (shares * sizes[:, None]).T
            cells = np.rint(np.vstack([counts, sizes - counts.sum(axis=0)]))
            beside = [group[0] - 1] if self.names[group[0]].endswith("=missing") else []
            found[[*group, *beside]] |= hidden(cells, least).any()
        return found


@dataclass(frozen=True, kw_only=True)
class Cox(Tabled):
    """A table of hazard ratios in the data's own units.

    coef, se, robust_se, square, ph_p: shape (covariates,), NaN of those that others determine;
    square, ph_p: of the test of proportional hazards; global_test: of all together; likelihood: at
    0 and at the maximum; concordance, and how far bins of scores may have moved it: NaN with late
    entries; hazard: cumulative at the covariates' means, Breslow's, by stratum that has rows;
    deaths: of these, shape (strata, bins); known: the bins of each, from the first to before
    the last, in which `least` rows are at risk; adjusted: mean survival were the factor each of
    its levels, in the bins that all strata know; few: whose means are not told, see
    `Covariates.few`.
    """

    title = "Cox regression"

    stays: Stays
    names: tuple[str, ...]
    coef: Array
    se: Array
    robust_se: Array
    square: Array
    ph_p: Array
    global_test: tuple[float, float]
    likelihood: tuple[float, float]
    concordance: float
    concordance_within: float
    means: Array
    few: frozenset[str]
    hazard: dict[str, Array]
    deaths: Array
    known: tuple[tuple[int, int], ...]
    factor: str | None
    adjusted: dict[str, Array]
    strata: str | None
    num_rows: int
    plans: tuple[GradientPlan, ...] = field(repr=False)
    least: int = LEAST
    notes: tuple[str, ...] = ()

    @property
    def events(self) -> float:
        """Of all strata."""
        return float(self.deaths.sum())

    @property
    def ratio(self) -> str:
        """What exp(coef) is called."""
        return "hazard ratio"

    @property
    def errors(self) -> dict[str, Array]:
        """By name."""
        return {"se": self.se, "robust_se": self.robust_se}

    @property
    def complete_freedom(self) -> float:
        """Events less coefficients."""
        return self.events - float(np.isfinite(self.coef).sum())

    def rows(self) -> list[dict[str, Any]]:
        """name, coef, se, z, p, low, high, hazard_ratio; robust_se; the test of its hazards."""
        return [
            {
                **coefficient(name, float(self.coef[j]), float(self.se[j]), ratio="hazard_ratio"),
                "robust_se": float(self.robust_se[j]),
                "proportional_chi2": float(self.square[j]),
                "proportional_p": float(self.ph_p[j]),
            }
            for j, name in enumerate(self.names)
        ]

    def about(self) -> dict[str, Any]:
        """What the table rests on."""
        ratio = 2 * (self.likelihood[1] - self.likelihood[0])
        fitted = int(np.isfinite(self.coef).sum())
        return {
            "model": "cox",
            "ties": "efron",
            "rows": self.num_rows,
            "events": Told(self.least, self.num_rows).shown(self.events),
            "level": LEVEL,
            "strata": self.strata,
            "grid": self.stays.words,
            "rounds": len(self.plans),
            "log_likelihood": self.likelihood[1],
            "likelihood_ratio": {
                "chi2": ratio,
                "freedom": fitted,
                "p": float(chi2.sf(ratio, fitted)),
            },
            "concordance": self.concordance,
            "concordance_within": self.concordance_within,
            "proportional": dict(zip(("chi2", "p"), self.global_test, strict=True)),
            "exact_sums": True,
            "notes": list(self.notes),
        }

    @property
    def common(self) -> tuple[int, int]:
        """The bins that all strata know; 0, 0: none."""
        first, reached = max(f for f, _ in self.known), min(r for _, r in self.known)
        return (first, reached) if first < reached else (0, 0)

    def kept(self, deaths: Array, known: tuple[int, int]) -> NDArray[np.intp]:
        """Bins whose step is told: each of `least` events or more since the last."""
        found, waiting = list[int](), 0.0
        for k in range(*known):
            waiting += deaths[k]
            if waiting >= self.least:
                found.append(k)
                waiting = 0.0
        return np.array(found, dtype=np.intp)

    def released(self) -> dict[str, Any]:
        """For JSON."""
        baseline = {}
        for (name, hazard), deaths, known in zip(
            self.hazard.items(), self.deaths, self.known, strict=True
        ):
            kept = self.kept(deaths, known)
            baseline[name] = {
                **self._ends(known),
                "time": self.stays.times[kept].tolist(),
                "cumulative_hazard": hazard[kept].tolist(),
            }
        kept = self.kept(self.deaths.sum(axis=0), self.common)
        return {
            **exact_fields(True),
            "inference": self.rows(),
            "inference_about": self.about(),
            "covariate_means": {
                name: None if name in self.few else mean
                for name, mean in zip(self.names, self.means.tolist(), strict=True)
            },
            "baseline": baseline,
            "adjusted_by": self.factor,
            "adjusted": {
                level: {
                    **self._ends(self.common),
                    "time": self.stays.times[kept].tolist(),
                    "survival": survival[kept].tolist(),
                }
                for level, survival in self.adjusted.items()
            },
            "suppressed": {"below": self.least},
            "session": self.plans[0].session,
            "plans": [plan.digest() for plan in self.plans],
        }

    def _ends(self, known: tuple[int, int]) -> dict[str, float]:
        """Of a curve: of who lived to the first, until the second [data units]."""
        ends = np.concatenate([[self.stays.low], self.stays.times])
        return {"from": float(ends[known[0]]), "until": float(ends[known[1]])}

    def tables(self) -> tuple[PaperTable, ...]:
        """One row a covariate."""
        lines = [
            (
                *ratio_cells(row),
                number(row["robust_se"], 4),
                p_value(row["proportional_p"]),
            )
            for row in self.rows()
        ]
        heads = (*RATIO_HEADS, "robust", "p proportional")
        events = self.about()["events"]
        told = "*" if events is None else f"{events:,.0f}"
        title = f"Cox regression of {self.num_rows:,} rows, {told} events"
        return (
            PaperTable(
                name="cox", title=title, heads=heads, rows=tuple(lines), notes=tuple(self._notes())
            ),
        )

    def _notes(self) -> Iterator[str]:
        about = self.about()
        ratio = about["likelihood_ratio"]
        yield (
            f"likelihood ratio chi-squared {ratio['chi2']:.2f}, {ratio['freedom']} df, "
            f"p {p_value(ratio['p'])}"
        )
        if math.isfinite(self.concordance):
            within = f" ± {self.concordance_within:.3f} at most, for scores are in bins"
            yield f"concordance {self.concordance:.3f}" + within * (self.concordance_within > 5e-4)
        elif self.stays.late:
            yield "no concordance: rows enter late"
        yield f"proportional hazards, all covariates: p {p_value(self.global_test[1])}"
        if self.strata:
            yield f"stratified by {self.strata}"
        yield f"Efron's ties, Breslow's baseline; times: {self.stays.words}"
        yield from self.notes

    def pictures(self) -> dict[str, tuple[str, str]]:
        """Hazard ratios, and adjusted curves."""
        rows = [row for row in self.rows() if math.isfinite(row["coef"])]
        own = {
            row["name"]: tuple(row[f"hazard_ratio{end}"] for end in ("", "_low", "_high"))
            for row in rows
        }
        pictures = {"hazard-ratios": (forest_picture(own), "Hazard ratios with 95 % intervals")}
        if self.adjusted:
            kept = self.kept(self.deaths.sum(axis=0), self.common)
            begin, end = self._ends(self.common).values()
            times = np.concatenate([[begin], self.stays.times[kept], [end]])
            drawn = {}
            for level, survival in self.adjusted.items():
                own_curve = np.concatenate([[1.0], survival[kept]])
                own_curve = np.append(own_curve, own_curve[-1])
                drawn[level] = (times, own_curve, own_curve, own_curve)
            svg = survival_picture(drawn, (begin, end), {}, self.stays.time, self.factor)
            words = f"Mean survival of all rows, were {self.factor} each of its levels"
            pictures["adjusted"] = (svg, words)
        return pictures


# -- the sums -------------------------------------------------------------------------------------


def cox_by(sums: SumSeries, asked: CoxOptions) -> Cox:
    """By any sums over rows of `views.by_range`.

    Raises:
        ParameterError: a column is no such, the sum would be too long, there is no event, or there
            is no maximum. CohortError: a sum is refused, or aborted.
    """
    strata, curves, bins = asked.strata, asked.curves, asked.bins
    stays = Stays.of(sums.schema, bins)
    covariates = Covariates.of(stays.schema, strata, sums.columns)
    groups = stays.groups("strata", strata)
    factor, levels = _factor(stays.schema, covariates, strata, curves)
    stays = _fitting(stays, len(covariates.names), len(groups.several), bins)
    common: dict[str, Any] = {
        "columns": covariates.places,
        "bins": stays.grid.bins,
        "recorded": stays.grid.recorded,
        "row_norm": math.sqrt(covariates.columns),
        "late": stays.late,
        "strata": groups.places,
    }
    plans: list[GradientPlan] = []
    zero = np.zeros(len(covariates.names))

    def ask(theta: Array) -> Array:
        adds = RiskSets(theta=tuple(theta.tolist()), **common)
        opened = sums.open(RiskSetsObjective(adds=adds))
        plans.append(opened.plan)
        return (opened.values * sums.rows).reshape(adds.shape)

    start = current = RiskSums.first(ask(zero))
    if not start.deaths.any():
        raise ParameterError(f"event={stays.event!r}: no row has an event at its upper end")
    kept = independent(start.information)
    names = np.array(covariates.names)
    for _ in range(MOST_ROUNDS):
        gone = kept & (np.diag(current.information) < SEPARATED * np.diag(start.information))
        if gone.any():
            raise ParameterError(
                f"there is no maximum: {', '.join(names[gone])} separates the events; leave it "
                "out, or merge rare categories"
            )
        try:
            theta, decrement = step(current, kept)
        except np.linalg.LinAlgError:
            raise ParameterError("the information is singular: leave out columns") from None
        if decrement <= CONVERGED:
            break
        if (far := np.abs(theta) > FAR).any():
            raise ParameterError(
                f"there is no maximum: events come in the order of {', '.join(names[far])}, whose "
                "hazard ratio grows without end; leave it out"
            )
        current = start.at(theta, ask(theta))
    else:
        raise ParameterError(f"Newton's method finds no maximum in {MOST_ROUNDS} steps")
    block = np.ix_(kept, kept)
    covariance = np.asarray(np.linalg.inv(current.information[block]), np.float64)
    means, spread = _moments(start, stays.late)
    # Means of rows that enter late are of risk sets, and count nobody.
    at_most = 0.0 if stays.late else float(np.rint(start.table[0][..., 0].sum()))
    at_risk = np.rint(start.sets[..., 0])
    own = [k for k in groups.order if at_risk[k].max() > 0]  # strata that have rows
    known = tuple(run(each >= asked.least) for each in at_risk[own])
    inside = np.zeros(at_risk.shape, dtype=bool)
    inside[own] = [between(*each, stays.grid.bins) for each in known]
    shared = np.asarray(inside[own].all(axis=0))
    adds = _residuals(current, common, means, spread, factor, shared)
    opened = sums.open(CoxRowsObjective(adds=adds))
    plans.append(opened.plan)
    outer, cells, adjusted = _parts(adds, opened.values * sums.rows)
    if curves in covariates.numbers:  # on [-1, 1], where the sum's other level is 0
        lower = _at_lower(adds)
        opened = sums.open(CoxRowsObjective(adds=lower))
        plans.append(opened.plan)
        adjusted[0] = _parts(lower, opened.values * sums.rows)[2][0]
    robust = covariance @ outer[block] @ covariance
    survival = np.cumprod(1 - np.append(0.0, _shares(start)[:-1]))  # before each bin
    square, p, whole = proportional(current, kept, survival)
    notes = [*covariates.reference, *sums.notes, *left_out(names[~kept].tolist())]
    scale = covariates.scale
    named = tuple((*groups.names, groups.rest)[k] for k in own)
    notes += _bounds(named, known, asked, stays)
    counted = float(np.rint(cells.sum()))
    if nowhere := sums.rows - counted:
        notes.append(stays.nowhere(nowhere, asked.least))
    if curves and not shared.any():
        notes.append("no adjusted curves: they are of times that all strata know")
    means_score = float(means @ theta)
    return Cox(
        stays=stays,
        names=covariates.names,
        coef=np.where(kept, theta, np.nan) / scale,
        se=_filled(np.sqrt(np.diag(covariance)), kept) / scale,
        robust_se=_filled(np.sqrt(np.diag(robust)), kept) / scale,
        square=square,
        ph_p=p,
        global_test=whole,
        likelihood=(start.log_likelihood, current.log_likelihood),
        concordance=math.nan if stays.late else concordance(cells),
        concordance_within=math.nan if stays.late else unsure(cells),
        means=_in_units(stays, covariates, means),
        few=frozenset(
            names[covariates.few(means[None], np.array([at_most]), asked.least)].tolist()
        ),
        hazard={
            name: hazard * math.exp(means_score)
            for name, hazard in zip(named, current.hazard(inside)[own], strict=True)
        },
        deaths=current.deaths[own],
        known=known,
        factor=curves,
        adjusted=dict(zip(levels, adjusted / counted, strict=True))
        if curves and shared.any()
        else {},
        strata=strata,
        num_rows=sums.rows - int(nowhere if nowhere >= asked.least else 0),
        plans=tuple(plans),
        least=asked.least,
        notes=tuple(notes),
    )


def _bounds(
    named: tuple[str, ...], known: tuple[tuple[int, int], ...], asked: CoxOptions, stays: Stays
) -> Iterator[str]:
    """Where the baseline hazard is not known."""
    few = f"fewer than {asked.least} rows are at risk"
    ends = np.concatenate([[stays.low], stays.times])
    begins = {name: ends[first] for name, (first, end) in zip(named, known, strict=True) if end}
    if any(begin > stays.low for begin in begins.values()):
        told = ", ".join(f"{name} {begin:.5g}" for name, begin in begins.items())
        yield f"baseline and curves are of rows that lived to {stays.time} {told}: before, {few}"
    if without := [name for name in named if name not in begins]:
        yield f"no baseline, for {few}: {', '.join(without)}"


def _factor(
    schema: Schema, covariates: Covariates, strata: str | None, name: str | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Places of a column's features among the covariates, and all its levels.

    Raises:
        ParameterError: it is no covariate with groups, or has one alone.
    """
    if name is None:
        return (), ()
    if name == strata:
        raise ParameterError(f"curves={shown(name)} is the column of strata: leave one out")
    fitted = {*covariates.groups, *covariates.names}
    columns = [(k, each) for k, each in placed(schema) if each.name in fitted]
    levels = groups_of(columns, "curves", name).ordered
    if name in covariates.groups:
        places, levels = covariates.groups[name]
        if places:
            return places, levels
        raise ParameterError(
            f"curves={shown(name)} has one group, {shown(levels[0])}: leave it out"
        )
    if MISSING in levels:
        raise ParameterError(
            f"curves={shown(name)}: cells of it may be missing: leave these rows out, or make its "
            f"two numbers categories, as --reference {name}={levels[1]} does (in a deployment, of "
            "schema init)"
        )
    return (covariates.names.index(name),), levels


def _at_lower(adds: CoxRows) -> CoxRows:
    """The same sum, whose first curve is at -1 of the factor, a number: e^(-theta) the hazard."""
    (j,), made = adds.factor, adds.read
    made["hazard"] = made["hazard"] * math.exp(-adds.theta[j])
    mean, std, _ = adds.scores
    tables = written(*(made[name] for name in ("a", "ta", "hazard", "b", "tb", "c")))
    return replace(adds, tables=tables, scores=(mean, std, 2))


def _fitting(stays: Stays, covariates: int, strata: int, bins: int | None) -> Stays:
    """With as many bins as a sum has room for.

    Raises:
        ParameterError: they are too few, or more were asked for.
    """
    each = 2 * strata * (1 + covariates + covariates * (covariates + 1) // 2)
    room = LONGEST // each
    if stays.grid.bins <= room:
        return stays
    if bins is not None or room < FEWEST_BINS:
        raise ParameterError(
            f"{covariates} covariates in {strata} strata and {stays.grid.bins} bins of time are "
            f"{each * stays.grid.bins:,} values, more than {LONGEST:,}: take "
            + (f"grid {room} or less" if room >= 2 else "fewer columns")
        )
    return Stays.of(stays.schema, room)


def _moments(start: RiskSums, late: bool) -> tuple[Array, Array]:
    """Mean and covariance of the covariates: of all rows or, with late entries, of risk sets."""
    d = len(start.theta)
    if late:
        at_risk = start.sets[start.deaths > 0]
        totals = (at_risk / at_risk[:, :1] * start.deaths[start.deaths > 0][:, None]).sum(axis=0)
        totals = totals / start.deaths.sum()
    else:
        whole = start.table[0].sum(axis=(0, 1))
        totals = whole / whole[0]
    mean = totals[1 : d + 1]
    return mean, symmetric.square(totals[d + 1 :]) - np.outer(mean, mean)


def _residuals(
    current: RiskSums,
    common: dict[str, Any],
    means: Array,
    spread: Array,
    factor: tuple[int, ...],
    shared: NDArray[np.bool_],
) -> CoxRows:
    """The last sum, at the last point that was asked at, whose tables are public.

    shared: bins that adjusted curves are of, shape (bins,).
    """
    theta = current.theta
    std = math.sqrt(max(float(theta @ spread @ theta), 1e-12))
    strata, bins = current.deaths.shape
    levels = len(factor) + 1 if factor else 0
    room = LONGEST_LAST - symmetric.length(len(theta)) - levels * bins
    scores = max(2, min(MOST_SCORES, room // (2 * strata * bins)))
    made = current.tables() | {"hazard": current.hazard(shared)}
    tables = written(*(made[name] for name in ("a", "ta", "hazard", "b", "tb", "c")))
    return CoxRows(
        theta=tuple(theta.tolist()),
        tables=tables,
        scores=(float(means @ theta), std, scores),
        factor=factor,
        **common,
    )


def _parts(adds: CoxRows, values: Array) -> tuple[Array, Array, Array]:
    """sum r r^T, cells of the concordance, and curves."""
    residuals, cells, curves = adds.shapes
    ends = np.cumsum([residuals, math.prod(cells)])
    outer, counts, survival = np.split(values, ends)
    return symmetric.square(outer), np.rint(counts.reshape(cells)), survival.reshape(curves)


def _shares(start: RiskSums) -> Array:
    """Events over rows at risk by bin, of all strata."""
    deaths, at_risk = start.deaths.sum(axis=0), start.sets[..., 0].sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(deaths > 0, np.clip(deaths / at_risk, 0.0, 1.0), 0.0)


def _filled(values: Array, kept: NDArray[np.bool_]) -> Array:
    found = np.full(len(kept), np.nan)
    found[kept] = values
    return found


def _in_units(stays: Stays, covariates: Covariates, means: Array) -> Array:
    """Of scaled covariates, in the data's own units."""
    shift = stays.schema.affine()[0][list(covariates.places)]
    return np.asarray(shift + means * covariates.scale)
