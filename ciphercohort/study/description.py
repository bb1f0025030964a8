"""A descriptive table, "Table 1": of all rows, by group and by site, from one secure sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ciphercohort.after.sums import Opened, SumSeries
from ciphercohort.results.exact_sums import exact_fields
from ciphercohort.results.result import Array
from ciphercohort.study.asked import DescribeOptions
from ciphercohort.study.pictures import BAR, panels
from ciphercohort.study.tables import INDENT, PaperTable, Tabled, number
from parties.kernel.study.described import Described
from parties.reader.arms import Groups, groups_of, placed
from parties.reader.schema import Column, NumericColumn, Schema
from protocols.errors import ParameterError
from protocols.exchange.documents import shown as quoted
from protocols.exchange.documents import suggest
from protocols.statistics.evaluation.figures import LEAST
from protocols.statistics.study.description import (
    CLEAR,
    DRIFTS,
    ROOM,
    are_whole,
    category_difference,
    fitting_bins,
    hidden,
    numeric_difference,
    numeric_figures,
    shown_counts,
    whole_numbers,
)
from protocols.statistics.study.objectives import DescriptionObjective
from protocols.words import NONE as NO_FIGURE

BINS, PRIVATE_BINS = 200, 20
"""Exact counts cost bytes; each noisy one adds to the error of quantiles."""
NUMERIC_FIGURES = ("mean", "sd", "q1", "median", "q3")
"""Of a numeric column, in one group."""
DRAWS = 200
"""Of noise, for the errors of figures."""
ALL, NONE, ELSEWHERE = "all", "(none)", "(other sites)"
NO_GROUPS = Groups.whole(NONE)
Figures = dict[str, dict[str, Any]]
Grouped = tuple[Figures, dict[str, float]]
"""By group, and standardised differences."""


@dataclass(frozen=True)
class Variable:
    """A column of the table; categories: empty of a numeric one; places: see `Described`.

    A binary column has both ends of its range as categories, which are its bins.
    """

    name: str
    categories: tuple[str, ...]
    low: float
    high: float
    places: tuple[int, int, int, int]

    @property
    def cells(self) -> int:
        """Values of a group."""
        bins = self.places[3]
        return bins + 3 if bins else len(self.categories) + 1

    @property
    def moments(self) -> int:
        """Values of a group that are no counts, its last."""
        return 2 * bool(self.places[3])

    @property
    def is_coded(self) -> bool:
        """Whether its two categories are codes, of which a table names the second alone."""
        return len(self.categories) == 2 and (bool(self.moments) or self.categories == ("0", "1"))


def variables(schema: Schema, bins: int | None) -> list[Variable]:
    """Of a schema as `views.cells_schema` gives it: its columns, then its outcome.

    bins: None: about BINS, see `fitting_bins`.
    """
    found = list[Variable]()
    for place, column in placed(schema, outcome=True):
        missing = place + len(column.features) - 1 if column.missing == "indicator" else -1
        found.append(_variable(column, place, missing, bins))
    return found


def _variable(column: Column, place: int, missing: int, bins: int | None) -> Variable:
    if isinstance(column, NumericColumn):
        ends = (f"{column.low:g}", f"{column.high:g}") if column.binary else ()
        spec = (
            *(place, 1, missing),
            len(ends) or bins or fitting_bins(column.low, column.high, BINS),
        )
        return Variable(column.name, ends, column.low, column.high, spec)
    names = column.categories
    return Variable(column.name, names, 0.0, 1.0, (place, len(names), missing, 0))


def task_of(
    schema: Schema,
    by: str | None,
    *,
    private: bool,
    sites: tuple[str, ...],
    bins: int | None,
    taken: Collection[str] = (),
) -> tuple[DescriptionObjective, list[Variable], Groups]:
    """What is summed, the columns, and the groups.

    taken: columns, empty: all.

    Raises:
        ParameterError: `by` is no column with groups.
    """
    columns, groups = variables(schema, bins or (PRIVATE_BINS if private else None)), NO_GROUPS
    if by is not None:
        groups = groups_of(placed(schema, outcome=True), "by", by, rest=NONE)
        columns = [each for each in columns if each.name != by]
    columns = [each for each in columns if not taken or each.name in taken]
    if not columns:
        raise ParameterError(f"by={by!r}: no other column is left to describe")
    specs = tuple(c.places for c in columns)
    adds = Described(columns=specs, groups=groups.places, sites=sites)
    return DescriptionObjective(adds=adds, exact=not private), columns, groups


@dataclass(frozen=True, kw_only=True)
class Description(Tabled):
    """A table of columns; tables: figures by column of the table (all, groups; all, sites).

    least: exact counts below it are left out; noise: of differences, its standard deviation.
    """

    title = "Description"

    num_rows: int
    by: str | None
    groups: dict[str, dict[str, Any]]
    sites: dict[str, dict[str, Any]]
    differences: dict[str, float]
    columns: tuple[Variable, ...] = field(repr=False)
    opened: Opened = field(repr=False)
    noise: dict[str, float] = field(default_factory=dict)
    least: int = LEAST
    notes: tuple[str, ...] = ()

    @property
    def private(self) -> bool:
        """Whether there is noise."""
        return self.opened.plan.privacy is not None

    @property
    def noise_std(self) -> float:
        """Of a count; 0: sums are exact."""
        return self.opened.noise_std * self.num_rows

    def released(self) -> dict[str, Any]:
        """For JSON."""
        plan, promise = self.opened.plan, self.opened.plan.privacy
        return {
            **exact_fields(plan.opens_exact_sums),
            "rows": self.num_rows,
            "by": self.by,
            "groups": self.groups,
            "sites": self.sites,
            "standardised_differences": self.differences,
            **({"standardised_differences_noise": self.noise} if self.private else {}),
            "suppressed": {"below": self.least} if not self.private else None,
            "noise_std": self.noise_std,
            "privacy": {"epsilon": promise.epsilon, "delta": promise.delta} if promise else None,
            "session": plan.session,
            "plan": plan.digest(),
            "notes": list(self.notes),
        }

    def tables(self) -> tuple[PaperTable, ...]:
        """By group, and by site where sites have consented."""
        title = f"{self.num_rows:,} rows of {len(self.opened.plan.members)} sites"
        if promise := self.opened.plan.privacy:
            title += f", epsilon {promise.epsilon:g}"
        group = f", by {self.by}" if self.by else ""
        found = [self._table("table-1", title + group, self.groups, self.differences)]
        if self.sites:
            found.append(self._table("table-1-sites", f"{title}, by site", self.sites, {}))
        return tuple(found)

    def _table(
        self, name: str, title: str, by: dict[str, dict[str, Any]], smd: dict[str, float]
    ) -> PaperTable:
        rows = [("n", *(_count(each["n"]) for each in by.values()), *[""] * bool(smd))]
        for variable in self.columns:
            cells = [each["columns"][variable.name] for each in by.values()]
            difference = [number(smd[variable.name])] if smd else []
            noisy = smd.get(variable.name, math.nan) + self.noise.get(variable.name, math.nan)
            if difference and math.isfinite(noisy):
                difference = [f"{difference[0]} ± {number(self.noise[variable.name])}"]
            rows += _lines(variable, cells, difference, 2 * self.noise_std)
        heads = ("", *by, *["std. difference"] * bool(smd))
        return PaperTable(
            name=name, title=title, heads=heads, rows=tuple(rows), notes=tuple(self._notes())
        )

    def _notes(self) -> Iterator[str]:
        yield from self.notes
        steps = {
            v.name: next(iter(self.groups.values()))["columns"][v.name]["step"]
            for v in self.columns
            if not v.categories
        }
        if told := ", ".join(f"{name} {step:.3g}" for name, step in steps.items() if step):
            beside = ", beside their noise" * self.private
            yield f"quantiles are within one step of a public grid{beside}: {told}"
        if told := ", ".join(name for name, step in steps.items() if not step):
            yield (
                "quantiles of whole numbers are the least that so many rows do not exceed, without "
                f"a mean of two: {told}"
            )
        if self.private:
            yield (
                f"privacy noise of standard deviation {self.noise_std:.3g} is on every count"
                f"{self._summed()}; ± is a standard deviation of what is above it, or before it, "
                "by this noise: of quantiles how far it moves them"
            )
            if none := [name for name, group in self._tabled() if _has_none(group)]:
                yield (
                    f"{NO_FIGURE}, and counts without shares: rows that are not {ROOM} times their "
                    f"noise; no quantiles of rows that are not {DRIFTS} times that of a column's "
                    f"counts together: {', '.join(none)}"
                )
            if any(math.isnan(c["sd"]) for c in self._numbers()):
                yield (
                    f"no standard deviation where noise drowns it: its square is less than {CLEAR} "
                    "times its noise, by the counts of the grid"
                )
        else:
            yield (
                f"*: counts of 1 or more below {self.least}, and others that would tell these by "
                "subtraction, are left out; means and quartiles of these rows can still tell them"
            )

    def _numbers(self) -> Iterator[dict[str, Any]]:
        """Figures of numeric columns, of all groups and sites."""
        for _, group in self._tabled():
            yield from (own for own in group["columns"].values() if "sd" in own)

    def _tabled(self) -> list[tuple[str, dict[str, Any]]]:
        """All groups and sites."""
        return [*self.groups.items(), *self.sites.items()]

    def _summed(self) -> str:
        """Of counts that are sums of others."""
        told, blocks = list[str](), self.opened.plan.task.adds.blocks  # type: ignore[attr-defined]
        if (several := len(self.groups) - 1) > 1:
            told.append(f"{math.sqrt(several) * self.noise_std:.3g} on those of all groups")
        if self.sites and blocks > 1:
            told.append(f"{math.sqrt(blocks) * self.noise_std:.3g} on those of a site")
        if ELSEWHERE in self.sites:
            std = math.sqrt(blocks * len(self.sites) - blocks) * self.noise_std
            told.append(f"{std:.3g} on those of other sites")
        return f" ({', '.join(told)})" if told else ""

    def pictures(self) -> dict[str, tuple[str, str]]:
        """Medians with quartiles, and shares."""
        drawn = {k: v for k, v in self.groups.items() if self.by is None or k != ALL}
        svg = panels([_drawing(v, drawn) for v in self.columns], self.by, [*drawn])
        words = "Medians (marks) and quartiles (bars), and shares of categories"
        return {"table-1": (svg, words + (f", by {self.by}" if self.by else ""))}


def _lines(
    variable: Variable, cells: list[dict[str, Any]], difference: list[str], drowned: float
) -> Iterator[tuple[str, ...]]:
    """drowned: missing cells up to it are noise alone."""
    blank = [""] * len(difference)
    if variable.is_coded:
        head = f"{variable.name} = {variable.categories[1]}, n (%)"
        yield (head, *(_share(each, 1) for each in cells), *difference)
    elif variable.categories:
        yield (f"{variable.name}, n (%)", *[""] * len(cells), *difference)
        for k, name in enumerate(variable.categories):
            yield (f"{INDENT}{name}", *(_share(each, k) for each in cells), *blank)
    else:
        digits = 0 if variable.high - variable.low >= 1000 else 1
        digits = digits if variable.high - variable.low >= 10 else 2
        yield (
            f"{variable.name}, mean (SD)",
            *(f"{number(c['mean'], digits)} ({number(c['sd'], digits)})" for c in cells),
            *difference,
        )
        if noisy := "mean_noise" in cells[0]:
            told = (
                f"± {number(c['mean_noise'], digits)} ({number(c['sd_noise'], digits)})"
                for c in cells
            )
            yield (f"{INDENT}noise", *told, *blank)
        yield (f"{INDENT}median [Q1, Q3]", *(_quartiles(c, "", digits) for c in cells), *blank)
        if noisy:
            told = (f"± {_quartiles(c, '_noise', digits)}" for c in cells)
            yield (f"{INDENT}noise", *told, *blank)
    if any(each["missing"] is None or each["missing"] > drowned for each in cells):
        yield (f"{INDENT}missing", *(_count(each["missing"]) for each in cells), *blank)


def _has_none(group: dict[str, Any]) -> bool:
    """Whether noise has left a column of it without a figure."""
    columns = group["columns"].values()
    return any(own["n"] is None if "counts" in own else math.isnan(own["q3"]) for own in columns)


def _quartiles(cells: dict[str, Any], key: str, digits: int) -> str:
    median, *ends = (number(cells[name + key], digits) for name in ("median", "q1", "q3"))
    return f"{median} [{', '.join(ends)}]"


def _count(value: float | None) -> str:
    return "*" if value is None else f"{value:,.0f}"


def _share(cells: dict[str, Any], k: int) -> str:
    value, share = cells["counts"][k], _percent(cells, k)
    if value is None or cells["n"] is None:
        return _count(value)
    return NO_FIGURE if math.isnan(share) else f"{value:,.0f} ({share:.1f})"


def _percent(cells: dict[str, Any], k: int) -> float:
    """A category's share; NaN of a count that is not shown, and where noise leaves no rows."""
    value, n = cells["counts"][k], cells["n"]
    return math.nan if value is None or not n else 100 * min(value / n, 1.0)


# -- from the sum ---------------------------------------------------------------------------------


def describe_by(sums: SumSeries, asked: DescribeOptions) -> Description:
    """By any sums over rows of `views.cells_schema`.

    Raises:
        ParameterError: `asked.by` is no column with groups, or a site no party. CohortError:
            the sum is refused, or aborted.
    """
    private = sums.wanted.epsilon is not None
    by, sites, least = asked.by, asked.names, asked.least
    strangers = [name for name in sites if name not in sums.sizes]
    if strangers:
        raise ParameterError(
            f"sites={quoted(strangers[0])} is none of the parties "
            f"{', '.join(map(quoted, sums.sizes))}{suggest(strangers[0], [*sums.sizes])}"
        )
    task, columns, grouped = task_of(
        sums.schema, by, private=private, sites=sites, bins=asked.bins, taken=sums.columns
    )
    opened = sums.open(task)
    shape = 1 + len(sites), task.adds.blocks, task.adds.cells
    tables: Array = (opened.values * sums.rows).reshape(shape)
    if not private:
        counts = np.concatenate([[True], *(_counts(variable) for variable in columns)])
        tables[..., counts] = np.rint(tables[..., counts])
    else:
        # Where the schema refuses missing values, their cell has noise alone.
        noisy = np.concatenate([[True], *(_may_have(variable) for variable in columns)])
        tables *= noisy
    names, order, std = grouped.several, grouped.order, opened.noise_std * sums.rows
    given: dict[str, Any] = {"total": sums.rows, "private": private, "least": least}

    def of_groups(tables: Array, std: float) -> Grouped:
        own = tables[0][order]
        if grouped.rest_is_arm:  # none has none
            own = np.vstack([own, np.zeros_like(own[:1])])
            return _grouped(columns, own, (*names, NONE), std=std, **given)
        return _grouped(columns, own, names, std=std, **given)

    def of_sites(tables: Array, std: float) -> Grouped:
        whole = tables.sum(axis=1)
        own = [*whole[1:], whole[0] - whole[1:].sum(axis=0)]
        several = (*sites, *(ELSEWHERE,) * (len(sites) < len(sums.sizes)))
        summed = [*[1] * len(sites), *[shape[0]] * (len(several) - len(sites)), 1]
        stds = std * np.sqrt(shape[1] * np.array(summed))
        own = own[: len(several)]
        return _grouped(columns, np.array(own), several, whole=(whole[0], stds), **given)

    found, differences = of_groups(tables, std)
    by_site = of_sites(tables, std)[0] if sites else {}
    noise = dict[str, float]()
    if private:
        noise = _noise(columns, tables, of_groups, found, std * noisy)
        told = {name: math.isfinite(noise[name]) for name in differences}
        differences = {n: own if told[n] else math.nan for n, own in differences.items()}
        _ = by_site and _noise(columns, tables, of_sites, by_site, std * noisy)
    return Description(
        num_rows=sums.rows,
        by=by,
        groups=found,
        sites=by_site,
        differences=differences,
        columns=tuple(columns),
        opened=opened,
        noise=noise,
        least=least,
        # What sums know of rows stands in no document that has an epsilon.
        notes=() if opened.plan.privacy else tuple(sums.notes),
    )


def _noise(
    columns: list[Variable],
    tables: Array,
    make: Callable[[Array, float], Grouped],
    found: Figures,
    stds: Array,
) -> dict[str, float]:
    """Noise of differences by column, and of standard deviations, which is added to `found`.

    Of so many draws of the noise, on top of what was released: it takes no row. make: figures of
    tables, and differences; stds: of the noise of each cell of a group. What is not told has no
    noise, and that of other figures is theirs by a formula.
    """
    rng, names = np.random.default_rng(0), [v.name for v in columns if not v.categories]
    deviations, differences = list[list[float]](), list[list[float]]()
    for _ in range(DRAWS):
        again, apart = make(tables + stds * rng.standard_normal(tables.shape), 0.0)
        deviations.append([again[g]["columns"][n]["sd"] for g in again for n in names])
        differences.append([*apart.values()])
    spread = iter(_spread(np.array(deviations)).tolist())
    for group in found.values():
        for own in (group["columns"][name] for name in names):
            told = own | {"sd_noise": next(spread)}
            for key in NUMERIC_FIGURES:
                of = told.get(f"{key}_noise", math.nan)
                own[f"{key}_noise"] = math.nan if math.isnan(own[key]) else of
    return dict(zip(apart, _spread(np.array(differences)).tolist(), strict=True))


def _spread(draws: Array) -> Array:
    """Standard deviations; NaN of what most draws have no figure of, shape (figures,)."""
    draws = np.where(np.isfinite(draws), draws, np.nan)
    known = np.isfinite(draws).sum(axis=0) > len(draws) / 2
    spread = np.full(draws.shape[1], np.nan)
    spread[known] = np.nanstd(draws[:, known], axis=0)
    return spread


def _counts(variable: Variable) -> NDArray[np.bool_]:
    """Which of a column's values are counts."""
    return np.arange(variable.cells) < variable.cells - variable.moments


def _may_have(variable: Variable) -> NDArray[np.bool_]:
    """Which of a column's values can be another than 0."""
    missing = -1 if variable.categories and not variable.moments else variable.places[3]
    told = np.ones(variable.cells, dtype=bool)
    told[missing] = variable.places[2] >= 0
    return told


def _grouped(
    columns: list[Variable],
    table: Array,
    groups: tuple[str, ...],
    *,
    total: int,
    private: bool,
    least: int,
    std: float = 0.0,
    whole: tuple[Array, Array] | None = None,
) -> Grouped:
    """Figures of all rows and by group, and the groups' standardised differences.

    table: shape (groups or 1, cells), the last group of rows of none of the others, which may have
    no rows; total: N, public; std: of the noise of a cell; whole: cells of all rows, whose groups
    are all told, and noise of the groups and of all; None: their sum, and theirs.
    """
    several = len(groups) > 1
    if several and whole is None and (private or np.rint(table[-1, 0]) <= 0):
        groups, table = groups[:-1], table[:-1]
    sizes = table[:, 0]
    names = (*groups, ALL) if several else (ALL,)
    ends = np.cumsum([1, *(v.cells for v in columns)])
    ones = np.ones(len(groups))
    every, noise = whole or (table.sum(axis=0), np.sqrt([*ones, len(groups)]) * std)
    rows = np.vstack([table, every]) if several else table.copy()
    rows[-1, 0] = total
    of_sizes = hidden(sizes[None], least)[0] & (not private)
    found: dict[str, dict[str, Any]] = {
        name: {"n": shown_counts(rows[k, :1], of_sizes[k : k + 1], private)[0], "columns": {}}
        for k, name in enumerate(names)
    }
    differences = {}
    for variable, start, end in zip(columns, ends, ends[1:], strict=False):
        # A binary column's counts say what its moments do.
        end -= variable.moments if variable.categories else 0
        part = table[:, start:end]
        if variable.categories:
            counts = part.T
            differences[variable.name] = category_difference(
                [row[:-1] for row in part], exact=not private
            )
        else:
            counts = np.stack([sizes - part[:, -3], part[:, -3]])
            differences[variable.name] = numeric_difference(
                [
                    numeric_figures(row, n, variable.low, variable.high, own_noise)
                    for row, n, own_noise in zip(part, sizes, noise, strict=False)
                ]
            )
        mask = hidden(counts, least) & (not private)
        if of_sizes.any() or (variable.categories and mask.any()):
            differences[variable.name] = math.nan  # it would tell of what is not shown
        for k, name in enumerate(names):
            cover = mask[:, k] | of_sizes[k]
            own = _figures(
                variable,
                rows[k, start:end],
                float(rows[k, 0]),
                cover,
                least * (not private),
                (float(noise[k]), float(noise[k]) * (k < len(names) - 1)),  # N is public
                None if private else _whole(variable, rows[-1, start:end]),
            )
            if of_sizes[k] and not variable.categories:
                own |= dict.fromkeys(NUMERIC_FIGURES, math.nan)
            found[name]["columns"][variable.name] = own
    ordered = {name: found[name] for name in ((ALL, *groups) if several else (ALL,))}
    return ordered, differences if several else {}


def _figures(
    variable: Variable,
    row: Array,
    rows: float,
    cover: NDArray[np.bool_],
    least: int,
    noise: tuple[float, float],
    numbers: Array | None,
) -> dict[str, Any]:
    """Of one column and group.

    rows: of the group; cover: counts that are not shown; least: 0 with noise; noise: of a cell, and
    of `rows`; numbers: see `numeric_figures`.
    """
    private = not least
    if variable.categories:
        *counts, missing = shown_counts(row, cover, private)
        n = None if missing is None else max(rows - float(row[-1]), 0.0)
        if noise[0] and n is not None and n <= ROOM * noise[0]:
            n = None  # shares of it would be anything
        return {"n": n, "missing": missing, "counts": counts, "categories": variable.categories}
    of_n = math.hypot(noise[1], noise[0] * (variable.places[2] >= 0))
    figures: dict[str, Any] = numeric_figures(
        row, rows, variable.low, variable.high, noise[0], numbers, of_n
    )
    if not private and figures["n"] < least:
        figures |= dict.fromkeys(NUMERIC_FIGURES, math.nan)
    counts = shown_counts(np.array([figures["n"], figures["missing"]]), cover, private)
    return figures | dict(zip(("n", "missing"), counts, strict=True))


def _whole(variable: Variable, cells: Array) -> Array | None:
    """Whole numbers by bin, of a column that has no others; cells: of all rows."""
    if variable.categories:
        return None
    numbers = whole_numbers(variable.low, variable.high, variable.places[3])
    return numbers if are_whole(cells, numbers, variable.low, variable.high) else None


def _drawing(variable: Variable, groups: dict[str, dict[str, Any]]) -> Any:
    """Draws one panel."""

    def draw(axes: Axes, colors: list[str]) -> None:
        counted = f" = {variable.categories[1]}" if variable.is_coded else ""
        axes.set_title(variable.name + counted, fontsize=10.5)
        for k, group in enumerate(groups.values()):
            own = group["columns"][variable.name]
            if variable.categories:
                first = int(variable.is_coded)
                counts, names = own["counts"][first:], variable.categories[first:]
                share = [_percent(own, first + j) for j in range(len(counts))]
                places = np.arange(len(share)) + 0.8 * (k - (len(groups) - 1) / 2) / len(groups)
                axes.barh(places, np.nan_to_num(share), height=0.7 / len(groups), color=colors[k])
                is_hidden = None in (own["missing"], *counts)
                mark = " *" if is_hidden else f" {NO_FIGURE}"
                for place in places[np.isnan(share)]:  # as in the table
                    axes.text(0, place, mark, va="center", color=colors[k])
                labels = () if counted else names
                axes.set_yticks(range(len(labels)), labels)
                axes.set_ylim(-0.6, len(share) - 0.4)
                axes.set_xlim(left=0)
                axes.set_xlabel("%")
            else:
                axes.plot([own["q1"], own["q3"]], [k, k], color=colors[k], **BAR)
                axes.plot([own["median"]], [k], "o", color=colors[k])
                axes.set_yticks([])
                axes.set_ylim(-0.6, len(groups) - 0.4)

    return draw
