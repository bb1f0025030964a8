"""Curves and hazard ratios by secure sums: statsmodels' and lifelines' of the pooled rows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter
from scipy.stats import chi2
from statsmodels.duration.hazard_regression import PHReg
from statsmodels.duration.survfunc import SurvfuncRight, survdiff
from statsmodels.genmod.families import Poisson
from statsmodels.genmod.generalized_linear_model import GLM

from ciphercohort import simulate
from ciphercohort.after.sums import SpentError, SumSeries, sums_wanted
from ciphercohort.results.documents import to_json
from ciphercohort.study.asked import CoxOptions, CurveOptions, DescribeOptions, GlmOptions
from ciphercohort.study.cox import Cox
from ciphercohort.study.pictures import forest_picture
from ciphercohort.study.private_cox import OF_WHAT, PrivateCox, _check_events
from ciphercohort.study.stays import ALL, Stays
from ciphercohort.study.survival import Survival
from ciphercohort.study.tables import ratio_cells
from parties.kernel.study.lifetimes import Lifetimes
from parties.reader.infer import REGRESSION_SCALING, infer_schema
from parties.reader.schema import NumericColumn, Schema, Targets
from protocols.errors import ParameterError, PrivacyError, SchemaError
from protocols.statistics.study.cox import RiskSums, concordance, independent, proportional, unsure
from protocols.statistics.study.curves import Curve, observed_less_expected
from protocols.statistics.study.noisy import Noise
from protocols.statistics.study.whitened import counts, read, whitened
from sims.lab.audits.second_accountant import gaussian_epsilon
from sims.prepare import chosen_schema
from sims.study import cox, describe, survival
from tests.sims.model_runs import cohort

ROWS, MONTHS = 480, 60


@cache
def table(months: bool = True, rows: int = ROWS) -> pd.DataFrame:
    """Times in months, as recorded, or exact; some enter late."""
    rng = np.random.default_rng(3)
    age, arm = rng.uniform(30, 90, rows), rng.choice(["a", "b", "c"], rows)
    sex = rng.choice(["f", "m"], rows)
    risk = 0.03 * (age - 60) + np.select([arm == "b", arm == "c"], [-0.6, 0.4]) + 0.5 * (sex == "m")
    death, censored = 30 * rng.exponential(np.exp(-risk)), rng.uniform(6, 60, rows)
    time = np.minimum(death, censored)
    entry = np.where(rng.random(rows) < 0.4, rng.uniform(0, 0.9, rows) * time, 0.0)
    if months:
        time, entry = np.ceil(time), np.floor(entry)
    return pd.DataFrame(
        {
            **{"months": np.clip(time, 0, MONTHS), "died": (death <= censored).astype(int)},
            **{"entry": entry, "age": age, "arm": arm, "sex": sex},
            "site": rng.choice(["p", "q", "r", "s"], rows),
        }
    )


def asked(late: bool, **more: Any) -> dict[str, Any]:
    own = {"time": "months", "event": "died", "split": "by:site"} | (
        {"entry": "entry"} if late else {}
    )
    return {**own, "exclude": () if late else ("entry",), **more}


def design(rows: pd.DataFrame, *, sex: bool) -> pd.DataFrame:
    x = pd.DataFrame({"age": rows.age, "arm=b": rows.arm == "b", "arm=c": rows.arm == "c"})
    return (x.assign(**{"sex=m": rows.sex == "m"}) if sex else x).astype(float)


@cache
def fitted(late: bool, stratified: bool) -> tuple[Cox, Any]:
    rows = table()
    x = design(rows, sex=not stratified)
    # Of PHReg who enters at a time is at risk at it; here, as in R, after it.
    truth = PHReg(
        rows.months,
        x,
        status=rows.died,
        entry=rows.entry + 0.5 if late else None,
        strata=rows.sex if stratified else None,
        ties="efron",
    ).fit()
    curves = None if late else "arm"
    found = cox(rows, strata="sex" if stratified else None, curves=curves, **asked(late))
    assert found.names == tuple(x.columns)
    return found, truth


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("stratified", [False, True])
def test_a_cox_model_is_that_of_the_pooled_rows(late: bool, stratified: bool) -> None:
    found, truth = fitted(late, stratified)
    np.testing.assert_allclose(found.coef, truth.params, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.se, truth.bse, rtol=1e-6)
    assert found.likelihood[1] == pytest.approx(truth.llf, abs=1e-6)
    assert found.events == table().died.sum()
    assert found.rows()[1]["hazard_ratio"] == pytest.approx(math.exp(truth.params[1]))


def test_columns_and_references_are_those_that_are_chosen() -> None:
    """Of the pooled rows with the same columns and references, and the table names these."""
    rows, own = table(), {k: v for k, v in asked(False).items() if k != "exclude"}
    found = cox(rows, include=("arm",), strata="sex", reference=("arm=c",), **own)
    x = pd.DataFrame({f"arm={arm}": rows.arm == arm for arm in "ab"}).astype(float)
    truth = PHReg(rows.months, x, status=rows.died, strata=rows.sex, ties="efron").fit()
    assert found.names == tuple(x.columns)
    np.testing.assert_allclose(found.coef, truth.params, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.se, truth.bse, rtol=1e-6)
    assert "reference: arm c" in found.tables()[0].notes
    assert [
        *describe(rows, include=("age",), by="sex", split="by:site").groups["m"]["columns"]
    ] == ["age"]


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"include": ("wart",)}, "is not in the table"),
        ({"reference": ("arm=d",)}, "no other group"),
        ({"reference": ("age=1",)}, "and no groups"),
        ({"include": ("age",), "reference": ("arm=c",)}, "no such column"),
        ({"include": ("age",), "exclude": ("age",)}, "to be left out"),
    ],
)
def test_choices_of_no_column_are_refused(chosen: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        cox(table(), **{**asked(False), **chosen})


@pytest.mark.parametrize("command", [describe, survival, cox])
@pytest.mark.parametrize(
    "chosen", [{"exclude": ("age",)}, {"include": ("age",)}, {"reference": ("arm=c",)}]
)
def test_a_choice_that_the_schema_contradicts_is_refused(
    command: Any, chosen: dict[str, Any], tmp_path: Path
) -> None:
    rows, path = table().drop(columns="entry"), tmp_path / "schema.json"
    targets = ["months", "died"]
    infer_schema(rows, targets, exclude=["site"], reference=["arm=b"], **REGRESSION_SCALING).save(
        path
    )
    with pytest.raises(SchemaError, match=f"{next(iter(chosen))}=.* says otherwise"):
        command(rows, schema=path, split="by:site", **chosen)


def test_a_choice_that_the_schema_agrees_with_is_taken(tmp_path: Path) -> None:
    """Columns that are needed besides count as included."""
    rows, path = table().drop(columns="entry"), tmp_path / "schema.json"
    targets = ["months", "died"]
    schema = infer_schema(
        rows, targets, exclude=["site"], reference=["arm=b"], **REGRESSION_SCALING
    )
    schema.save(path)
    first, *others = (column.name for column in schema.columns)
    fine: dict[str, Any] = {"exclude": ["site"], "reference": ["arm=b"]}
    for include, needed in (([first, *others], ()), (others, (first, None)), ((), (first,))):
        assert chosen_schema(path, include=include, needed=needed, **fine) == schema
    with pytest.raises(SchemaError, match="include="):
        chosen_schema(path, include=others, **fine)
    with pytest.raises(SchemaError, match="reference="):
        chosen_schema(path, reference=["age"])


@pytest.mark.parametrize("late", [False, True])
def test_bins_are_within_a_tenth_of_a_standard_error_of_exact_times(late: bool) -> None:
    rows = table(months=False)
    truth = PHReg(
        rows.months,
        design(rows, sex=True),
        status=rows.died,
        entry=rows.entry if late else None,
        ties="efron",
    ).fit()
    found = cox(rows, bins=200, **asked(late))
    assert np.abs((found.coef - truth.params) / truth.bse).max() < 0.1


def efron(x: Any, time: Any, event: Any, theta: Any) -> Any:
    """Score residuals, row by row; by their definition."""
    w, residuals = np.exp(x @ theta), np.zeros_like(x)
    for t in np.unique(time[event]):
        at_risk, dead = time >= t, (time == t) & event
        n = int(dead.sum())
        for k in range(n):
            weight = w * at_risk - k / n * w * dead
            mean = weight @ x / weight.sum()
            residuals += (dead[:, None] / n - weight[:, None] / weight.sum()) * (x - mean)
    return residuals


def test_robust_errors_are_those_of_residuals_and_near_the_jackknife() -> None:
    found, truth = fitted(False, False)
    rows = table()
    x, time, event = design(rows, sex=True), rows.months.to_numpy(), rows.died.to_numpy() == 1
    own = efron(x.to_numpy(), time, event, found.coef)
    np.testing.assert_allclose(own.sum(axis=0) * truth.bse, 0, atol=1e-6)
    covariance = truth.cov_params()
    due = np.sqrt(np.diag(covariance @ own.T @ own @ covariance))
    np.testing.assert_allclose(found.robust_se, due, rtol=1e-5)
    left = np.arange(0, ROWS, 8)
    moved = [
        PHReg(np.delete(time, i), np.delete(x.to_numpy(), i, axis=0), np.delete(event, i) + 0,
              ties="efron").fit().params - truth.params
        for i in left
    ]  # fmt: skip
    near = -(own[left] @ covariance)
    for j in range(x.shape[1]):
        assert np.corrcoef(near[:, j], np.array(moved)[:, j])[0, 1] > 0.99


def test_without_ties_robust_errors_are_lifelines() -> None:
    lifelines = pytest.importorskip("lifelines")
    rows = table().drop(columns=["entry", "arm"])
    rows["months"] = np.arange(1, ROWS + 1)
    rows["sex"] = (rows.sex == "m").astype(float)
    truth = lifelines.CoxPHFitter().fit(rows.drop(columns="site"), "months", "died", robust=True)
    found = cox(rows, time="months", event="died", split="by:site", bins=ROWS)
    order = list(found.names)
    np.testing.assert_allclose(found.robust_se, truth.summary["se(coef)"][order], rtol=1e-5)
    np.testing.assert_allclose(found.coef, truth.summary["coef"][order], atol=1e-6)


ZPH = {
    (False, False): (0.2009607495, 7.9017886055, 3.1406190440, 0.6084856130, 9.0190679118),
    (False, True): (0.257207332, 8.440659181, 3.854059968, 9.109732111),
    (True, False): (0.1663474006, 9.5211134198, 3.7624077355, 0.4999662479, 10.5739632927),
    (True, True): (0.22777023, 10.01865999, 4.46715725, 10.73887798),
}
"""Of late entry and strata, what `cox.zph(fit, terms = FALSE)` of R's survival 3.5-3 says of
`table()`: chi-squared of each covariate, and of all."""


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("stratified", [False, True])
def test_tests_of_proportional_hazards_are_those_of_r(late: bool, stratified: bool) -> None:
    found, _ = fitted(late, stratified)
    told = [*found.square, found.global_test[0]]
    np.testing.assert_allclose(told, ZPH[late, stratified], rtol=1e-5)
    np.testing.assert_allclose(found.ph_p, chi2.sf(found.square, 1))
    assert found.global_test[1] == pytest.approx(chi2.sf(told[-1], len(found.names)))


def test_concordance_and_baseline_are_those_of_lifelines() -> None:
    lifelines = pytest.importorskip("lifelines")
    found, _ = fitted(False, False)
    rows = table()
    x = design(rows, sex=True).assign(months=rows.months, died=rows.died)
    fit = lifelines.CoxPHFitter().fit(x, "months", "died")
    assert found.concordance == pytest.approx(fit.concordance_index_, abs=1e-3)
    hazard = fit.baseline_cumulative_hazard_.iloc[:, 0]
    own = dict(zip(found.stays.times, found.hazard[ALL], strict=True))
    for time, value in hazard.items():
        if time <= found.released()["baseline"][ALL]["until"]:
            assert own[time] == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("strata", [None, "site"])
def test_baseline_and_adjusted_curves_begin_where_ten_are_at_risk(strata: str | None) -> None:
    rows = cohort_by_age()
    given = {k: v for k, v in BY_AGE.items() if k != "by"} | {"split": "even"}
    found = cox(
        rows, strata=strata, curves="sex", **given, **({} if strata else {"exclude": ("site",)})
    )
    told, score = found.released(), (rows.sex == "m") * found.coef[0]
    begins = []
    for name, own in told["baseline"].items():
        here = rows.site == name if strata else rows.sex != ""
        at_risk = {t: (rows.entry < t) & (rows.age >= t) & here for t in range(101)}
        inside = [t for t in range(101) if own["from"] < t <= own["until"]]
        assert own["from"] > 40 and all(at_risk[t].sum() >= 10 for t in inside)
        steps = {
            t: ((rows.age == t) & rows.died & here).sum() / np.exp(score[at_risk[t]]).sum()
            for t in inside
        }
        mean = found.released()["covariate_means"]["sex=m"] * found.coef[0]
        for time, hazard in zip(own["time"], own["cumulative_hazard"], strict=True):
            due = sum(v for t, v in steps.items() if t <= time) * math.exp(mean)
            assert hazard == pytest.approx(due, rel=1e-6)
        begins.append(own["from"])
    for level in told["adjusted"].values():
        assert level["from"] == max(begins) and level["survival"][0] > 0.5
    assert any("rows that lived to age" in note for note in found.notes)


def test_adjusted_curves_are_means_over_rows() -> None:
    found, _ = fitted(False, False)
    x = design(table(), sex=True)
    at_means = found.hazard[ALL] * math.exp(-float(found.means @ found.coef))
    for level in ("a", "b", "c"):
        own = x.assign(**{"arm=b": float(level == "b"), "arm=c": float(level == "c")})
        risk = np.exp(own.to_numpy() @ found.coef)
        due = np.exp(-np.outer(risk, at_means)).mean(axis=0)
        np.testing.assert_allclose(found.adjusted[level], due, atol=1e-5)
    np.testing.assert_allclose(found.means, x.mean(), rtol=1e-6)


# -- curves ---------------------------------------------------------------------------------------


@cache
def drawn(late: bool) -> Survival:
    return survival(table(), by="arm", **asked(late))


@pytest.mark.parametrize("late", [False, True])
def test_a_group_of_few_rows_has_no_figure(late: bool) -> None:
    """Its rows are those in all less the others', and its median would be of known persons."""
    rows = table().copy()
    few = rows.index[rows.arm == "c"][6:]
    found: Survival = survival(rows.drop(index=few), by="arm", **asked(late))
    for row in found.rows():
        told = [row[key] for key in ("median", "restricted_mean", "restricted_mean_se")]
        assert all(np.isnan(told)) == (row["group"] == "c")
    assert found.test is None and any(n.endswith("fewer than 10 rows: c") for n in found.notes)
    (table_of_groups,) = found.tables()
    assert "nan" not in table_of_groups.csv() and "still tell them" in table_of_groups.latex()


@pytest.mark.parametrize("late", [False, True])
def test_curves_are_kaplan_and_meiers(late: bool) -> None:
    found = drawn(late)
    for arm, curve in found.curves.items():
        rows = table()[table().arm == arm]
        truth = SurvfuncRight(rows.months, rows.died, entry=rows.entry if late else None)
        own = np.array([list(curve.times).index(t) for t in truth.surv_times])
        np.testing.assert_array_equal(curve.at_risk[own], truth.n_risk)
        inside = (own >= curve.first) & (own < curve.reached)
        assert curve.begin == 0 and (inside == (truth.n_risk >= 10)).all()
        error = curve.survival * np.sqrt(curve.greenwood)
        for told, due in ((curve.survival, truth.surv_prob), (error, truth.surv_prob_se)):
            np.testing.assert_allclose(told[own][inside], due[inside], atol=1e-9)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("years", [1, 7, 40, 49])
def test_whole_numbers_of_a_short_range_are_ends_of_bins(years: int, private: bool) -> None:
    age, *columns = (
        NumericColumn(n, 0.0, h) for n, h in (("age", 9), ("years", years), ("died", 1))
    )
    found = Stays.of(
        Schema(columns=(age,), label=Targets(columns=tuple(columns)), scaling="range"),
        private=private,
    )
    assert found.grid.bins <= (50 if private else 500) < 2 * found.grid.bins
    ends = np.arange(1, years + 1)
    np.testing.assert_allclose(found.times[found.grid.exit(ends / years)], ends, rtol=1e-12)


@cache
def cohort_by_age() -> pd.DataFrame:
    """Time is age: two women die where they are alone at risk, later many are."""
    rng = np.random.default_rng(11)
    entry = np.round(rng.normal(68, 9, 600)).clip(45, 90)
    rows = pd.DataFrame(
        {
            "entry": entry,
            "age": (entry + rng.integers(1, 15, 600)).clip(0, 100),
            "died": rng.integers(0, 2, 600),
            "sex": rng.choice(["f", "m"], 600),
            "site": rng.choice(["p", "q"], 600),
        }
    )
    young = {"entry": [30, 33], "age": [31, 34], "died": 1, "sex": "f", "site": "p"}
    return pd.concat([rows, pd.DataFrame(young)], ignore_index=True)


BY_AGE: dict[str, Any] = {
    **{"time": "age", "event": "died", "entry": "entry", "by": "sex", "split": "by:site"}
}


def figures(told: dict[str, Any]) -> Any:
    """All that leaves of curves but counts of events and of rows."""
    return {k: told["curves"][k] for k in told["curves"]}, [
        {k: v for k, v in row.items() if k not in ("rows", "events")} for row in told["groups"]
    ]


def test_no_figure_is_of_fewer_than_ten_at_risk(tmp_path: Path) -> None:
    """What is done to rows while fewer are at risk leaves all figures as they are."""
    rows = cohort_by_age()
    found = survival(rows, out=tmp_path / "out", **BY_AGE)
    for sex, curve in found.curves.items():
        own = rows[(rows.sex == sex) & (rows.age > curve.begin)]
        truth = SurvfuncRight(own.age, own.died, entry=own.entry.clip(lower=curve.begin))
        many = truth.surv_times <= curve.end
        places = [list(curve.times).index(t) for t in truth.surv_times[many]]
        assert curve.begin > 44 and (truth.n_risk[many] >= 10).all()
        np.testing.assert_allclose(curve.survival[places], truth.surv_prob[many], atol=1e-9)
    (table_of_groups,) = found.tables()
    assert any("rows that lived to age f" in note for note in table_of_groups.notes)
    assert " – " not in table_of_groups.text()
    told = json.loads((tmp_path / "out" / "survival.json").read_text())
    changed = rows.copy()
    changed.loc[len(rows) - 2 :, "died"] = 0
    late = changed.index[(changed.sex == "f") & (changed.age > found.curves["f"].end)]
    changed.loc[late, "died"] = 1 - changed.loc[late, "died"]
    again = survival(changed, **BY_AGE)
    assert figures(json.loads(to_json(again.released()))) == figures(told)
    assert again.picture() == found.picture()


def test_curves_are_of_a_table_without_another_column() -> None:
    lifelines = pytest.importorskip("lifelines")
    rows = table()[["months", "died", "site"]]
    found = survival(rows, time="months", event="died", split="by:site")
    (curve,), (row,) = found.curves.values(), found.rows()
    km = lifelines.KaplanMeierFitter().fit(rows.months, rows.died)
    due = km.survival_function_at_times(curve.times[: curve.reached])
    np.testing.assert_allclose(curve.survival[: curve.reached], due, atol=1e-9)
    assert (row["rows"], row["median"]) == (len(rows), km.median_survival_time_)
    assert survival(rows, time="months", event="died", split="by:site", epsilon=8.0).private
    with pytest.raises(ParameterError, match="model needs one column"):
        cox(rows, time="months", event="died", split="by:site")
    targets: dict[str, Any] = {"target": ["months", "died"], "split": "by:site", "epsilon": None}
    with pytest.raises(ParameterError, match="a model is of one column or more"):
        simulate(data=rows, model="linear", **targets)


@pytest.mark.parametrize("late", [False, True])
def test_counts_that_are_told_differ_by_ten_or_not_at_all(late: bool) -> None:
    """Of a group whose size is known, wherever its curve begins and however few leave."""
    for leaves in (1, 3, 10):
        rows = pd.DataFrame({"months": np.repeat(np.arange(1, 41), leaves)})
        rows = rows.assign(
            died=1, site=rows.index % 3, entry=np.where(rows.index % 7, 0, 20) if late else 0
        )
        rows = rows[rows.entry < rows.months]
        options = {"time": "months", "event": "died", "bins": 40}
        options |= {"entry": "entry"} if late else {"exclude": ["entry"]}
        for begin in (None, *range(1, 30, 4)):
            found = survival(rows, parties=3, begin=begin, **options).released()
            (group,), (curve,) = found["groups"], found["curves"].values()
            counts = {len(rows), group["rows"], *curve["at_risk"].values()} - {None}
            apart = np.diff(sorted(counts))
            assert len(counts) > 1 and (apart >= 10).all(), (leaves, begin, counts)


def test_curves_begin_where_they_are_told_to() -> None:
    rows = cohort_by_age()
    found = survival(rows, begin=65.0, tau=80.0, **BY_AGE)
    for row, (sex, curve) in zip(found.rows(), found.curves.items(), strict=True):
        own = rows[(rows.sex == sex) & (rows.age > 65)]
        truth = SurvfuncRight(own.age, own.died, entry=own.entry.clip(lower=65))
        assert curve.begin == 65 and row["median"] == truth.quantile(0.5)
        own = own[own.entry < own.age]
        assert (row["rows"], row["events"]) == (len(own), own.died.sum())
    early = survival(rows, tau=97.5, **BY_AGE)
    assert all(np.isnan(row["restricted_mean"]) for row in early.rows())
    assert any("no mean to 97.5" in note for note in early.tables()[0].notes)


LATE_RANKS = {65.0: 0.440008815396, None: 0.490073585935}
"""By `begin`, the sums of Mantel and Haenszel over risk sets, looped over by R 4.2, of the rows of
`cohort_by_age()` that lived to it, of None to the later of the curves' begins."""


@pytest.mark.parametrize("begin", LATE_RANKS)
def test_the_log_rank_test_is_of_rows_that_lived_to_the_begin_of_curves(
    begin: float | None,
) -> None:
    found = survival(cohort_by_age(), begin=begin, **BY_AGE)
    assert found.test is not None
    assert found.test[0] == pytest.approx(LATE_RANKS[begin], rel=1e-9)
    latest = max(curve.begin for curve in found.curves.values())
    words = f", of rows that lived to age {latest:g}"
    assert found.tables()[0].notes[0].endswith(words) and latest == (begin or 54)


@pytest.mark.parametrize("begin", [None, 20.0, 45.0])
def test_all_figures_of_a_begin_are_those_of_the_rows_that_lived_to_it(
    begin: float | None,
) -> None:
    """lifelines' of these rows; the test is of all times after it, also of few at risk."""
    lifelines = pytest.importorskip("lifelines")
    from lifelines.statistics import multivariate_logrank_test

    rows = table()[table().months > (begin or -1)]
    found = survival(table(), by="arm", begin=begin, **asked(False))
    told = found.released()
    assert found.test is not None or begin == 45
    if found.test is not None:
        due = multivariate_logrank_test(rows.months, rows.arm, rows.died)
        assert found.test[0] == pytest.approx(due.test_statistic, rel=1e-9)
        assert told["log_rank"]["chi2"] == found.test[0]
    for row in told["groups"]:
        own = rows[rows.arm == row["group"]]
        if not found.curves[row["group"]].known:
            assert row["rows"] is row["events"] is None and np.isnan(row["median"])
            continue
        km = lifelines.KaplanMeierFitter().fit(own.months, own.died)
        deaths = own.died.sum()
        median = km.median_survival_time_
        reached = median <= found.curves[row["group"]].end
        assert (row["rows"], row["median"]) == (len(own), median if reached else math.inf)
        whole = (table().arm == row["group"]).sum()
        few = any(0 < abs(deaths - each) < 10 for each in (0, len(own), whole))
        assert row["events"] == (None if few else deaths)
        for mark, count in told["curves"][row["group"]]["at_risk"].items():
            assert count in (None, (own.months >= float(mark)).sum())
            assert count is None or float(mark) >= (begin or 0)
        assert {*told["curves"][row["group"]]["at_risk"].values()} != {None}


def test_with_noise_groups_are_compared_where_all_have_a_curve() -> None:
    """lifelines' of the rows until the first curve ends: a group's later events are not known."""
    pytest.importorskip("lifelines")
    from lifelines.statistics import logrank_test

    times, counts = np.arange(1.0, 13), np.zeros((2, 12, 2))
    counts[0, :, 1], counts[1, :, 1] = 40, [50] * 8 + [2] * 4
    noise = Noise(std=1.0, bins=12, series=2, factored=True)
    curves = [noise.curve(noise.root @ own, times, 0.0, 1e9, begin=2.0) for own in counts]
    ends = [curve.reached for curve in curves]
    assert ends[1] < ends[0] and all(curve.first == 2 for curve in curves)
    assert [curve.deaths for curve in curves] == pytest.approx(counts[:, 2:, 1].sum(axis=1))
    found = noise.log_rank(curves)
    lives = [np.repeat(times, own[:, 1].astype(int)) for own in counts]
    ended = [np.minimum(each[each > 2], ends[1]) for each in lives]
    deaths = [each[each > 2] <= ends[1] for each in lives]
    due = logrank_test(*ended, *deaths).test_statistic
    # Noise is counted besides.
    assert found is not None and 0.95 * due < found[0] < due


@pytest.mark.parametrize(
    "more", [{"tau": 0.0}, {"tau": 500.0}, {"begin": -1.0}, {"begin": 60.0, "tau": 50.0}]
)
def test_times_out_of_range_are_refused_before_a_sum(
    more: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SumSeries, "open", lambda *_: pytest.fail("a sum was opened"))
    with pytest.raises(ParameterError, match="is outside"):
        survival(cohort_by_age(), **more, **BY_AGE)


@pytest.mark.parametrize("record", [DescribeOptions, CurveOptions, CoxOptions, GlmOptions])
def test_options_out_of_range_make_no_record(record: type) -> None:
    """Of every number below its least one, and nan."""
    bounded = [each for each in fields(record) if each.metadata["least"] is not None]
    assert bounded
    for each in bounded:
        for value in (each.metadata["least"] - 1, -5, math.nan):
            with pytest.raises(ParameterError, match=each.metadata["name"] or each.name):
                record(**{each.name: value})


def test_bands_medians_and_means_are_lifelines() -> None:
    lifelines = pytest.importorskip("lifelines")
    from lifelines.utils import median_survival_times, restricted_mean_survival_time

    found = drawn(False)
    for arm, curve in found.curves.items():
        rows = table()[table().arm == arm]
        km = lifelines.KaplanMeierFitter().fit(rows.months, rows.died)
        ends = km.confidence_interval_survival_function_
        own = [list(curve.times).index(t) for t in ends.index if t <= curve.end]
        for band, due in zip(curve.band(), ends.to_numpy().T, strict=True):
            np.testing.assert_allclose(band[own], due[: len(own)], atol=1e-9)
        assert curve.quantile()[0] == km.median_survival_time_
        limits = median_survival_times(ends).to_numpy()[0]
        assert curve.quantile()[1:] == pytest.approx(tuple(limits))
        due = restricted_mean_survival_time(km, t=found.tau)
        assert curve.restricted_mean(found.tau)[0] == pytest.approx(due, abs=1e-9)


@pytest.mark.parametrize(("last", "is_cut"), [("all leave", False), ("few are left", True)])
def test_what_lies_behind_the_end_of_a_curve_is_not_told_as_never_reached(
    last: str, is_cut: bool
) -> None:
    """Of a group most of whose rows die after ten are left: its median is behind the end."""
    times = np.arange(1, 23) if is_cut else np.full(22, 30)
    rows = pd.DataFrame(
        {
            "months": np.concatenate([times, np.full(40, 30)]),
            "died": np.concatenate([np.full(22, is_cut) & (times > 12), np.arange(40) < 4]),
            "arm": ["a"] * 22 + ["b"] * 40,
            "site": ["p", "q"] * 31,
        }
    ).astype({"died": int})
    found = survival(rows, time="months", event="died", by="arm", split="by:site")
    one, other = found.rows()
    text = found.tables()[0].text()
    assert one["cut"] is is_cut and not other["cut"] and other["median"] == math.inf
    if is_cut:
        assert one["median"] == math.inf and f"> {one['until']:.5g} [" in text
        few = "curves end while rows are left, where fewer than 10 are at risk"
        assert one["until"] == 13 and f"{few}: a: 13; " in text
        told = survival(rows, time="months", event="died", by="arm", split="by:site", least=2)
        assert math.isfinite(told.rows()[0]["median"])
    assert text.count("not reached [") == 2 - is_cut
    fields = json.loads(to_json(found.released()))["groups"][0]
    assert (fields["cut"], fields["median"]) == (is_cut, None)


def test_the_error_of_a_restricted_mean_is_that_of_the_jackknife() -> None:
    rows, times = table(), np.arange(MONTHS + 1.0)

    def mean(kept: Any) -> float:
        counts = np.zeros((MONTHS + 1, 2))
        np.add.at(counts, (kept.months.astype(int), kept.died), 1)
        return Curve.of(counts, times, 0.0).restricted_mean(48.5)[0]

    moved = np.array([mean(rows.drop(index=i)) for i in range(ROWS)])
    due = math.sqrt((ROWS - 1) / ROWS * ((moved - moved.mean()) ** 2).sum())
    counts = np.zeros((MONTHS + 1, 2))
    np.add.at(counts, (rows.months.astype(int), rows.died), 1)
    assert Curve.of(counts, times, 0.0).restricted_mean(48.5)[1] == pytest.approx(due, rel=0.02)


def test_the_log_rank_test_is_statsmodels() -> None:
    found, rows = drawn(False), table()
    square, p = survdiff(rows.months, rows.died, rows.arm)
    assert found.test is not None
    assert found.test[0] == pytest.approx(square, rel=1e-9) and found.test[1] == 2
    assert found.test[2] == pytest.approx(p, rel=1e-6)


def test_no_step_or_number_that_leaves_is_of_fewer_than_ten_rows(tmp_path: Path) -> None:
    found = survival(table(), by="arm", out=tmp_path / "out", **asked(False))
    told = json.loads((tmp_path / "out" / "survival.json").read_text())
    for arm, own in told["curves"].items():
        rows = table()[table().arm == arm]
        ends = [-1.0, *own["time"]]
        assert len(ends) > 5
        for low, high in pairwise(ends):
            assert ((rows.months > low) & (rows.months <= high)).sum() >= 10
        left = (rows.months > ends[-1]).sum()
        assert left == 0 or left >= 10
        assert all(n is None or n == 0 or n >= 10 for n in own["at_risk"].values())
        for time, value in zip(own["time"], own["survival"], strict=True):
            k = list(found.curves[arm].times).index(time)
            assert value == found.curves[arm].survival[k]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("report.html", "survival.csv", "survival.json", "survival.svg", "survival.tex")
    }


def test_a_baseline_hazard_leaves_in_steps_of_ten_events() -> None:
    found, _ = fitted(False, True)
    told = found.released()
    for sex, own in told["baseline"].items():
        rows = table()[(table().sex == sex) & (table().died == 1)]
        ends = [-1.0, *own["time"]]
        for low, high in pairwise(ends):
            assert ((rows.months > low) & (rows.months <= high)).sum() >= 10
    assert json.loads(json.dumps(told))["inference"][0]["name"] == "age"


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.03, 30, {"0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "20"}),
        (0.5, 2.1, {"0.5", "1", "1.5", "2"}),
        (0.8, 3, {"1", "1.5", "2"}),
        (0.98, 1.02, {"0.99", "1", "1.01"}),
    ],
)
def test_ticks_of_ratios_are_plain_numbers(low: float, high: float, ticks: set[str]) -> None:
    svg = forest_picture({"age": (1.0, low, high)})
    told = {*re.findall("<!-- (.+) -->", svg)} - {"age", "hazard ratio"}
    assert ticks <= told and all(float(each) > 0 for each in told) and len(told) < 13


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        ((0.9996, 0.9994, 0.9998), "0.9996 [0.9994, 0.9998]"),
        ((1.0141, 1.0066, 1.0217), "1.014 [1.007, 1.022]"),
        ((2.28, 1.906, 2.728), "2.28 [1.91, 2.73]"),
        ((0.991, 0.979, 1.004), "0.99 [0.98, 1.00]"),
        ((1.2, 1.004, 1.43), "1.200 [1.004, 1.430]"),
        ((0.99930, 0.99870, 0.999906), "0.9993 [0.9987, 0.9999]"),
        ((1.0, 1.0, 1.0), "1.00 [1.00, 1.00]"),
        ((2e-8, 1e-8, 4e-8), "2.000e-08 [1.000e-08, 4.000e-08]"),
        ((math.nan, math.nan, math.nan), ""),
    ],
)
def test_ratios_have_the_digits_that_tell_them_from_their_ends(
    ratio: tuple[float, ...], words: str
) -> None:
    ends = dict(zip(("hazard_ratio", "hazard_ratio_low", "hazard_ratio_high"), ratio, strict=True))
    row = {"name": "pgr", "p": 0.1, "coef": 0.0, "se": 0.1, **ends}
    assert ratio_cells(row)[1] == words


# -- what is refused, and commands ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({"died": 0}, {}, "no row has an event"),
        ({"died": 2}, {}, "other values than 0 and 1"),
        ({}, {"strata": "age"}, "and no groups"),
        ({}, {"strata": "arms"}, "'arms'"),
        ({}, {"curves": "age"}, "and no groups"),
        ({}, {"curves": "sex", "strata": "sex"}, "column of strata"),
        ({}, {"bins": 4000}, "grid 3333 or less"),
        ({}, {"epsilon": 1.0, "strata": "sex"}, "belongs to exact sums"),
        ({}, {"epsilon": 1.0, "bins": 90}, "grid=90 belongs to exact sums"),
        ({}, {"epsilon": 1.0, "least": 20}, "least=20 belongs to exact sums"),
        ({}, {"event": None}, "name both columns"),
        ({}, {"time": "age2"}, "is not a column"),
        ({"months": -1.0}, {}, "negative"),
    ],
)
def test_what_has_no_model_is_refused(
    change: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises((ParameterError, SchemaError), match=words):
        cox(table().assign(**change), **{**asked(False), **options})


def test_a_column_that_separates_events_is_named() -> None:
    rows = table()
    rows = rows.assign(flag=np.where(rows.died == 1, 0.0, 1.0))
    with pytest.raises(ParameterError, match="flag separates the events"):
        cox(rows, **asked(False))


def test_a_column_that_others_determine_is_left_out() -> None:
    rows = table()
    found = cox(rows.assign(years=rows.age / 10), **asked(False))
    due, _ = fitted(False, False)
    assert math.isnan(found.coef[list(found.names).index("years")])
    assert found.coef[0] == pytest.approx(due.coef[0], abs=1e-7) and "years" in found.notes[-1]


@pytest.mark.parametrize("model", ["kaplan-meier", "cox"])
def test_the_command_writes_what_it_shows(model: str, tmp_path: Path) -> None:
    table().drop(columns="entry").to_csv(tmp_path / "rows.csv", index=False)
    own = ("--by", "arm") if model == "kaplan-meier" else ("--curves", "arm", "--strata", "sex")
    files = ("--data", tmp_path / "rows.csv", "--time", "months", "--event", "died")
    shown = cohort(
        "survival", "--model", model, *own, *files, "--split", "by:site", "--out", tmp_path / "out"
    )
    assert shown.exit_code == 0, shown.output
    told = json.loads((tmp_path / "out" / "survival.json").read_text())
    assert told["EXACT SUMS"] and "EXACT SUMS" in shown.stderr
    words = "log-rank" if model == "kaplan-meier" else "hazard ratio"
    assert words in shown.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert "report.html" in names and len(names) == (5 if model == "kaplan-meier" else 6)
    wrong = cohort("survival", "--model", model, "--strata", "sex", "--by", "arm", *files)
    assert wrong.exit_code == 2 and "belongs to the other model" in wrong.stderr


def test_pairs_of_one_bin_count_half() -> None:
    cells = np.zeros((1, 3, 2, 2))
    cells[0, 0, 1] = [0, 1]  # an event with the high score, before
    cells[0, 1, 0] = [1, 1]  # one row of each
    assert (concordance(cells), unsure(cells)) == (0.75, 0.25)
    assert math.isnan(concordance(0 * cells)) and math.isnan(unsure(0 * cells))


@pytest.mark.parametrize("bins", [2, 9, 60])
def test_a_concordance_is_off_that_of_all_pairs_by_what_it_says_at_most(bins: int) -> None:
    """Scores in clusters, which bins part badly; two strata."""
    rng, most = np.random.default_rng(1), 0.0
    for _ in range(20):
        score = rng.choice([-1.0, 0.0, 1.0], 80) + 0.05 * rng.normal(size=80)
        time, event, stratum = rng.integers(0, 12, 80), rng.integers(0, 2, 80), np.arange(80) % 2
        cells = np.zeros((2, 12, 2, bins))
        places = np.clip(((score + 1.5) / 3 * bins).astype(int), 0, bins - 1)
        np.add.at(cells, (stratum, time, event, places), 1)
        alike = stratum[:, None] == stratum
        pairs = (
            alike
            & (event[:, None] == 1)
            & ((time > time[:, None]) | ((time == time[:, None]) & (event == 0)))
        )
        truth = (score < score[:, None])[pairs].mean()
        off = abs(concordance(cells) - truth)
        assert off <= unsure(cells)
        most = max(most, off)
    assert bins > 2 or most > 0.01


def test_without_a_spread_of_times_there_is_no_test() -> None:
    sums = RiskSums.first(np.ones((2, 1, 1, 3)))
    square, p, whole = proportional(sums, np.array([True]), np.ones(1))
    assert np.isnan([*square, *p, *whole]).all()
    assert independent(np.diag([1.0, 0.0, 2.0])).tolist() == [True, False, True]


def test_tables_of_the_page_are_in_the_documents() -> None:
    """Of R's readers: lists of rows with the same columns, or columns of one length."""
    page = (Path(__file__).parents[3] / "docs/survival.md").read_text()
    # From the last: of two tables of one name the first is a Cox model's.
    lines = [line.split("|")[1:4] for line in page.splitlines()[::-1] if line.startswith("| ")]
    told = {path.strip(" `"): set(re.findall(r"`(\w+)`", columns)) for _, path, columns in lines
            if path.strip().startswith("`")}  # fmt: skip
    curves = json.loads(to_json(drawn(False).released()))
    fits = [json.loads(to_json(fitted(False, stratified)[0].released())) for stratified in (0, 1)]  # type: ignore[arg-type]
    assert {*curves["groups"][0]} == told["groups"] and {*curves["log_rank"]} == told["log_rank"]
    for each in curves["curves"].values():
        assert {*each} == told["curves$GROUP"]
        assert len({len(each[name]) for name in ("time", "survival", "low", "high")}) == 1
    for fit in fits:
        ends = {"hazard_ratio_low", "hazard_ratio_high"}
        for row in fit["inference"]:
            assert {*row} == told["inference"] - {"_low", "_high"} | ends
        for path, own in (("baseline$STRATUM", "baseline"), ("adjusted$LEVEL", "adjusted")):
            for each in fit[own].values():
                columns = [values for values in each.values() if isinstance(values, list)]
                assert {*each} == told[path] and len({len(v) for v in columns}) == 1
    assert fits[0]["adjusted"].keys() == {"a", "b", "c"}
    assert fits[1]["baseline"].keys() == {"f", "m"}


# -- with noise -----------------------------------------------------------------------------------


def life_table() -> Any:
    """Of two groups, shape (2, 12, 3), thousands at risk; entries before exits."""
    rng = np.random.default_rng(4)
    exits = rng.integers(300, 900, (2, 12, 2)).astype(float)
    entries = np.full((2, 12, 1), 50.0)
    entries[:, 0] = 2000
    return np.concatenate([exits, entries], axis=2)


@pytest.mark.parametrize("factored", [False, True])
@pytest.mark.parametrize("series", [2, 3])
def test_noise_moves_curves_and_the_test_as_their_variance_says(
    series: int, factored: bool
) -> None:
    """Each value of the sum moved by itself, beside the draws that bands and the test use."""
    noise = Noise(std=0.01, bins=12, series=series, factored=factored)
    table, times = life_table()[..., :series], np.arange(1.0, 13)
    opened = np.einsum("kj,gjs->gks", noise.root, table)

    def found(values: Any) -> Any:
        return [noise.curve(each, times, 0.0, 1e9) for each in values]

    curves = found(opened)
    exact = [Curve.of(each, times, 0.0) for each in table]
    for own, due in zip(curves, exact, strict=True):
        np.testing.assert_allclose(own.survival[:11], due.survival[:11], rtol=1e-9)
        assert (own.band()[1] - own.band()[0] > 0)[:11].all()
    inside = np.ones(12, dtype=bool)
    inside[curves[0].reached :] = inside[curves[1].reached :] = False
    gap, covariance = observed_less_expected(curves, inside)
    due_gap, due_covariance = observed_less_expected(exact, inside)
    np.testing.assert_allclose(covariance, due_covariance, rtol=1e-6)
    np.testing.assert_allclose(gap, due_gap, atol=1e-6)
    square, freedom, _ = noise.log_rank(curves)
    moves, steps, logs = [], np.zeros((2, series, 12)), []
    for g, s, k in np.ndindex(2, series, 12):
        changed = opened.copy()
        changed[g, k, s] += noise.std
        moved = found(changed)
        if g == 0:
            logs.append(np.log(moved[0].survival / curves[0].survival)[:11])
        moves.append(observed_less_expected(moved, inside)[0] - gap)
        steps[g, s, k] = moved[0].restricted_mean(9.5)[0] - curves[0].restricted_mean(9.5)[0]
    own, each = curves[0].moved[:11], np.array(logs).T
    np.testing.assert_allclose(own @ own.T, each @ each.T, rtol=1e-3, atol=1e-16)
    whole = covariance + np.array(moves).T @ np.array(moves)
    assert square == pytest.approx(gap[0] ** 2 / whole[0, 0], rel=1e-6) and freedom == 1
    quiet = replace(curves[0], moved=None).restricted_mean(9.5)[1]
    due_error = math.hypot(quiet, np.linalg.norm(steps))
    assert curves[0].restricted_mean(9.5)[1] == pytest.approx(due_error, rel=1e-6)


def test_a_group_that_noise_drowns_has_no_curve() -> None:
    noise = Noise(std=1e4, bins=12, series=2, factored=True)
    opened = np.einsum("kj,gjs->gks", noise.root, life_table()[..., :2])
    assert noise.curve(opened[0], np.arange(1.0, 13), 0.0, 1e9) is None


@pytest.mark.parametrize("bins", [None, 120])
def test_with_epsilon_curves_are_as_near_as_they_say(bins: int | None) -> None:
    rows = pd.concat([table()] * 8, ignore_index=True)
    given = asked(False, by="arm", bins=bins)
    found, due = survival(rows, epsilon=2.0, seed=1, **given), survival(rows, **given)
    told = found.released()
    assert told["privacy"]["epsilon"] <= 2.0 and not told.get("EXACT SUMS")
    assert told["suppressed"] is None and 1 < told["noise_std"] < 20
    assert {*found.curves} == {"a", "b", "c"}
    for arm, curve in found.curves.items():
        reached, exact = curve.reached or 0, due.curves[arm]
        assert 20 < reached < len(curve.times)
        gap = np.abs(curve.survival - exact.survival)[:reached]
        std = curve.survival * np.linalg.norm(curve.moved, axis=1)  # type: ignore[arg-type]
        assert gap.max() > 0 and (gap < 4 * std[:reached] + 0.01).all()
        assert len(told["curves"][arm]["time"]) == reached
        off = np.abs(curve.at_risk - exact.at_risk)
        assert (off < 4 * found.noise.spread + 1).all()
    assert found.test is not None and due.test is not None and 0 < found.test[0] < due.test[0]


def test_noise_that_drowns_everything_is_said_before_a_figure() -> None:
    with pytest.raises(SpentError, match="drowns every group.*epsilon=.* as spent"):
        survival(table(), by="arm", epsilon=0.2, seed=1, **asked(False))
    with pytest.raises(ParameterError, match="400 bins or less"):
        survival(table(), by="arm", epsilon=1.0, bins=401, **asked(False))


def charged(ledger: Path) -> list[Path]:
    """Ledgers, beside the file of their limit."""
    return [path for path in ledger.rglob("*") if path.is_file() and path.name != "budget.json"]


@pytest.mark.parametrize("late", [False, True])
def test_noise_that_drowns_all_rows_is_refused_before_a_sum(late: bool, tmp_path: Path) -> None:
    """And charged to no ledger; so many rows as it names do open one."""
    ledger, rows = tmp_path / "ledger", table()
    given = asked(late, epsilon=0.02, seed=1)
    with pytest.raises(PrivacyError, match="drowns every group of 480 rows.*nothing was") as told:
        survival(rows, ledger=ledger, **given)
    assert not isinstance(told.value, SpentError) and charged(ledger) == []
    (needed,) = re.findall(r"takes ([\d,]+) rows", str(told.value))
    opened = list[object]()
    bound = int(needed.replace(",", ""))
    for count, opens in ((bound + 20, True), (bound - 20, False)):
        many = pd.concat([rows] * (count // len(rows) + 1), ignore_index=True)[:count]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SumSeries, "open", lambda *own: opened.append(own) or 1 / 0)
            with pytest.raises(ZeroDivisionError if opens else PrivacyError):
                survival(many, **given)
        assert bool(opened) == opens
        opened.clear()


def test_hazards_of_too_few_rows_for_their_events_are_refused_before_a_sum(tmp_path: Path) -> None:
    """Unless one insists, and even then where all rows are too few."""
    ledger = tmp_path / "ledger"
    with pytest.raises(PrivacyError, match="more than half of all rows; nothing was spent") as told:
        cox(table(), epsilon=1.5, seed=1, ledger=ledger, **asked(False))
    assert not isinstance(told.value, SpentError) and charged(ledger) == []
    (larger,) = re.findall(r"or epsilon=([\d.]+)", str(told.value))
    with pytest.raises(PrivacyError, match="no interval can be given.*narrow the ranges"):
        cox(table(), epsilon=float(larger), seed=1, **asked(False))
    with pytest.raises(SpentError, match="as spent"):
        cox(table(), epsilon=1.5, seed=1, ledger=ledger, however_noisy=True, **asked(False))
    assert charged(ledger)
    for needed, insists in ((241, True), (480, True), (240, False)):
        few = SimpleNamespace(rows=480, wanted=sums_wanted(1.0, 1e-5, 0), however_noisy=insists)
        _check_events(needed, 0.2, few)  # type: ignore[arg-type]
    with pytest.raises(PrivacyError, match="more than all rows; nothing was spent") as told:
        _check_events(481, 0.2, few)  # type: ignore[arg-type]
    assert "insist" not in str(told.value)


def test_with_epsilon_no_document_tells_of_a_row(tmp_path: Path) -> None:
    """One person beyond a range is in none, and ranges that were read off the rows are said."""
    rows = table().copy()
    named = asked(late=False, epsilon=1.0)
    assert any("schema: inferred" in note for note in survival(rows, **named).notes)
    age = NumericColumn("age", 30.0, 90.0)
    ends = (NumericColumn("months", 0.0, float(MONTHS)), NumericColumn("died", 0.0, 1.0))
    schema = tmp_path / "schema.json"
    Schema(columns=(age,), label=Targets(columns=ends), scaling="range").save(schema)
    rows.loc[0, "age"] = 95.0
    for make, own in ((survival, named), (describe, {"split": "by:site", "epsilon": 1.0})):
        assert not make(rows, **own, schema=schema).notes  # type: ignore[operator]


# -- hazards with epsilon --------------------------------------------------------------------------


def person_time(rows: pd.DataFrame, ends: Any) -> Any:
    """Statsmodels' Poisson model of the same intervals, one row a person and interval."""
    x, entry = design(rows, sex=True), rows.get("entry", 0 * rows.months)
    parts, starts = [], np.array([0.0, *ends[:-1]])
    for low, high in zip(starts, ends, strict=True):
        stay = rows.months.clip(low, high) - entry.clip(low, high)
        dies = rows.died * (rows.months > low) * (rows.months <= high)
        own = x.assign(**{f"from{low}": 1.0}, stay=stay, dies=dies)
        parts.append(own[stay > 0])
    whole = pd.concat(parts).fillna(0.0)
    stay, dies = whole.pop("stay"), whole.pop("dies")
    return GLM(dies, whole, family=Poisson(), offset=np.log(stay)).fit()


@pytest.mark.parametrize("late", [False, True])
def test_hazards_with_epsilon_are_near_those_without(late: bool) -> None:
    """Of every covariate, within what its interval says; and the errors are those of both parts."""
    rows = table(months=False, rows=12_000)
    found = cox(rows, epsilon=8.0, seed=1, **asked(late))
    assert isinstance(found, PrivateCox)
    given = rows if late else rows.drop(columns="entry")
    truth = person_time(given, found.ends)
    due = truth.params[[*found.names]].to_numpy()
    sampled = truth.bse[[*found.names]].to_numpy()
    # What differs is noise, weights and follow-up that ends: less than the data tell.
    assert (np.abs(found.coef - due) < 2.5 * found.se).all()
    assert not [note for note in found.notes if "as far" in note]
    # Follow-up ends at a hazard of 1: a third of what events tell at most.
    part = (found.se**2 - found.added) / sampled**2
    assert part.min() > 0.95 and part.max() < 1.6
    assert (found.se > sampled).all() and (found.added > 0).all()
    assert 3 <= len(found.ends) <= 6 and found.ends[-1] == MONTHS
    told = found.released()
    assert 0.97 * 8 < told["inference_about"]["epsilon"] <= 8 and "EXACT SUMS" not in told
    spent = [event.mu for each in found.mechanisms for event in each.events]  # type: ignore[union-attr]
    assert len(spent) == len(found.plans) == 7
    assert gaussian_epsilon(spent, delta=1e-5) <= 8 * (1 + 1e-6)
    assert "of it noise" in found.tables()[0].text() and "privacy_share" in json.dumps(told)
    assert OF_WHAT in told["inference_about"]["notes"] and OF_WHAT in found.tables()[0].text()
    files = dict(found.documents())
    # What the ratios are of stands wherever they do.
    assert all("reaches 1" in files[name] for name in ("report.html", "cox.tex"))
    assert "reaches 1" in found._repr_html_()


@pytest.mark.parametrize(
    ("epsilon", "words"), [(0.05, "leave no interval"), (2.0, "probably"), (8.0, "some 0.1 of")]
)
def test_what_covariates_need_is_said_before_a_sum(
    epsilon: float, words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def opened(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SumSeries, "open", opened)
    with pytest.raises((KeyboardInterrupt, PrivacyError)) as refused:
        cox(table(), epsilon=epsilon, seed=1, **asked(False))
    assert (refused.type is PrivacyError) == (epsilon < 0.1)
    assert words in f"{refused.value} {caplog.text}"
    assert refused.type is PrivacyError or "until a person's own hazard reaches 1" in caplog.text


@pytest.mark.parametrize("scale", [0.05, 0.2, 1.0, 10.0])
@pytest.mark.parametrize("late", [False, True])
def test_every_coordinate_of_hazards_is_known_about_alike(scale: float, late: bool) -> None:
    """The information at the start, a person, is .3 to 1.1 in each, whenever events come.

    scale: of times [range]. Of the first, nearly all leave with an event, and few are left when the
    hazard is 1, beyond which nobody counts.
    """
    rng, rows = np.random.default_rng(2), 4000
    x = np.column_stack([rng.uniform(-1, 1, rows), rng.random(rows) < 0.3, np.ones(rows)])
    death = scale * rng.exponential(size=rows)
    entry = rng.random(rows) * 0.9 * np.minimum(death, 1.0) * late
    y = np.column_stack([np.minimum(death, 1), death < 1, entry])[:, : 2 + late]
    adds = Lifetimes(bins=20, recorded=False, late=late)
    cells = adds.exact_sum(x, y, "a").values.reshape(20, -1).astype(float)
    start = whitened(counts(cells, 0.0), x.T @ x, 0.0, rows, 6, (0, 1), late)
    _, information = read(start, start.parts(x, y).sum(axis=0))
    known = np.linalg.eigvalsh(information / rows)
    assert known.min() > 0.3 and known.max() < 1.1


def test_hazards_that_noise_drowns_have_no_table() -> None:
    with pytest.raises(PrivacyError, match="no interval can be given.*narrow the ranges"):
        cox(table(), epsilon=2.0, seed=1, **asked(False))


@pytest.mark.parametrize("late", [False, True])
def test_a_schema_of_stays_begins_at_zero(late: bool, tmp_path: Path) -> None:
    """Also where no time of the sample is short."""
    rows = table()[table().months > 5]
    rows.to_csv(tmp_path / "sample.csv", index=False)
    out = tmp_path / "schema.json"
    own = ("--entry", "entry") if late else ("--exclude", "entry")
    told = cohort(
        *("schema", "init", tmp_path / "sample.csv", "--time", "months", "--event", "died"),
        *("--exclude", "site", "--out", out, *own),
    )
    assert told.exit_code == 0, told.output
    schema = Schema.load(out)
    assert isinstance(schema.label, Targets)
    names = ["months", "died", "entry"][: 2 + late]
    ends = {"months": rows.months.max(), "died": 1, "entry": rows.months.max()}
    told_ranges = [(each.name, each.low, each.high) for each in schema.label.columns]
    assert told_ranges == [(name, 0, ends[name]) for name in names]
    assert "make high of months the longest" in " ".join(told.stderr.split())
    assert Stays.of(schema).late == late


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--target", "months,died"), "begins at the sample's least; if it is the time until died"),
        (("--target", "months,died,entry"), "give --time and --event"),
        (("--target", "months,age"), None),
        (("--label", "died", "--offset", "months", "--log-offset"), "exposures of 'months' below"),
        (("--label", "died", "--offset", "months"), None),
    ],
)
def test_ranges_of_times_are_told(
    options: tuple[str, ...], words: str | None, tmp_path: Path
) -> None:
    rows = table()[table().months > 5]
    rows.to_csv(tmp_path / "sample.csv", index=False)
    told = cohort("schema", "init", tmp_path / "sample.csv", *options)
    heard = " ".join(told.stderr.split())
    assert told.exit_code == 0
    assert words in heard if words else "begins at" not in heard and "exposures" not in heard


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--time", "months"), "give --time and --event, or none"),
        (("--label", "died", "--entry", "entry"), "give --time and --event, or none"),
        (("--label", "sex", "--time", "months", "--event", "died"), "give either --label"),
        (("--time", "months", "--event", "age"), "other values than 0 and 1"),
    ],
)
def test_half_a_stay_is_no_schema(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    table().to_csv(tmp_path / "sample.csv", index=False)
    told = cohort("schema", "init", tmp_path / "sample.csv", *options)
    assert told.exit_code == 2 and words in " ".join(told.stderr.split())


@pytest.mark.parametrize("bins", [None, 37, 500])
def test_rows_that_leave_before_they_enter_or_in_the_same_bin_count_nowhere(
    bins: int | None,
) -> None:
    """However wide the bins are: every figure is that of the table without such rows."""
    rng = np.random.default_rng(3)
    rows = 700
    arm, age = rng.choice(["a", "b"], rows), rng.uniform(40, 90, rows).round()
    death, leaves = rng.exponential(800, rows), rng.uniform(100, 2380, rows)
    days = np.ceil(np.minimum(death, leaves))
    entry = np.where(rng.random(rows) < 0.1, days, rng.integers(0, 60, rows)).astype(float)
    columns = {"days": days, "died": (death <= leaves).astype(int), "age": age, "arm": arm}
    table = pd.DataFrame({**columns, "entry": entry, "site": rng.choice(list("pqrs"), rows)})
    table.loc[0, "days"], table.loc[0, "entry"] = 2380, 0  # the ranges are those of all rows
    ends = table[["entry", "days"]] * (bins or 500) / 2380
    ends = np.ceil(ends - 1e-9)
    counts = table[ends.entry < ends.days]
    named: dict[str, Any] = {"time": "days", "event": "died", "entry": "entry", "bins": bins}
    assert 50 < len(table) - len(counts) < 200
    all_, own = (cox(each, curves="arm", split="by:site", **named) for each in (table, counts))
    for one, other in zip(all_.rows(), own.rows(), strict=True):
        assert one.pop("name") == other.pop("name")
        assert one == pytest.approx(other, rel=1e-6)
    assert all_.num_rows == own.num_rows == len(counts)
    for one, other in ((all_.adjusted, own.adjusted), (all_.hazard, own.hazard)):
        for name, curve in one.items():
            np.testing.assert_allclose(curve, other[name], atol=1e-9)
    assert any("count nowhere" in note for note in all_.notes)
    assert not any("count nowhere" in note for note in own.notes)
    pair = (
        survival(each, by="arm", tau=1000.0, split="by:site", **named) for each in (table, counts)
    )
    all_, own = pair
    assert all_.rows() == own.rows() and all_.test == own.test
    assert sum(row["rows"] for row in all_.rows()) == len(counts)
    numbers = counts.assign(arm=counts.arm == "b")
    numbers = numbers.drop(columns="site").astype(float)
    exact = CoxPHFitter().fit(numbers, "days", "died", entry_col="entry")
    gaps = (cox(table, split="by:site", **named).coef - exact.params_) / exact.standard_errors_
    assert np.abs(gaps).max() < (0.1 if bins == 37 else 0.02)


@pytest.mark.parametrize("days", [1, 7, 28, 70])
def test_curves_of_late_entries_are_lifelines_on_any_grid(days: int) -> None:
    """With times and entries at the ends of their bins; of exact times within .02, of 400 rows."""
    rng = np.random.default_rng(7)
    death, leaves = rng.exponential(400, 900), rng.uniform(100, 2800, 900)
    stays = {"days": np.ceil(np.minimum(death, leaves)), "died": death <= leaves}
    table = pd.DataFrame({**stays, "entry": rng.integers(0, 700, 900), "x": rng.random(900)})
    table = table[table.entry < table.days].assign(site="p").astype({"died": int})
    table.iloc[::2, -1] = "q"
    table.iloc[0, :3] = 2800, 0, 0
    asked: dict[str, Any] = {"time": "days", "event": "died", "entry": "entry", "begin": 140.0}
    found = survival(table, bins=2800 // days, split="by:site", tau=1400.0, **asked).curves["all"]
    own = table.assign(**{name: -(-table[name] // days) * days for name in ("days", "entry")})
    curves = []
    for rows in (own, table):
        lived = rows[(rows.days > 140) & (rows.entry < rows.days)]
        lived = lived.assign(entry=lived.entry.clip(lower=140))
        # Of lifelines who enters at a time is at risk at it; here, as in R, after it.
        curves.append(KaplanMeierFitter().fit(lived.days, lived.died, entry=lived.entry + 0.5))
    inside = (found.times > 140) & (found.times <= found.end)
    same, exact = (curve.predict(found.times[inside]).to_numpy() for curve in curves)
    np.testing.assert_allclose(found.survival[inside], same, rtol=0, atol=1e-9)
    off = np.abs(found.survival[inside] - exact)
    assert off.max() < (1e-9 if days == 1 else 0.02)  # those of whole bins are off by .045


@pytest.mark.parametrize("epsilon", [None, 8.0])
def test_a_column_of_two_numbers_makes_two_groups(epsilon: float | None) -> None:
    """Those of a column with two categories, the lower first; and strata."""
    rng, rows = np.random.default_rng(4), 900
    flag, age = rng.integers(0, 2, rows), rng.uniform(40, 90, rows).round()
    months = np.minimum(rng.exponential(30 + 20 * flag, rows), 59).round()
    table = pd.DataFrame(
        {"months": months, "died": (months < 59).astype(int), "age": age, "flag": flag}
    ).assign(site=rng.choice(list("pqr"), rows))
    coded = table.assign(flag=np.where(flag == 1, "1", "0"))
    asked: dict[str, Any] = {"time": "months", "event": "died", "split": "by:site", "seed": 1}
    one, other = (survival(each, by="flag", epsilon=epsilon, **asked) for each in (table, coded))
    assert [*one.curves] == [*other.curves] == ["0", "1"]
    if epsilon is None:
        assert one.rows() == other.rows() and one.test == other.test
        strata = (cox(each, strata="flag", **asked) for each in (table, coded))
        one_, other_ = strata
        np.testing.assert_allclose(one_.coef, other_.coef, atol=1e-9)
        assert {*one_.hazard} == {*other_.hazard} == {"0", "1"}
        one, other = (
            survival(each.assign(flag=each.flag.where(each.index % 9 > 0)), by="flag", **asked)
            for each in (table, coded)
        )
        assert [*one.curves] == [*other.curves] == ["0", "1", "missing"]
        assert one.rows() == other.rows() and one.test == other.test
        with pytest.raises(ParameterError, match="and no groups"):
            survival(table, by="age", **asked)


RARE: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "few events": lambda rows: rows.assign(died=((rows.index > 6) & (rows.index < 14)).astype(int)),
    "few without": lambda rows: rows.assign(died=np.where(rows.index < 4, 0, 1)),
}


@pytest.mark.parametrize("rare", RARE)
def test_no_count_below_ten_and_none_as_near_to_another(rare: str) -> None:
    """Of curves and of a Cox model; of rows in categories, and of one of two numbers, neither."""
    rng = np.random.default_rng(8)
    size = 400
    rows = RARE[rare](
        pd.DataFrame(
            {
                **{"months": rng.integers(1, 60, size).astype(float), "died": 0},
                **{"arm": rng.choice(["a", "b"], size), "ward": rng.choice(["x", "y"], size)},
                **{"age": rng.integers(30, 80, size).astype(float), "flag": 0.0},
                **{"site": rng.choice(["p", "q", "r"], size)},
            }
        )
    )
    rows.loc[[8, 108, 208], "arm"] = "c"
    rows.loc[[9, 109, 209], "flag"] = 1.0
    options: dict[str, Any] = {"time": "months", "event": "died", "split": "by:site"}
    found = cox(rows, **options)
    told = found.released()
    assert found.tables()[0].title == f"Cox regression of {size} rows, * events"
    assert told["inference_about"]["events"] is None and told["inference_about"]["rows"] == size
    means = told["covariate_means"]
    hidden = {name for name, mean in means.items() if mean is None}
    assert hidden == {"arm=b", "arm=c", "flag"}
    assert means["ward=y"] == pytest.approx((rows.ward == "y").mean())
    (group,) = survival(rows, **options, exclude=("arm", "ward", "age", "flag")).rows()
    assert group["rows"] == size and group["events"] is None
