"""Several fits of rows whose missing cells are drawn by their owners, pooled by Rubin's rules.

Of m fits with coefficients Q_i and variances U_i (Rubin, 1987; Barnard and Rubin, 1999)

    Q = mean Q_i,  U = mean U_i,  B = sum (Q_i - Q)^2 / (m - 1),  T = U + (1 + 1/m) B,
    r = (1 + 1/m) B / U,  lambda = r / (1 + r),
    1 / df = lambda^2 / (m - 1) + (f + 3) / (f (f + 1) (1 - lambda)),
    fraction of missing information  (r + 2 / (df + 3)) / (1 + r),

f: degrees of freedom that complete rows (of a Cox model: events) leave.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ciphercohort.after.sums import SumSeries
from ciphercohort.results.coefficients import coefficient, with_ends
from ciphercohort.results.exact_sums import exact_fields
from ciphercohort.results.result import Array
from ciphercohort.study.asked import CoxOptions, GlmOptions
from ciphercohort.study.cox import Cox
from ciphercohort.study.glm import Glm
from ciphercohort.study.pictures import forest_picture
from ciphercohort.study.propensity import Weighting
from ciphercohort.study.tables import PaperTable, Tabled, number, p_value
from parties.reader.imputation import MOST_DRAWS
from protocols.errors import ParameterError

Asked = TypeVar("Asked", GlmOptions, CoxOptions)
Found = TypeVar("Found")
COMMON = (
    *("model", "family", "link", "target", "ties", "rows", "sites", "events", "level"),
    *("weight", "offset", "site_intercepts", "strata", "grid", "exact_sums"),
    *("propensity", "estimand", "trim"),
)
"""Of what fits rest on: the same of all."""
OTHERS = {"robust_se": "robust", "cluster_se": "by site"}


@dataclass(frozen=True, kw_only=True)
class Pooled(Tabled):
    """fits: of one draw each, of one model; notes: about all."""

    title = "Pooled regression"

    fits: tuple[Glm | Cox, ...]
    notes: tuple[str, ...] = ()

    def _pooled(self, error: str) -> tuple[Array, Array, Array, Array]:
        """Q, the root of T, degrees of freedom, fraction of missing information."""
        m = len(self.fits)
        each = np.array([fit.coef for fit in self.fits])
        within = np.mean([fit.errors[error] ** 2 for fit in self.fits], axis=0)
        between = (1 + 1 / m) * each.var(axis=0, ddof=1)
        share = between / (within + between)
        f = max(float(np.mean([fit.complete_freedom for fit in self.fits])), 1.0)
        freedom = 1 / (share**2 / (m - 1) + (f + 3) / (f * (f + 1) * (1 - share)))
        missing = share + (1 - share) * 2 / (freedom + 3)
        return each.mean(axis=0), np.sqrt(within + between), freedom, missing

    def rows(self) -> list[dict[str, Any]]:
        """As of a fit; with freedom and fraction_missing."""
        coef, se, freedom, missing = self._pooled("se")
        first = self.fits[0]
        ratio = first.ratio.replace(" ", "_")
        others = {name: self._pooled(name)[1] for name in OTHERS if name in first.errors}
        return [
            coefficient(name, float(coef[j]), float(se[j]), float(freedom[j]), ratio)
            | {key: float(each[j]) for key, each in others.items()}
            | {"freedom": float(freedom[j]), "fraction_missing": float(missing[j])}
            for j, name in enumerate(first.names)
        ]

    def about(self) -> dict[str, Any]:
        """What the table rests on."""
        about = self.fits[0].about()
        return {
            **{key: about[key] for key in COMMON if key in about},
            "imputations": len(self.fits),
            "rounds": sum(len(fit.plans) for fit in self.fits),
            "notes": list(self._said),
        }

    @property
    def _said(self) -> tuple[str, ...]:
        """Each once."""
        return (*dict.fromkeys(note for fit in self.fits for note in fit.notes), *self.notes)

    @property
    def _weightings(self) -> tuple[Weighting, ...]:
        """Of each draw, where rows weigh by propensities."""
        each = (getattr(fit, "weighting", None) for fit in self.fits)
        return tuple(filter(None, each))

    @property
    def _others(self) -> dict[str, str]:
        """Heads of other errors than that of intervals, by name."""
        known = {name: words for name, words in OTHERS.items() if name in self.fits[0].errors}
        if self._weightings:
            del known["robust_se"]
        return known

    def released(self) -> dict[str, Any]:
        """For JSON; fits: the rows of each."""
        plans = [plan for fit in self.fits for plan in fit.plans]
        return {
            **exact_fields(True),
            "inference": self.rows(),
            "inference_about": self.about(),
            "fits": [fit.rows() for fit in self.fits],
            **({"propensities": told} if (told := self._told()) else {}),
            "session": plans[0].session,
            "plans": [plan.digest() for plan in plans],
        }

    def _told(self) -> list[dict[str, Any]]:
        return [each.released() for each in self._weightings]

    def tables(self) -> tuple[PaperTable, ...]:
        """One row a coefficient; with propensities, those of the first draw."""
        ratio, first = self.fits[0].ratio, self.fits[0].tables()[0]
        key, lines = ratio.replace(" ", "_"), list[tuple[str, ...]]()
        for row in self.rows():
            lines.append(
                (
                    row["name"],
                    *(number(row[name], 4) for name in ("coef", "se", *self._others)),
                    p_value(row["p"]),
                    f"[{number(row['low'], 4)}, {number(row['high'], 4)}]",
                    *([with_ends(row, key)] if key else []),
                    f"{100 * row['fraction_missing']:.0f} %",
                )
            )
        error = ("coef", first.heads[2] if self._weightings else "std err", *self._others.values())
        heads = ("", *error, "p", "95 % CI", *[ratio] * bool(ratio), "missing")
        title = f"{first.title}, {len(self.fits)} imputations"
        notes = (
            "missing cells were drawn by their owners from the schema's models; fits are pooled by "
            "Rubin's rules; missing is the fraction of missing information",
            *self._said,
            *(note for each in self._weightings[:1] for note in each.basis()),
            *dict.fromkeys(note for each in self._weightings for note in each.warnings()),
        )
        table = PaperTable(
            name=first.name, title=title, heads=heads, rows=tuple(lines), notes=notes
        )
        more = (own for each in self._weightings[:1] for own in each.tables())
        return table, *(replace(own, title=f"{own.title}, first draw") for own in more)

    def pictures(self) -> dict[str, tuple[str, str]]:
        """Ratios, and how alike arms of the first draw are."""
        ratio = self.fits[0].ratio
        key = ratio.replace(" ", "_")
        own = {
            row["name"]: (row[key], row[f"{key}_low"], row[f"{key}_high"])
            for row in self.rows()
            if key and row["name"] != "intercept" and math.isfinite(row["coef"])
        }
        words = f"{ratio.capitalize()}s with 95 % intervals, pooled"
        pictures = {"ratios": (forest_picture(own, ratio), words)} if own else {}
        for each in self._weightings[:1]:
            pictures |= each.pictures()
        return pictures


def imputed_by(
    find: Callable[[SumSeries, Asked], Found], sums: SumSeries, asked: Asked
) -> Found | Pooled:
    """What `find` finds, or its fits of so many draws, pooled.

    Raises:
        ParameterError: an option does not fit. SchemaError: there are no models of missing cells.
        CohortError: as of `find`.
    """
    if asked.imputations is None or sums.wanted.epsilon is not None:
        return find(sums, asked)
    if getattr(asked, "curves", None) is not None:
        raise ParameterError("curves are of one fit, and imputations make several: leave one out")
    if not 2 <= asked.imputations <= MOST_DRAWS:
        raise ParameterError(f"imputations={asked.imputations} is not from 2 to {MOST_DRAWS}")
    fits = list[Any]()
    for k in range(asked.imputations):
        sums.on_progress("draws", k, asked.imputations)
        fits.append(find(sums.drawn(k + 1), asked))
    return Pooled(fits=tuple(fits))
