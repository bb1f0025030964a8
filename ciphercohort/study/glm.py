"""Generalised linear models over the rows of several parties, by a few secure sums.

Fisher's scoring from the mean, one sum a step. The schema's targets are numbers: the one that is
modelled and, where there are, a weight and an offset. Numbers of a schema enter over half their
range, and come back in their own units; of a column's categories the first is the reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ciphercohort.after.sums import SumSeries
from ciphercohort.results.coefficients import LEVEL, coefficient, left_out, with_ends
from ciphercohort.results.exact_sums import exact_fields
from ciphercohort.results.result import Array
from ciphercohort.study.asked import GlmOptions
from ciphercohort.study.cox import SEPARATED, Covariates
from ciphercohort.study.pictures import forest_picture
from ciphercohort.study.propensity import (
    Arms,
    Treatment,
    Weighting,
    check_arms,
    feature_of,
    is_feature,
)
from ciphercohort.study.stays import check_exact
from ciphercohort.study.tables import PaperTable, Tabled, number, p_value
from parties.kernel.study.glm import LINKS, TARGETS, Generalised
from parties.reader.cells import numeric_cells
from parties.reader.schema import NumericColumn, Schema, Targets
from protocols.errors import ParameterError, SchemaError
from protocols.exchange.documents import shown, suggest
from protocols.statistics.study.cox import independent
from protocols.statistics.study.glm import CONVERGED, GlmSums, linked
from protocols.statistics.study.objectives import GeneralisedObjective
from protocols.sums.plan import GradientPlan

MOST_ROUNDS = 40
FEWEST_CLUSTERS = 4
"""Of three, one that knows its own score knows those of the other two but for their order."""
SMALLEST, LARGEST = 1e-4, 1e6
"""Of r."""
RATIOS = {"logit": "odds ratio", "cloglog": "hazard ratio", "log": "ratio"}


@dataclass(frozen=True, kw_only=True)
class Glm(Tabled):
    """A table of coefficients in the data's own units.

    names: "intercept" first, if there is one; coef: shape (names,); errors: standard errors by
    name ("se", "robust_se", "cluster_se"), NaN of those that others determine; dispersion: phi;
    alpha: of a negative binomial, 0 of others; freedom: n - k, inf where phi is 1 or rows weigh by
    propensities; weighting: of these, whose "se" is robust.
    """

    title = "Regression"

    family: str
    link: str
    target: str
    names: tuple[str, ...]
    coef: Array
    errors: dict[str, Array]
    dispersion: float
    alpha: float
    deviance: float
    freedom: float
    weight: str | None
    offset: str | None
    site_intercepts: bool
    num_rows: int
    num_sites: int
    plans: tuple[GradientPlan, ...] = field(repr=False)
    notes: tuple[str, ...] = ()
    weighting: Weighting | None = None

    @property
    def ratio(self) -> str:
        """What exp(coef) is called; empty: nothing."""
        return RATIOS.get(self.link, "")

    @property
    def complete_freedom(self) -> float:
        """n - k."""
        sites = self.num_sites if self.site_intercepts else 0
        return self.num_rows - sites - float(np.isfinite(self.coef).sum())

    def rows(self) -> list[dict[str, Any]]:
        """name, coef, se, z, p, low, high; other errors; a ratio with its ends."""
        ratio = self.ratio.replace(" ", "_")
        return [
            coefficient(name, float(self.coef[j]), float(self.errors["se"][j]), self.freedom, ratio)
            | {key: float(each[j]) for key, each in self.errors.items()}
            for j, name in enumerate(self.names)
        ]

    def about(self) -> dict[str, Any]:
        """What the table rests on."""
        return {
            "model": "glm",
            "family": self.family,
            "link": self.link,
            "target": self.target,
            "rows": self.num_rows,
            "sites": self.num_sites,
            "level": LEVEL,
            "weight": self.weight,
            "offset": self.offset,
            "site_intercepts": self.site_intercepts,
            "rounds": len(self.plans),
            "deviance": self.deviance,
            "dispersion": self.dispersion,
            "alpha": self.alpha,
            "freedom": self.freedom,
            "exact_sums": True,
            "notes": list(self.notes),
            **(self.weighting.about() if self.weighting else {}),
        }

    def released(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **exact_fields(True),
            "inference": self.rows(),
            "inference_about": self.about(),
            **({"propensity": self.weighting.released()} if self.weighting else {}),
            "session": self.plans[0].session,
            "plans": [plan.digest() for plan in self.plans],
        }

    def tables(self) -> tuple[PaperTable, ...]:
        """One row a coefficient."""
        others = {"robust_se": "robust", "cluster_se": "by site"}
        if self.weighting:  # its errors are robust
            del others["robust_se"]
        own = [key for key in others if key in self.errors]
        lines = []
        for row in self.rows():
            key = self.ratio.replace(" ", "_")
            ratio = [with_ends(row, key)] if key else []
            ends = f"{number(row['low'], 4)}, {number(row['high'], 4)}"
            errors = [number(row[name], 4) for name in ("se", *own)]
            lines.append(
                (
                    row["name"],
                    number(row["coef"], 4),
                    *errors,
                    p_value(row["p"]),
                    f"[{ends}]",
                    *ratio,
                )
            )
        error = "robust std err" if self.weighting else "std err"
        heads = ("", "coef", error, *(others[key] for key in own), "p", "95 % CI")
        title = f"{self.family} regression of {self.target} ({self.link}), {self.num_rows:,} rows"
        return (
            PaperTable(
                name="glm",
                title=title,
                heads=(*heads, *[self.ratio] * bool(self.ratio)),
                rows=tuple(lines),
                notes=tuple(self._notes()),
            ),
            *(self.weighting.tables() if self.weighting else ()),
        )

    def _notes(self) -> Iterator[str]:
        yield f"deviance {self.deviance:.5g}"
        if math.isfinite(self.freedom):
            yield f"dispersion {self.dispersion:.5g} on {self.freedom:,.0f} df"
        if self.alpha:
            yield f"variance mu + {self.alpha:.4g} mu^2"
        if self.weight:
            yield f"weighted by {self.weight}"
        if self.offset:
            yield f"offset {self.offset}"
        if self.site_intercepts:
            yield "each site has an intercept of its own, which stays there"
        if self.weighting:
            yield from self.weighting.notes()
        yield from self.notes

    def pictures(self) -> dict[str, tuple[str, str]]:
        """Ratios, and how alike arms are."""
        key = self.ratio.replace(" ", "_")
        shown_rows = [
            row for row in self.rows() if math.isfinite(row["coef"]) and row["name"] != "intercept"
        ]
        own = {
            row["name"]: (row[key], row[f"{key}_low"], row[f"{key}_high"])
            for row in shown_rows
            if key
        }
        words = f"{self.ratio.capitalize()}s with 95 % intervals"
        pictures = {"ratios": (forest_picture(own, self.ratio), words)} if own else {}
        if self.weighting:
            pictures |= self.weighting.pictures()
        return pictures


@dataclass(frozen=True, kw_only=True)
class _Model:
    """What is fitted over rows of `views.by_range`; alpha: None: it is estimated.

    fields: of `Generalised`, but for theta and alpha; named: of `Glm`: target, weight and offset.
    """

    covariates: Covariates
    fields: dict[str, Any]
    named: dict[str, Any]
    alpha: float | None = None
    site_intercepts: bool = False
    cluster: bool = False

    def fitted(
        self, sums: SumSeries, plans: list[GradientPlan], mean: float | None = None
    ) -> tuple[Glm, Array]:
        """And theta of scaled covariates; plans: are added to; mean: of the target, if known.

        Raises:
            ParameterError: there is no maximum. CohortError: a sum is refused, or aborted.
        """
        family, link, alpha = self.fields["family"], self.fields["link"], self.alpha
        covariates, site_intercepts, cluster = self.covariates, self.site_intercepts, self.cluster
        target, offset = self.named["target"], self.named.get("offset")
        negative, sites, begun = family == "negative-binomial", len(sums.sizes), len(plans)

        def ask(theta: Array, ratio: float, **more: Any) -> GlmSums:
            adds = Generalised(
                theta=tuple(theta.tolist()),
                alpha=1 / ratio if negative else 0.0,
                columns=covariates.places,
                **self.fields,
                **more,
            )
            return _opened(sums, adds, plans)

        theta, ratio = np.zeros(len(covariates.names) + 1), 1 / (alpha or 1.0)
        if mean is None:
            first = ask(theta, ratio).figures
            mean = first["weighted"] / max(first["weight"], 1e-300)
        middle = self.fields["offset"][1] + self.fields["offset"][2] / 2 if offset else 0.0
        theta[-1] = linked(link, mean) - middle
        if not np.isfinite(theta[-1]):
            raise ParameterError(f"target={target!r}: all rows have the same value, at an end")
        slopes = slice(None, -1) if site_intercepts else slice(None)
        current: GlmSums | None = None
        kept: NDArray[np.bool_] = np.zeros(0, dtype=bool)
        largest: Array = np.zeros(0)
        labels = np.array([*covariates.names, "intercept"])[slopes]
        freedom = 0.0
        for _ in range(MOST_ROUNDS):
            found = ask(theta, ratio, within=site_intercepts, clusters=cluster)
            most = math.inf
            if current is not None and found.adds.alpha == current.adds.alpha:
                most = 2 * current.figures["deviance"] + 1  # of another dispersion: another scale
            if current is not None and found.figures["deviance"] > most:
                theta[slopes] -= (theta - np.array(current.adds.theta))[slopes] / 2  # too far
                continue
            current = found
            if not len(kept):
                kept, largest = independent(current.information), np.diag(current.information)
                freedom = float(sums.rows - kept.sum() - (sites if site_intercepts else 0))
            largest = np.maximum(largest, np.diag(current.information))
            gone = kept & (np.diag(current.information) < SEPARATED * largest)
            if gone.any() and family == "binomial":
                raise ParameterError(
                    f"there is no maximum: {', '.join(labels[gone])} separates the outcomes; leave "
                    "it out, or merge rare categories"
                )
            try:
                step, decrement = current.step(kept)
            except np.linalg.LinAlgError:
                raise ParameterError("the information is singular: leave out columns") from None
            theta[slopes] += step
            done = decrement <= CONVERGED * current.dispersion(freedom)
            if negative and alpha is None:
                move, left = current.ratio_step()
                ratio, done = ratio * math.exp(move), done and left <= CONVERGED
                if not SMALLEST <= ratio <= LARGEST:
                    raise ParameterError(
                        "counts vary no more than a Poisson model's: take family poisson"
                    )
            if done:
                break
        else:
            raise ParameterError(
                f"Fisher's scoring finds no maximum in {MOST_ROUNDS} steps: narrow the ranges of "
                "target and weight in the schema if values are far from their ends, leave out "
                "columns that depend on each other, or try another --link"
            )
        dispersion = current.dispersion(freedom)
        estimated = sums.rows - freedom
        correction = sites / (sites - 1) * (sums.rows - 1) / max(sums.rows - estimated, 1.0)
        covariances = current.covariances(kept, dispersion, correction)
        into = _in_units(sums.schema, covariates, site_intercepts)
        blocks = {name: _spread(each, kept) for name, each in covariances.items()}
        notes = [*covariates.reference, *sums.notes, *left_out(labels[~kept].tolist())]
        # The intercept comes first.
        order = np.arange(len(labels)) if site_intercepts else np.roll(np.arange(len(labels)), 1)
        known = np.where(kept, 0.0, np.nan)
        model = Glm(
            family=family,
            link=link,
            **self.named,
            names=tuple(map(str, labels[order])),
            coef=(into @ theta[slopes] + known)[order],
            errors={
                name: (np.sqrt(np.diag(into @ each @ into.T)) + known)[order]
                for name, each in blocks.items()
            },
            dispersion=dispersion,
            alpha=1 / ratio if negative else 0.0,
            deviance=current.figures["deviance"],
            freedom=freedom if family in ("gaussian", "gamma") else math.inf,
            site_intercepts=site_intercepts,
            num_rows=sums.rows,
            num_sites=sites,
            plans=tuple(plans[begun:]),
            notes=tuple(notes),
        )
        return model, theta


def _opened(sums: SumSeries, adds: Generalised, plans: list[GradientPlan]) -> GlmSums:
    """One sum; its plan is added to the others."""
    opened = sums.open(GeneralisedObjective(adds=adds))
    plans.append(opened.plan)
    return GlmSums.of(adds, opened.values * sums.rows)


def glm_by(sums: SumSeries, asked: GlmOptions) -> Glm:
    """By any sums over rows of `views.by_range`.

    Raises:
        ParameterError: an option does not fit the rows, or there is no maximum. CohortError: a sum
            is refused, or aborted.
    """
    check_exact(sums.wanted.epsilon)
    model, treatment = _asked(sums, asked)
    plans: list[GradientPlan] = []
    if treatment is None:
        return model.fitted(sums, plans)[0]
    weighting, weights = _weighted(sums, treatment, model.fields, plans)
    model = replace(model, fields=model.fields | weights)
    found, _ = model.fitted(sums, plans)
    errors = found.errors | {"se": found.errors["robust_se"]}
    return replace(found, errors=errors, freedom=math.inf, weighting=weighting, plans=tuple(plans))


def _asked(sums: SumSeries, asked: GlmOptions) -> tuple[_Model, Treatment | None]:
    """What options are of.

    Raises:
        ParameterError: one does not fit.
    """
    family, alpha, cluster = asked.family, asked.alpha, asked.cluster
    if family not in LINKS:
        raise ParameterError(f"family={family!r} is not one of {', '.join(LINKS)}")
    link = asked.link or next(iter(LINKS[family]))
    negative, sites = family == "negative-binomial", len(sums.sizes)
    if link not in LINKS[family]:
        raise ParameterError(f"link={link!r} of {family} is not {' or '.join(LINKS[family])}")
    if alpha is not None and not (negative and 0 < alpha <= 1 / SMALLEST):
        raise ParameterError(f"alpha={alpha:g} is of the negative binomial, and positive")
    if cluster and sites < FEWEST_CLUSTERS:
        raise ParameterError(
            f"cluster: of {sites} sites their sums would tell of one; there must be "
            f"{FEWEST_CLUSTERS} or more, and errors by site need many more to be of use"
        )
    names = _targets(sums.schema)
    target, outcome = asked.target or next(iter(names)), None
    if target in names or not ("=" in target or is_feature(sums.schema, target)):
        place = _place(names, "target", target)
    else:
        feature, column = feature_of(sums.schema, "target", target)
        place, outcome = (TARGETS + feature, 0.0, 1.0), column.name
    _check_range(family, target, *place[1:])
    treatment = Treatment.of(sums.schema, asked, outcome)
    if treatment and sums.columns and treatment.column not in sums.columns:
        raise ParameterError(
            f"propensity={shown(treatment.name)}: the outcome's model has no "
            f"{shown(treatment.column)}: include it"
        )
    treated = treatment.name if treatment else ""
    covariates = Covariates.of(sums.schema, outcome, sums.columns, treated)
    fields = {
        "family": family,
        "link": link,
        "row_norm": math.sqrt(covariates.columns + 1),
        "rows": max(sums.sizes.values()),
        "target": place,
        "weight": _place(names, "weight", asked.weight),
        "offset": _place(names, "offset", asked.offset),
    }
    model = _Model(
        covariates=covariates,
        fields=fields,
        named={"target": target, "weight": asked.weight, "offset": asked.offset},
        alpha=alpha,
        site_intercepts=asked.site_intercepts,
        cluster=cluster,
    )
    return model, treatment


def _weighted(
    sums: SumSeries, treatment: Treatment, outcome: dict[str, Any], plans: list[GradientPlan]
) -> tuple[Weighting, dict[str, Any]]:
    """Propensities, and fields of sums whose rows weigh by them; outcome: fields of its model.

    Raises:
        ParameterError: an arm has too few rows, or propensities have no maximum.
    """
    covariates, rows = treatment.model, {"rows": outcome["rows"]}

    def arms(**more: Any) -> Arms:
        return Arms.of(
            _opened(sums, Generalised(**treatment.balance, **rows, **more), plans),
            treatment.numeric,
        )

    before = arms()
    check_arms(before, treatment.name)
    fields = {
        **{"family": "binomial", "link": "logit", "target": treatment.target},
        **{"row_norm": math.sqrt(covariates.columns + 1)},
    }
    named = {"target": treatment.name, "weight": None, "offset": None}
    model = _Model(covariates=covariates, fields=fields | rows, named=named)
    share = float(before.size[0] / before.size.sum())
    try:
        found, theta = model.fitted(sums, plans, share)
    except ParameterError as error:
        raise ParameterError(f"propensity of {treatment.name}: {error}") from None
    weights = treatment.weights(theta)
    weighting = Weighting(
        treatment=treatment,
        model=found,
        before=before,
        after=arms(weight=outcome["weight"], **weights),
        shift=sums.schema.affine()[0][list(covariates.places)],
        num_rows=sums.rows,
    )
    return weighting, weights


def _targets(schema: Schema) -> dict[str, NumericColumn]:
    if not isinstance(schema.label, Targets):
        raise SchemaError(
            "a generalised linear model needs a schema whose targets are numbers, an outcome of 0 "
            "and 1 too: cohort schema init --target OUTCOME,WEIGHT,OFFSET"
        )
    return {column.name: column for column in schema.label.columns}


def _check_range(family: str, target: str, low: float, width: float) -> None:
    """Refuse a target whose range in the schema has values that the family has not."""
    least = {"gaussian": -math.inf, "gamma": 5e-324}.get(family, 0.0)
    if family == "binomial" and (low, width) != (0.0, 1.0):
        needed = "0 or 1"
    elif low < least:
        needed = "above 0" if least > 0 else "0 or more"
    else:
        return
    raise ParameterError(
        f"target={shown(target)} is from {low:g} to {low + width:g} in the schema, and one of "
        f"family {family} is {needed}: give another --family, or another range"
    )


def _place(names: dict[str, NumericColumn], what: str, name: str | None) -> tuple[int | float, ...]:
    if name is None:
        return ()
    if name not in names:
        raise ParameterError(
            f"{what}={shown(name)} is no target of the schema; these are "
            f"{', '.join(map(shown, names))}{suggest(name, list(names))}"
        )
    column, place = names[name], list(names).index(name)
    if place >= TARGETS:
        raise ParameterError(
            f"{what}={shown(name)} is beyond the first {TARGETS} targets of the schema: give a "
            "schema whose targets are the outcome and what else this model takes"
        )
    return place, column.low, column.high - column.low


def _in_units(schema: Schema, covariates: Covariates, site_intercepts: bool) -> Array:
    """What scaled coefficients are multiplied by, the intercept last, shape (d, d)."""
    found = np.diag(1 / covariates.scale)
    if site_intercepts:
        return found
    shift = schema.affine()[0][list(covariates.places)]
    d = len(found)
    whole = np.eye(d + 1)
    whole[:d, :d], whole[d, :d] = found, -shift / covariates.scale
    return whole


def _spread(covariance: Array, kept: NDArray[np.bool_]) -> Array:
    """With zeros for columns that are left out."""
    found = np.zeros((len(kept), len(kept)))
    found[np.ix_(kept, kept)] = covariance
    return found


def with_ranges(
    schema: Schema, rows: pd.DataFrame, family: str, target: str, weight: str | None
) -> Schema:
    """A schema that was inferred from rows, with ranges that the family allows.

    Raises:
        SchemaError: rows are beyond them.
    """
    assert isinstance(schema.label, Targets)  # noqa: S101 (as it was inferred)
    columns = []
    for column in schema.label.columns:
        own, low, high = column.name, column.low, column.high
        values = numeric_cells(rows[own])[0]
        least = float(np.min(values, initial=math.inf))
        if own == weight or (own == target and family != "gaussian"):
            positive = own == target and family == "gamma"
            if least < 0 or (positive and least == 0):
                what = "0 or less" if positive else "negative"
                raise SchemaError(f"{shown(own)} is {what} somewhere: correct these rows")
            low = least if positive else 0.0
        if own == target and family == "binomial":
            if not {*values.tolist()} <= {0.0, 1.0}:
                raise SchemaError(f"{shown(own)} has other values than 0 and 1")
            high = 1.0
        columns.append(NumericColumn(own, low, max(high, low + 1e-6)))
    return replace(schema, label=Targets(columns=tuple(columns)))
