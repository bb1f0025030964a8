"""A regression of hazards with epsilon: piecewise constant ones, in place of Cox's risk sets.

Cox's likelihood is no sum over people; that of hazards which are constant on each of a few
intervals is, and equals it as these grow short. Seven secure sums: counts by time, which say where
intervals end, products of covariates, which whiten them, and score and information at five points.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from ciphercohort.after.inference import naming
from ciphercohort.after.sums import INSIST, SumSeries, noise_std, or_epsilon
from ciphercohort.job.options import option_name
from ciphercohort.results.coefficients import LEVEL, coefficient
from ciphercohort.results.result import Array
from ciphercohort.study.asked import CoxOptions
from ciphercohort.study.cox import Covariates, Cox, cox_by
from ciphercohort.study.pictures import forest_picture
from ciphercohort.study.stays import Stays
from ciphercohort.study.tables import (
    RATIO_HEADS,
    PaperTable,
    Tabled,
    number,
    ratio_cells,
)
from parties.kernel.study.lifetimes import Lifetimes
from parties.kernel.study.person_time import PersonTime
from parties.reader.views import row_norm
from protocols.errors import ParameterError, PrivacyError
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.privacy.certificates.sums import MECHANISM_SHARE
from protocols.privacy.loss import epsilon_for_mu
from protocols.privacy.loss.accounting import compose
from protocols.statistics.inference.budget import COUNTED as COUNTING
from protocols.statistics.inference.budget import left_mu
from protocols.statistics.inference.estimate import (
    CLEAR,
    Noisy,
    noise_norm,
    private_steps,
    safe_step,
)
from protocols.statistics.inference.objective import ProductsObjective
from protocols.statistics.inference.reach import USUAL, needs_words
from protocols.statistics.study.objectives import LifetimesObjective, PersonTimeObjective
from protocols.statistics.study.weighted import weighted
from protocols.statistics.study.whitened import counts, least_events, read, whitened
from protocols.sums.plan import GradientPlan

log = logging.getLogger(__name__)
INTERVALS, BINS = 6, 20
"""At most, of times; bins of the counts that they are cut by."""
COUNTED, MULTIPLIED, FIRST = 0.06, 0.12, 0.04
"""Of the budget (mu^2): for counts by time, for products of covariates, and for a first step, which
starts where no covariate has an effect."""
CURE = (
    "narrow the ranges of numbers to where nearly all rows are, merge or leave out rare categories "
    "and missing indicators, or take more rows or a larger epsilon"
)
EVENTS, WEIGHT = (3, 1), 0.7
"""Of ten persons, many and few; what a person counts, as it is usually; of the forecast."""
OF_WHAT = (
    "hazard ratios are means over the time until a person's own hazard, summed, reaches 1, by when "
    "63 of 100 like it have had the event; later events do not count, and persons of high hazard "
    "are followed for less time. They are a Cox model's where ratios are the same at all times and "
    "scores are linear; else they may lie further from it than intervals say"
)
"""Below each table: what is estimated."""
LONG = 3.0
"""Times that the result is as far from the first point that counts as noise explains: told of."""


@dataclass(frozen=True, kw_only=True)
class PrivateCox(Tabled):
    """A table of hazard ratios in the data's own units, whose intervals hold the noise.

    coef, se: shape (covariates,); added: what privacy adds to the variance; ends: of intervals
    [data units], shape (J,); hazards: per unit of time at the covariates' means, shape (J,);
    epsilon: of all sums together, as composed; mechanisms: of each, in order.
    """

    title = "Regression of hazards"

    stays: Stays
    names: tuple[str, ...]
    coef: Array
    se: Array
    added: Array
    ends: Array
    hazards: Array
    num_rows: int
    epsilon: float
    budget: tuple[float, float]
    plans: tuple[GradientPlan, ...] = field(repr=False)
    mechanisms: tuple[Mechanism, ...] = field(repr=False)
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """name, coef, se, z, p, low, high, hazard_ratio with its ends, and privacy's share."""
        return [
            {
                **coefficient(name, float(coef), float(se), ratio="hazard_ratio"),
                "privacy_share": float(added / se**2),
            }
            for name, coef, se, added in zip(
                self.names, self.coef, self.se, self.added, strict=True
            )
        ]

    def about(self) -> dict[str, Any]:
        """What the table rests on."""
        return {
            "model": "piecewise-exponential",
            "rows": self.num_rows,
            "level": LEVEL,
            "rounds": len(self.plans),
            "epsilon": self.epsilon,
            "epsilon_in_all": self.budget[0],
            "delta_in_all": self.budget[1],
            "exact_sums": False,
            "notes": [OF_WHAT, *self.notes],
        }

    def released(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "inference": self.rows(),
            "inference_about": self.about(),
            "baseline": {"until": self.ends.tolist(), "hazard": self.hazards.tolist()},
            "privacy": {"epsilon": self.budget[0], "delta": self.budget[1]},
            "session": self.plans[0].session,
            "plans": [plan.digest() for plan in self.plans],
        }

    def tables(self) -> tuple[PaperTable, ...]:
        """One row a covariate."""
        lines = [
            (
                *ratio_cells(row),
                f"{100 * row['privacy_share']:.0f} %",
            )
            for row in self.rows()
        ]
        heads = (*RATIO_HEADS, "of it noise")
        title = f"Regression of hazards of {self.num_rows:,} rows, epsilon {self.budget[0]:g}"
        return (
            PaperTable(
                name="cox", title=title, heads=heads, rows=tuple(lines), notes=tuple(self._notes())
            ),
        )

    def _notes(self) -> Iterator[str]:
        ends = ", ".join(number(end) for end in self.ends)
        yield f"hazards are constant on intervals of {self.stays.time} that end at {ends}"
        yield (
            f"epsilon {self.epsilon:.4g} of {self.budget[0]:g} at delta {self.budget[1]:g} is "
            "spent by all sums together; intervals and p hold the noise"
        )
        yield OF_WHAT
        yield from self.notes

    def pictures(self) -> dict[str, tuple[str, str]]:
        """Hazard ratios."""
        own = {
            row["name"]: tuple(row[f"hazard_ratio{end}"] for end in ("", "_low", "_high"))
            for row in self.rows()
        }
        words = "Hazard ratios with 95 % intervals, which hold the noise"
        return {"hazard-ratios": (forest_picture(own), words)}


def hazards_by(sums: SumSeries, asked: CoxOptions) -> Cox | PrivateCox:
    """See `cox_by`; with epsilon `private_cox_by`, which has no options of exact sums.

    Raises:
        ParameterError, CohortError: as of both.
    """
    if sums.wanted.epsilon is None:
        return cox_by(sums, asked)
    for each in fields(asked):
        value = getattr(asked, each.name)
        if value != each.default:
            raise ParameterError(
                f"{option_name(each)}={value!r} belongs to exact sums, and there is an epsilon: "
                "leave it out"
            )
    return private_cox_by(sums)


def private_cox_by(sums: SumSeries) -> PrivateCox:
    """By any sums over rows of `views.by_range`, within their promise.

    Raises:
        PrivacyError: noise drowns the events, or the information: no interval can be given.
        CohortError: a sum is refused, or aborted.
    """
    stays, wanted = Stays.of(sums.schema, BINS, private=True), sums.wanted
    covariates = Covariates.of(stays.schema, taken=sums.columns)
    assert wanted.epsilon is not None  # noqa: S101 (who asks for this has one)
    mu, epsilon = left_mu(wanted.epsilon, wanted.delta, ()), wanted.epsilon
    check_reach(sums, stays, covariates, mu)
    table = Lifetimes(bins=BINS, recorded=False, late=stays.late)
    opened = sums.open(LifetimesObjective(adds=table, exact=False), mu * math.sqrt(COUNTED))
    cells = (opened.values * sums.rows).reshape(table.shape)[0]
    found = counts(cells, opened.noise_std * sums.rows)
    task = ProductsObjective(
        row_norm=row_norm(stays.schema), outputs=2 + stays.late, epsilon_in_all=epsilon
    )
    opened = sums.open(task, mu * math.sqrt(MULTIPLIED))
    features = sums.figures.num_features
    products = task.read(opened.values, sums.rows)[:features, :features]
    tau = opened.noise_std * sums.rows
    start = whitened(found, products, tau, sums.rows, INTERVALS, covariates.places, stays.late)

    def ask(point: Array, cost: float) -> Noisy:
        adds = replace(start, theta=tuple(point.tolist()))
        opened = sums.open(PersonTimeObjective(adds=adds, epsilon_in_all=epsilon), cost)
        sigma = opened.noise_std * sums.rows
        return Noisy(point, *read(adds, opened.values * sums.rows), sigma, sigma / adds.kappa)

    first = ask(np.zeros(len(start.theta)), mu * math.sqrt(FIRST))
    point = safe_step(first.theta, first.score, first.information, first.tau)
    left = mu * math.sqrt(1 - COUNTED - MULTIPLIED - FIRST)
    intervals, d = len(start.base), len(covariates.names)
    columns = block_diag(np.eye(intervals), np.array(start.matrix).reshape(d, d))
    try:
        with naming(("the baseline",) * intervals + covariates.names, columns):
            estimate, length = private_steps(point, left, ask)
    except PrivacyError as error:
        raise PrivacyError(f"{error}: {CURE}") from None
    estimate = weighted(estimate, start, found, covariates.flags)
    notes = [*covariates.reference]
    if length > LONG:
        notes.append(
            f"the result is {length:.1f} times as far from the first point that counts as noise "
            "explains: intervals may be too narrow"
        )
    return _in_units(sums, stays, covariates, start, estimate, tuple(notes))


def check_reach(sums: SumSeries, stays: Stays, covariates: Covariates, mu: float) -> None:
    """Before a sum is opened: say what spread a covariate needs for an interval.

    Noise of the information has the norm t; whitened by products with noise of norm s, a covariate
    of variance v has about the information N min(1, N v / s); numbers are on [-1, 1].

    Raises:
        PrivacyError: no covariate has an interval, whatever its rows; or see `_check_events`.
    """

    def least(events: float, weight: float) -> float:
        """events, weight: of a person, on average."""
        d, rows = len(covariates.names), sums.rows
        own = events * rows / BINS
        made = np.full((BINS, 2 + stays.late), [own, rows / BINS - own, 0.0][: 2 + stays.late])
        made[:, :2] = made[:, 1::-1]
        square = np.eye(sums.figures.num_features) * rows * USUAL
        start = whitened(
            counts(made, 0.0), square, 0.0, rows, INTERVALS, covariates.places, stays.late
        )
        last = PersonTimeObjective(adds=start, epsilon_in_all=sums.wanted.epsilon or 0.0)
        share = (1 - COUNTED - MULTIPLIED - FIRST) * sum(COUNTING)
        tau = noise_std(sums.plan(last, mu * math.sqrt(share))) * rows / start.kappa
        task = ProductsObjective(
            row_norm=row_norm(stays.schema),
            outputs=2 + stays.late,
            epsilon_in_all=sums.wanted.epsilon,
        )
        root = noise_std(sums.plan(task, mu * math.sqrt(MULTIPLIED))) * rows
        needed = CLEAR * noise_norm(tau, len(start.theta)) / (weight * rows)
        return needed * noise_norm(root, d) / rows if needed < 1 else math.inf

    if math.isinf(least(1.0, 1.0)):
        raise PrivacyError(
            f"{sums.rows:,} rows of {len(covariates.names)} covariates leave no interval at "
            f"epsilon={sums.wanted.epsilon:g}, whatever they are: take more rows, or a larger one"
        )
    counted = LifetimesObjective(
        adds=Lifetimes(bins=BINS, recorded=False, late=stays.late), exact=False
    )
    std = noise_std(sums.plan(counted, mu * math.sqrt(COUNTED))) * sums.rows
    events_needed = math.ceil(least_events(std, BINS))
    told = [f"it takes {events_needed:,} events or more"]
    if not sums.begun:
        _check_events(events_needed, mu, sums)
    for events in EVENTS:
        needed = least(events / 10, WEIGHT)
        each = needs_words(needed) if needed <= USUAL else "probably no interval is left"
        told.append(f"where {events} of 10 have an event, {each}")
    log.warning(
        "hazard ratios, of the time until a person's own hazard reaches 1, of %s rows and %d "
        "covariates with epsilon=%g: %s. Else there is no table, and the budget is spent. Columns "
        "that depend on each other, strong effects, and luck of the noise need up to twice such a "
        "spread; %s",
        *(f"{sums.rows:,}", len(covariates.names), sums.wanted.epsilon, "; ".join(told), CURE),
    )


def _check_events(needed: int, mu: float, sums: SumSeries) -> None:
    """needed: events, at a budget of mu; so many rows should have one as half of all.

    Raises:
        PrivacyError: they will probably not, and nobody insists, or there are not so many rows.
    """
    rows, wanted = sums.rows, sums.wanted
    if needed <= rows and (2 * needed <= rows or sums.however_noisy):
        return
    epsilon = epsilon_for_mu(mu=mu * 2 * needed / rows, delta=MECHANISM_SHARE * wanted.delta)
    insist = "" if needed > rows else f", or {INSIST}"
    raise PrivacyError(
        f"hazard ratios of {rows:,} rows with epsilon={wanted.epsilon:g}: they take {needed:,} "
        f"events, more than {'all' if needed > rows else 'half of all'} rows; nothing was spent: "
        f"take {2 * needed:,} rows or more{or_epsilon(epsilon)}{insist}"
    )


def _in_units(
    sums: SumSeries,
    stays: Stays,
    covariates: Covariates,
    start: PersonTime,
    estimate: Any,
    notes: tuple[str, ...],
) -> PrivateCox:
    """Out of whitened coordinates, of range and of time."""
    intervals, d, width = len(start.base), len(start.columns), stays.high - stays.low
    matrix = np.array(start.matrix).reshape(d, d) / covariates.scale
    budget = float(sums.wanted.epsilon or 0.0), sums.wanted.delta

    def back(of: Array) -> Array:
        return np.asarray(np.diag(matrix.T @ of[intervals:, intervals:] @ matrix))

    log_hazards = np.array(start.base) + np.array(start.scale) * estimate.theta[:intervals]
    events = [event for each in sums.mechanisms for event in each.events]
    return PrivateCox(
        stays=stays,
        names=covariates.names,
        coef=np.asarray(matrix.T @ estimate.theta[intervals:]),
        se=np.sqrt(back(estimate.covariance)),
        added=back(estimate.noise),
        ends=np.asarray(stays.low + width * np.array([*start.cuts, 1.0])),
        hazards=np.asarray(np.exp(log_hazards) / width),
        num_rows=sums.rows,
        epsilon=compose(events, delta=MECHANISM_SHARE * budget[1]),
        budget=budget,
        plans=tuple(each.plan for each in sums.done),
        mechanisms=sums.mechanisms,
        notes=notes,
    )
