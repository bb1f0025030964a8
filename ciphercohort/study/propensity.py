"""Rows that weigh by the inverse of a treatment's probability, which their owners compute at home.

A logistic model of the treatment is fitted first; the outcome's rows then weigh w(x, t), see
`parties.kernel.study.glm`. Two more sums tell how alike the arms are, before and after. At mu = -1
of a linear model of t each has s = w (1 + t), and with t among its columns

    information  sum w z z^T,   robust  sum w^2 (1 + 3 t) z z^T,   z = (x, t, 1),

which hold numbers, means and second moments by arm, and sums of w and w^2. A standardised
difference is that of two means over the root of the mean variance of both arms **before**, so that
weights move the numerator alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ciphercohort.results.result import Array
from ciphercohort.study.asked import LEAST, GlmOptions
from ciphercohort.study.cox import Covariates
from ciphercohort.study.pictures import balance_picture
from ciphercohort.study.tables import PaperTable, number
from parties.kernel.study.glm import ESTIMANDS, LEAST_TRIM, TARGETS
from parties.reader.arms import arm_of, arms_of, placed
from parties.reader.schema import CategoricalColumn, NumericColumn, Schema
from protocols.errors import ParameterError
from protocols.exchange.documents import shown, suggest
from protocols.statistics.study.glm import GlmSums

if TYPE_CHECKING:
    from ciphercohort.study.glm import Glm

ALIKE = 0.1
"""Of standardised differences: below it arms count as alike."""
WORDS = {
    "ate": "the mean effect in all rows",
    "att": "the mean effect in rows with the treatment",
    "overlap": "the mean effect in rows whose chances of either arm are near even",
}
SITES = (
    "the treatment's model has no term for the site: where sites treat differently and have other "
    "outcomes, --site-intercepts adjusts the outcome's model for it"
)
ERRORS = {
    "ate": "in large samples, and where the treatment's model is right, that makes them a little "
    "too wide; with some tens of effective rows they are too narrow"
}


def is_feature(schema: Schema, name: str) -> bool:
    """Whether a name could be that of a category, or is of a column of two numbers."""
    return any(
        name.startswith(f"{column.name}=") or (name == column.name and bool(arms_of(column)))
        for column in schema.columns
    )


def feature_of(
    schema: Schema, what: str, name: str
) -> tuple[int, NumericColumn | CategoricalColumn]:
    """Place and column of a feature that is 0 or 1: a category, or the upper of two numbers.

    Raises:
        ParameterError: there is no such, or cells of its column may be missing.
    """
    place, column, k = arm_of(placed(schema), what, name)
    if column.missing != "refuse":
        raise ParameterError(
            f"{what}={shown(name)}: cells of {shown(column.name)} may be missing, and "
            "would count as another: leave these rows out, or impute them"
        )
    if isinstance(column, CategoricalColumn):
        return place + k, column
    if not k:
        upper = shown(f"{column.name}={arms_of(column)[1]}")
        raise ParameterError(
            f"{what}={shown(name)} is the lower of two numbers, and sums are of the upper: name "
            f"{upper}, or make the two categories in the schema"
        )
    return place, column


@dataclass(frozen=True, kw_only=True)
class Treatment:
    """What propensities are of.

    name: of the feature at `place`, of `column`; numeric: whether that is a number, on [-1, 1];
    model: covariates of its model.
    """

    name: str
    place: int
    column: str
    numeric: bool
    estimand: str
    trim: float
    model: Covariates

    @classmethod
    def of(cls, schema: Schema, asked: GlmOptions, outcome: str | None) -> Treatment | None:
        """None: none is asked for; outcome: the column that the outcome is of, if one is.

        Raises:
            ParameterError: an option does not fit.
        """
        name = asked.propensity
        if name is None:
            for each in ("estimand", "trim", "propensity_columns"):
                if (value := getattr(asked, each)) not in (None, ()):
                    raise ParameterError(f"{each}={shown(value)} goes with propensity alone")
            return None
        asked = asked.settled((), ())
        estimand, trim = asked.estimand or "", asked.trim or 0.0
        if estimand not in ESTIMANDS:
            raise ParameterError(f"estimand={shown(estimand)} is not one of {', '.join(ESTIMANDS)}")
        if not LEAST_TRIM <= trim < 0.5:
            raise ParameterError(f"trim={trim:g} is not from {LEAST_TRIM:g} to below 0.5")
        if name in schema.label.names:
            raise ParameterError(
                f"propensity={shown(name)} is a target of the schema, and no feature of it"
            )
        place, found = feature_of(schema, "propensity", name)
        column, several = found.name, len(arms_of(found))
        if column == outcome:
            raise ParameterError(f"propensity={shown(name)}: its column is the outcome")
        if several > 2:
            raise ParameterError(
                f"propensity={shown(name)}: {shown(column)} has {several} "
                "categories, and arms are two: make a column of the two to compare, and leave "
                "other rows out"
            )
        others = [each.name for each in schema.columns if each.name not in (column, outcome)]
        taken = asked.propensity_columns or tuple(others)
        if strange := [each for each in taken if each not in others]:
            raise ParameterError(
                f"propensity_columns={shown(strange[0])} is none of the other columns: "
                f"{', '.join(map(shown, others))}{suggest(strange[0], others)}"
            )
        if not taken:
            raise ParameterError("propensity: no column is left for its model")
        model = Covariates.of(schema, taken=taken)
        return cls(
            name=name,
            place=place,
            column=column,
            numeric=isinstance(found, NumericColumn),
            estimand=estimand,
            trim=trim,
            model=model,
        )

    @property
    def target(self) -> tuple[int, float, float]:
        """Of `Generalised`."""
        return TARGETS + self.place, 0.0, 1.0

    @property
    def balance(self) -> dict[str, Any]:
        """Fields of a sum that tells how alike the arms are."""
        d = len(self.model.places) + 1
        return {
            "family": "gaussian",
            "link": "identity",
            "theta": (*[0.0] * d, -1.0),
            "columns": (*self.model.places, self.place),
            "row_norm": math.sqrt(self.model.columns + 2),
            "target": self.target,
        }

    def weights(self, scores: Array) -> dict[str, Any]:
        """Fields of sums whose rows weigh; scores: theta of the treatment's model."""
        return {
            "estimand": self.estimand,
            "treatment": (self.place,),
            "scored": self.model.places,
            "scores": tuple(scores.tolist()),
            "trim": self.trim,
        }


@dataclass(frozen=True, kw_only=True)
class Arms:
    """Of the treatment, then of the others: rows of the arm weigh.

    size: sum w; square: sum w^2, shape (2,); means, seconds: of covariates and squares of them, the
    squares as if w were 1 (NaN where it is not), shape (2, d); clipped: rows.
    """

    size: Array
    square: Array
    means: Array
    seconds: Array
    clipped: float

    @classmethod
    def of(cls, sums: GlmSums, numeric: bool) -> Arms:
        """numeric: the treatment is a number, and -1 stands for 0."""
        parts = []
        for square in (sums.information, sums.robust):
            whole, own = square[-1].copy(), square[-2].copy()
            diagonal = np.diag(square).copy()
            parts.append((whole, (own + whole) / 2 if numeric else own, diagonal))
        (whole, own, diagonal), (whole_2, own_2, diagonal_2) = parts
        # Of robust sums rows of the treatment count four times.
        second = (diagonal_2 - diagonal) / 3
        size = np.array([own[-1], whole[-1] - own[-1]])
        totals = np.stack([own, whole - own])[:, :-2]
        seconds = np.stack([second, diagonal - second])[:, :-2]
        safe = np.maximum(size, 1e-300)[:, None]
        return cls(
            size=size,
            square=np.array([own_2[-1] / 4, whole_2[-1] - own_2[-1]]),
            means=totals / safe,
            seconds=seconds / safe,
            clipped=float(np.rint(sums.figures["clipped"])),
        )

    @property
    def effective(self) -> Array:
        """(sum w)^2 / sum w^2."""
        return np.asarray(self.size**2 / np.maximum(self.square, 1e-300))


@dataclass(frozen=True, kw_only=True)
class Weighting:
    """Propensities, and the arms before rows weigh and after; shift: of covariates, in their units.

    model: of the treatment.
    """

    treatment: Treatment
    model: Glm
    before: Arms
    after: Arms
    shift: Array
    num_rows: int

    @property
    def arms(self) -> tuple[str, str]:
        """Their names."""
        return self.treatment.name, "others"

    @property
    def clipped(self) -> float | None:
        """Rows whose probability was held; None: some, but too few to be shown."""
        found = self.after.clipped
        return found if not found or LEAST <= found <= self.num_rows - LEAST else None

    def balance(self) -> list[dict[str, Any]]:
        """name; mean, mean_others, difference; and weighted_ ones: NaN is not shown."""
        own, before = self.treatment.model, self.before
        sizes = np.maximum(before.size, 2.0)[:, None]
        covered = own.few(before.means, before.size, LEAST)
        variance = np.maximum(before.seconds - before.means**2, 0.0)
        flag = np.isin(np.arange(len(own.names)), [j for group in own.flags for j in group])
        variance = np.where(flag, variance, variance * sizes / (sizes - 1))
        spread = np.sqrt(variance.mean(axis=0))
        spread = np.where(covered | (spread <= 0), np.nan, spread)
        rows: list[dict[str, Any]] = [{"name": name} for name in own.names]
        for prefix, arms in (("", before), ("weighted_", self.after)):
            means = np.where(covered, np.nan, self.shift + own.scale * arms.means)
            gaps = (arms.means[0] - arms.means[1]) / spread
            for row, treated, others, gap in zip(rows, *means.tolist(), gaps.tolist(), strict=True):
                row[f"{prefix}mean"], row[f"{prefix}mean_others"] = treated, others
                row[f"{prefix}difference"] = gap
        return rows

    def largest(self, key: str) -> float:
        """Of standardised differences that are shown; NaN: none."""
        known = [abs(row[key]) for row in self.balance() if math.isfinite(row[key])]
        return max(known, default=math.nan)

    def about(self) -> dict[str, Any]:
        """Beside what a table rests on."""
        own = self.treatment
        return {"propensity": own.name, "estimand": own.estimand, "trim": own.trim}

    def released(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self.about(),
            "inference": self.model.rows(),
            "inference_about": self.model.about(),
            "arms": [
                {
                    "arm": name,
                    "rows": float(np.rint(self.before.size[k])),
                    "weights": float(self.after.size[k]),
                    "effective_rows": float(self.after.effective[k]),
                }
                for k, name in enumerate(self.arms)
            ],
            "balance": self.balance(),
            "clipped": self.clipped,
        }

    def basis(self) -> Iterator[str]:
        """What the outcome's table rests on."""
        own = self.treatment
        yield (
            f"rows weigh by their propensity of {own.name} ({own.estimand}: "
            f"{WORDS[own.estimand]}), which each site computes by the model below"
        )
        yield (
            "standard errors, intervals and p are robust ones, which take the weights as known: "
            f"{ERRORS.get(own.estimand, 'that they are estimated may narrow or widen them')}"
        )
        yield SITES

    def notes(self) -> Iterator[str]:
        """Below the outcome's table."""
        yield from self.basis()
        after = self.after
        each = zip(self.arms, after.effective, self.before.size, strict=True)
        told = ", ".join(f"{name} {size:,.1f} of {rows:,.0f}" for name, size, rows in each)
        yield f"effective rows: {told}"
        yield (
            f"largest standardised difference {number(self.largest('difference'), 3)}, weighted "
            f"{number(self.largest('weighted_difference'), 3)}"
        )
        yield from self.warnings()

    def warnings(self) -> Iterator[str]:
        """Of rows whose like has one arm alone."""
        own, after = self.treatment, self.after
        if after.clipped:
            few = self.clipped is None
            count = f"fewer than {LEAST} rows" if few else f"{self.clipped:,.0f} rows"
            yield (
                f"{count} have a propensity beyond {own.trim:g} to {1 - own.trim:g}, and weigh as "
                "at the end: their like has hardly ever the other arm"
            )

    def tables(self) -> Iterator[PaperTable]:
        """Of the model, and of the arms."""
        (table,) = self.model.tables()
        title = f"Propensity of {self.treatment.name}, {self.num_rows:,} rows"
        yield replace(table, name="propensity", title=title)
        treated, others = self.arms
        sizes = zip(self.before.size, self.after.size, self.after.effective, strict=True)
        (n, w, e), (m, v, f) = sizes
        lines = [
            ("rows", f"{n:,.0f}", f"{m:,.0f}", "", "", "", ""),
            ("sum of weights", "", "", "", number(w, 1), number(v, 1), ""),
            ("effective rows", "", "", "", number(e, 1), number(f, 1), ""),
        ]
        for row in self.balance():
            cells = (
                number(row[prefix + key], 3)
                for prefix in ("", "weighted_")
                for key in ("mean", "mean_others", "difference")
            )
            lines.append((row["name"], *cells))
        yield PaperTable(
            name="balance",
            title=f"Means by {treated}, before and after rows weigh ({self.treatment.estimand})",
            heads=(
                *("", treated, others, "std. difference"),
                *(f"{treated}, weighted", f"{others}, weighted", "std. difference, weighted"),
            ),
            rows=tuple(lines),
            notes=(
                "standardised differences are over the root of both arms' mean variance before "
                f"rows weigh; below {ALIKE} arms count as alike",
                f"what would show fewer than {LEAST} rows is left out",
            ),
        )

    def pictures(self) -> dict[str, tuple[str, str]]:
        """Differences before and after."""
        rows = [row for row in self.balance() if math.isfinite(row["difference"])]
        if not rows:
            return {}
        drawn = {row["name"]: (row["difference"], row["weighted_difference"]) for row in rows}
        words = f"Standardised differences by {self.treatment.name}, before and after rows weigh"
        return {"balance": (balance_picture(drawn, ALIKE), words)}


def check_arms(arms: Arms, name: str) -> None:
    """Before their sizes are used.

    Raises:
        ParameterError: one has too few rows.
    """
    if min(arms.size) < LEAST - 0.5:
        raise ParameterError(
            f"propensity={shown(name)}: one arm has fewer than {LEAST} rows, of which no weights "
            "can be made"
        )
