"""How far are survival figures of binned times at four sites from those of exact, pooled ones?

    python -m sims.lab.studies.exact_times [--data lung] [--veterans veteran.csv] [--grid 500]

Cox coefficients beside lifelines' of the same rows, with times and entries rounded up to the same
bins, and with times as they are [its standard errors]; standard errors relatively; log-rank
tests and the largest gap of a curve, same bins; concordance, and lifelines' of exact times.

lung, gbsg2 and rossi are lifelines', which comes with the extra `test`. Veterans are those of R's
survival: Rscript -e 'write.csv(survival::veteran, "veteran.csv", row.names = FALSE)'. They are
taken as they are, stratified by cell type, and with late entries drawn for two of five rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from ciphercohort.cli import options
from ciphercohort.cli.console import refusals
from ciphercohort.results.documents import to_json
from ciphercohort.study.stays import Stays
from protocols.errors import ParameterError
from sims.study import cox, survival

LIFELINES, VETERANS = ("lung", "gbsg2", "rossi"), "veterans"
SITES, SITE, TIME, EVENT, ENTRY = "abcd", "site", "time", "event", "entry"
FIGURES = {
    "coef, same bins": ".0e",
    "se, relative": ".0e",
    "log-rank": ".0e",
    "curves, largest gap": ".0e",
    "coef, exact times": ".3f",
    "concordance": ".4f",
    "lifelines' concordance": ".4f",
}
NOTHING: dict[str, float | None] = {"log-rank": None, "curves, largest gap": None}


@dataclass(frozen=True)
class Case:
    """rows: with a column of four sites; by: groups of curves; strata: a column, if any."""

    name: str
    rows: pd.DataFrame
    by: str | None = None
    strata: str | None = None

    @property
    def asked(self) -> dict[str, Any]:
        """Of both models."""
        entry = {"entry": ENTRY} if ENTRY in self.rows else {}
        return {"data": self.rows, "time": TIME, "event": EVENT, "split": f"by:{SITE}", **entry}


def cases(names: list[str], veterans: Path | None) -> Iterator[Case]:
    """Tables by name; of veterans three."""
    from lifelines import datasets

    for name in names:
        rng = np.random.default_rng(7)
        if name == "lung":
            rows = datasets.load_lung().rename(columns={"status": EVENT})
            rows = rows[[TIME, EVENT, "age", "sex", "ph.ecog", "ph.karno", "wt.loss"]].dropna()
            rows["sex"] = rows.sex.map({1: "male", 2: "female"})
            by = "sex"
        elif name == "gbsg2":
            rows, by = datasets.load_gbsg2().rename(columns={"cens": EVENT}), "horTh"
        elif name == "rossi":
            rows = datasets.load_rossi().rename(columns={"week": TIME, "arrest": EVENT})
            rows, by = rows.assign(fin=rows.fin.map({0: "no", 1: "yes"})), "fin"
        elif veterans is not None:
            rows = pd.read_csv(veterans).rename(columns={"status": EVENT})
            rows, by = rows.assign(trt=rows.trt.map({1: "standard", 2: "test"})), "trt"
        rows[SITE] = rng.choice([*SITES], len(rows))
        yield Case(name, rows, by)
        if name == VETERANS:
            yield Case(f"{name}, strata", rows, strata="celltype")
            enters = np.floor(0.8 * rows[TIME] * rng.random(len(rows)))
            late = np.where(rng.random(len(rows)) < 0.4, enters, 0.0)
            yield Case(f"{name}, late entry", rows.assign(**{ENTRY: late}))


def binned(rows: pd.DataFrame, stays: Stays) -> pd.DataFrame:
    """Times and entries as ends of their bins; of rows that count."""
    ends = np.concatenate([[stays.low], stays.times])
    found = rows[rows[ENTRY] < rows[TIME]].copy() if ENTRY in rows else rows.copy()
    first = 0 if stays.grid.recorded else 1
    found[TIME] = ends[np.maximum(np.searchsorted(ends, found[TIME] - 1e-9), first)]
    if ENTRY in rows:
        found[ENTRY] = ends[np.searchsorted(ends, found[ENTRY] - 1e-9)]
        found = found[found[ENTRY] < found[TIME]]
    return found


def fit(case: Case, rows: pd.DataFrame) -> Any:
    """lifelines' Cox model."""
    from lifelines import CoxPHFitter

    kept = rows.drop(columns=SITE)
    strata = kept.pop(case.strata) if case.strata else None
    x = pd.get_dummies(kept, drop_first=True, prefix_sep="=").astype(float)
    if case.strata:
        x[case.strata] = strata
    return CoxPHFitter().fit(
        x,
        TIME,
        EVENT,
        strata=case.strata,
        entry_col=ENTRY if ENTRY in rows else None,
        fit_options={"precision": 1e-12},
    )


def curves(case: Case, bins: int | None) -> dict[str, float | None]:
    """Log-rank tests, relatively, and the largest gap of a curve, of the same bins."""
    from lifelines import KaplanMeierFitter
    from lifelines.statistics import multivariate_logrank_test

    if case.by is None:
        return NOTHING
    found = survival(**case.asked, by=case.by, bins=bins)
    rows = binned(case.rows, found.stays)
    test = multivariate_logrank_test(rows[TIME], rows[case.by], rows[EVENT]).test_statistic
    gaps = [0.0]
    for name, own in rows.groupby(case.by):
        told = found.released()["curves"][name]
        truth = KaplanMeierFitter().fit(own[TIME], own[EVENT]).predict(told["time"])
        gaps.append(float(np.abs(np.array(told["survival"]) - truth.to_numpy()).max()))
    chi2 = found.released()["log_rank"]["chi2"]
    return {"log-rank": abs(chi2 / test - 1), "curves, largest gap": max(gaps)}


def beside(case: Case, bins: int | None) -> dict[str, Any]:
    """Figures of one case; bins: None: the default."""
    found: Any = cox(**case.asked, strata=case.strata, bins=bins)
    exact, same = fit(case, case.rows), fit(case, binned(case.rows, found.stays))
    coef, se = pd.Series(found.coef, found.names), pd.Series(found.se, found.names)

    def off(truth: Any) -> float:
        return float(((coef - truth.params_) / truth.standard_errors_).abs().max())

    late = ENTRY in case.rows
    return {
        "rows of": case.name,
        "grid": found.stays.words.removeprefix(f"{TIME} "),
        "coef, same bins": off(same),
        "se, relative": float((se / same.standard_errors_ - 1).abs().max()),
        **curves(case, bins),
        "coef, exact times": off(exact),
        "concordance": None if late else found.concordance,
        "lifelines' concordance": None if late else exact.concordance_index_,
    }


def line(row: dict[str, Any]) -> str:
    """A row of a table in Markdown."""
    cells = [row["rows of"], row["grid"]]
    cells += ["–" if row[k] is None else format(row[k], style) for k, style in FIGURES.items()]
    return f"| {' | '.join(cells)} |"


HEADS = f"| {' | '.join(('rows of', 'grid', *FIGURES))} |"


def main(
    data: Annotated[list[str] | None, typer.Option(help="lung, gbsg2, rossi; default all.")] = None,
    veterans: Annotated[Path | None, typer.Option(help="R's survival::veteran as CSV.")] = None,
    grid: Annotated[list[int] | None, typer.Option(help="Bins; default the program's.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Survival figures of four sites beside lifelines' on the pooled rows."""
    with refusals():
        names = data or LIFELINES
        for name in names:
            if name not in LIFELINES:
                raise ParameterError(f"data={name!r} is not one of {', '.join(LIFELINES)}")
        names = [*names, *[VETERANS] * (veterans is not None)]
        found = (beside(case, k) for k in grid or (None,) for case in cases(names, veterans))
        if as_json:
            print(to_json(list(found)), end="")
            return
        print(f"{HEADS}\n|{'---|' * (len(FIGURES) + 2)}")
        for row in found:
            print(line(row), flush=True)


if __name__ == "__main__":
    typer.run(main)
