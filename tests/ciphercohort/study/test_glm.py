"""Generalised linear models by secure sums: statsmodels' of the pooled rows."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.special import expit

from ciphercohort.after.sums import SumSeries, sums_wanted
from ciphercohort.study.asked import GlmOptions
from ciphercohort.study.glm import Glm, glm_by, with_ranges
from parties.kernel.study.glm import LINKS
from parties.reader.schema import NumericColumn, Schema, Targets
from parties.reader.shard import Shard, encode_shard
from parties.reader.views import by_range
from protocols.errors import ParameterError, SchemaError
from protocols.sums.plan import GradientPlan
from sims.prepare import inferred
from sims.study import glm
from tests.sims.model_runs import cohort

ROWS = 400
SITES = {"p": 0.0, "q": 0.5, "r": -0.4, "s": 0.2, "t": 0.8}
CASES = [(family, link) for family, links in LINKS.items() for link in links]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"weight": "w", "offset": "off"},
    {"site_intercepts": True},
]


@cache
def table(family: str) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    age, arm = rng.uniform(30, 90, ROWS).round(), rng.choice(list("abc"), ROWS)
    site, w = rng.choice(list(SITES), ROWS), rng.uniform(0.5, 3, ROWS)
    off = np.log(rng.uniform(0.5, 2, ROWS))
    z = 0.02 * (age - 60) + 0.5 * (arm == "b") - 0.4 * (arm == "c")
    mean = np.exp(z + np.array([SITES[each] for each in site]) + off)
    y = {
        "binomial": lambda: (rng.random(ROWS) < expit(np.log(mean))).astype(float),
        "poisson": lambda: rng.poisson(mean),
        "gaussian": lambda: np.log(mean) * 3 + rng.normal(0, 2, ROWS),
        "gamma": lambda: rng.gamma(2, mean / 2) + 1e-2,
        "negative-binomial": lambda: rng.negative_binomial(2, 2 / (2 + mean)),
    }[family]()
    return pd.DataFrame({"y": y, "age": age, "arm": arm, "w": w, "off": off, "site": site})


@dataclass(frozen=True, kw_only=True)
class Plain(SumSeries):
    """Sums of the rows of several sites, without a cipher."""

    shards: dict[str, Shard] = field(default_factory=dict)

    def ran(self, template: GradientPlan) -> tuple[GradientPlan, Any, str]:
        task: Any = template.task
        parts = [task.of_rows(each.x, each.y, name) for name, each in self.shards.items()]
        return template, np.sum(parts, axis=0) / self.rows, ""


def fitted(rows: pd.DataFrame, family: str, columns: tuple[str, ...] = (), **given: Any) -> Glm:
    named = ["y", *(given[name] for name in ("weight", "offset") if given.get(name))]
    left_out = tuple({"w", "off"} - {*named})
    schema = inferred(rows, named, [], exclude=(*left_out, "site"), missing="indicator")
    schema = with_ranges(schema, rows, family, "y", given.get("weight"))
    own = by_range(schema)
    shards = {name: encode_shard(each, own) for name, each in rows.groupby("site")}
    sizes = {name: each.rows for name, each in shards.items()}
    wanted = sums_wanted(None, 1e-5, 0)
    sums = Plain(schema=own, sizes=sizes, wanted=wanted, shards=shards, columns=columns)
    return glm_by(sums, GlmOptions(**{"target": "y", "family": family, **given}))


def design(rows: pd.DataFrame, *, sites: bool = False) -> pd.DataFrame:
    x = pd.DataFrame({"age": rows.age, "arm=b": rows.arm == "b", "arm=c": rows.arm == "c"})
    first = pd.get_dummies(rows.site) if sites else pd.DataFrame({"intercept": 1.0}, rows.index)
    return pd.concat([first, x], axis=1).astype(float)


def truth(rows: pd.DataFrame, family: str, link: str, alpha: float, **given: Any) -> Any:
    links = sm.families.links
    made = {
        "binomial": lambda: sm.families.Binomial(
            {"logit": links.Logit, "probit": links.Probit, "cloglog": links.CLogLog}[link]()
        ),
        "poisson": sm.families.Poisson,
        "gaussian": sm.families.Gaussian,
        "gamma": lambda: sm.families.Gamma(links.Log()),
        "negative-binomial": lambda: sm.families.NegativeBinomial(alpha=alpha),
    }[family]()
    model = sm.GLM(
        rows.y,
        design(rows, sites=bool(given.get("site_intercepts"))),
        family=made,
        var_weights=rows.w if given.get("weight") else None,
        offset=rows.off if given.get("offset") else None,
    )
    return model.fit(tol=1e-13, maxiter=300)


@pytest.mark.filterwarnings("ignore::statsmodels.tools.sm_exceptions.ConvergenceWarning")
@pytest.mark.parametrize("given", OPTIONS, ids=lambda given: ",".join(given) or "plain")
@pytest.mark.parametrize(("family", "link"), CASES)
def test_a_model_is_that_of_the_pooled_rows(family: str, link: str, given: dict[str, Any]) -> None:
    """Robust errors are R's: a sandwich around the expected information."""
    rows = table(family)
    found = fitted(rows, family, link=link, cluster=True, **given)
    due = truth(rows, family, link, found.alpha or 1.0, **given)
    names = list(found.names)
    np.testing.assert_allclose(found.coef, due.params[names], rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.errors["se"], due.bse[names], rtol=1e-6)
    assert found.deviance == pytest.approx(due.deviance, rel=1e-6)
    assert found.dispersion == pytest.approx(due.scale, rel=1e-6)
    scores = due.model.score_obs(due.params, scale=1.0)
    inverse = due.cov_params().to_numpy() / due.scale
    totals = np.array([scores[rows.site == site].sum(axis=0) for site in SITES])
    k = scores.shape[1]
    groups = len(SITES) / (len(SITES) - 1) * (ROWS - 1) / (ROWS - k)
    place = [list(due.params.index).index(name) for name in names]
    for name, middle in (
        ("robust_se", scores.T @ scores),
        ("cluster_se", groups * totals.T @ totals),
    ):
        errors = np.sqrt(np.diag(inverse @ middle @ inverse))[place]
        np.testing.assert_allclose(found.errors[name], errors, rtol=1e-5)


@pytest.mark.parametrize("given", OPTIONS, ids=lambda given: ",".join(given) or "plain")
@pytest.mark.parametrize(("unit", "level"), [(1e4, -2e5), (1e-3, 50.0)])
def test_a_mean_of_any_size_is_found(unit: float, level: float, given: dict[str, Any]) -> None:
    """No score of a mean is cut, nor any step to it: costs are thousands, and so is their range."""
    rows = table("gaussian")
    off = rows.off if given.get("offset") else 0.0
    rows = rows.assign(y=unit * rows.y + level + 5 * unit * (rows.site == "q") + off)
    found = fitted(rows, "gaussian", **given)
    due = truth(rows, "gaussian", "identity", 1.0, **given)
    names = list(found.names)
    np.testing.assert_allclose(found.coef, due.params[names], rtol=1e-8)
    np.testing.assert_allclose(found.errors["se"], due.bse[names], rtol=1e-8)
    assert len(found.plans) <= 4


def test_of_usual_links_robust_errors_are_statsmodels_too() -> None:
    for family in ("binomial", "poisson", "gaussian"):
        rows = table(family)
        found = fitted(rows, family, cluster=True)
        model = truth(rows, family, next(iter(LINKS[family])), 1.0).model
        sites = {"groups": pd.factorize(rows.site)[0]}
        for name, kind, more in (("robust_se", "HC0", None), ("cluster_se", "cluster", sites)):
            due = model.fit(tol=1e-13, maxiter=300, cov_type=kind, cov_kwds=more)
            np.testing.assert_allclose(found.errors[name], due.bse[list(found.names)], rtol=1e-6)


def test_the_dispersion_of_counts_is_statsmodels() -> None:
    rows = table("negative-binomial")
    found = fitted(rows, "negative-binomial")
    due = sm.NegativeBinomial(rows.y, design(rows)).fit(disp=0, method="newton", maxiter=500)
    assert found.alpha == pytest.approx(due.params["alpha"], rel=1e-6)
    np.testing.assert_allclose(found.coef, due.params[list(found.names)], rtol=0, atol=1e-6)
    given = fitted(rows, "negative-binomial", alpha=0.3)
    held = truth(rows, "negative-binomial", "log", 0.3)
    np.testing.assert_allclose(given.coef, held.params[list(given.names)], rtol=0, atol=1e-6)
    with pytest.raises(ParameterError, match="take family poisson"):
        fitted(rows.assign(y=1.0 + (np.arange(ROWS) % 2)), "negative-binomial")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("mean", "alpha"),  # others are hardly told from a Poisson model's
    [(m, a) for m in (0.5, 2.0, 20.0, 300.0) for a in (0.05, 0.3, 2.0) if m * a > 0.2],
)
def test_counts_of_any_size_have_their_dispersion(mean: float, alpha: float) -> None:
    """Beside the maximum of both, by statsmodels' own counts."""
    rows = table("gaussian")
    rng = np.random.default_rng(8)
    level = mean * np.exp(0.02 * (rows.age - rows.age.mean()) + 0.3 * (rows.arm == "b"))
    rows["y"] = rng.poisson(level * rng.gamma(1 / alpha, alpha, ROWS)).astype(float)
    found = fitted(rows, "negative-binomial")
    x = design(rows)
    due = sm.NegativeBinomial(rows.y, x).fit(
        start_params=[*sm.GLM(rows.y, x, family=sm.families.Poisson()).fit().params, alpha],
        method="newton", maxiter=200, disp=0,
    )  # fmt: skip
    assert found.alpha == pytest.approx(due.params["alpha"], rel=1e-4)
    names = list(found.names)
    assert (np.abs(found.coef - due.params[names]) / due.bse[names]).max() < 1e-3
    assert len(found.plans) <= 12


def test_a_site_with_one_outcome_alone_has_no_intercept_and_adds_nothing() -> None:
    rows = table("binomial")
    rows = rows.assign(y=np.where(rows.site == "p", 1.0, rows.y))
    found = fitted(rows, "binomial", site_intercepts=True)
    rest = rows[rows.site != "p"]
    due = truth(rest, "binomial", "logit", 1.0, site_intercepts=True)
    np.testing.assert_allclose(found.coef, due.params[list(found.names)], rtol=0, atol=1e-6)


def test_a_simulation_opens_the_same_sums(tmp_path: Path) -> None:
    rows = table("poisson")
    due = fitted(rows, "poisson", offset="off")
    rows.drop(columns="w").to_csv(tmp_path / "rows.csv", index=False)
    given = ("--data", tmp_path / "rows.csv", "--target", "y", "--offset", "off", "--family")
    shown = cohort("glm", *given, "poisson", "--split", "by:site", "--out", tmp_path / "out")
    assert shown.exit_code == 0, shown.output
    told = json.loads((tmp_path / "out" / "glm.json").read_text())
    assert [row["name"] for row in told["inference"]] == ["intercept", "age", "arm=b", "arm=c"]
    np.testing.assert_allclose([row["coef"] for row in told["inference"]], due.coef, atol=1e-8)
    for row in told["inference"]:
        assert row["ratio"] == pytest.approx(math.exp(row["coef"]))
    assert told["EXACT SUMS"] and told["inference_about"]["offset"] == "off"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("glm.csv", "glm.json", "glm.tex", "ratios.svg", "report.html")
    }
    assert "poisson regression of y (log)" in shown.stdout


@pytest.mark.parametrize(
    ("change", "given", "words"),
    [
        ({}, {"family": "tweedie"}, "is not one of"),
        ({}, {"family": "poisson", "link": "logit"}, "of poisson is not log"),
        ({}, {"alpha": 1.0}, "of the negative binomial"),
        ({"site": "p"}, {"cluster": True}, "4 or more"),
        ({"y": 0.0}, {"family": "poisson"}, "same value"),
        ({"y": 2.0}, {}, "other values than 0 and 1"),
        ({"y": -1.0}, {"family": "poisson"}, "negative somewhere"),
        ({"y": 0.0}, {"family": "gamma"}, "0 or less"),
    ],
)
def test_what_has_no_model_is_refused(
    change: dict[str, Any], given: dict[str, Any], words: str
) -> None:
    rows = table("binomial").assign(**change)
    if "site" in change:
        rows["site"] = rows.site.where(np.arange(ROWS) % 2 == 0, "q")
    rows.iloc[0, 0] = rows.y.iloc[0] if words != "0 or less" else 0.0
    with pytest.raises((ParameterError, SchemaError), match=words):
        fitted(rows, **({"family": "binomial"} | given))


def test_names_of_columns_that_are_no_targets_are_refused() -> None:
    rows = table("binomial").drop(columns=["w", "off"])
    for given, words in (
        ({"target": None}, "name a column"),
        ({"target": "died"}, "is not a column"),
        ({"target": "y", "epsilon": 1.0}, "exact sums"),
    ):
        with pytest.raises((ParameterError, SchemaError), match=words):
            glm(rows, split="by:site", **given)  # type: ignore[arg-type]


def test_a_column_that_separates_outcomes_is_named() -> None:
    rows = table("binomial")
    with pytest.raises(ParameterError, match="flag.* separates the outcomes"):
        fitted(rows.assign(flag=np.where(rows.y == 1, 1.0, 0.0)), "binomial")


@pytest.mark.parametrize(
    ("family", "low", "high", "words"),
    [
        ("binomial", 0.0, 50_000.0, "from 0 to 50000 .* is 0 or 1"),
        ("binomial", -1.0, 1.0, "0 or 1"),
        ("poisson", -1.0, 5.0, "0 or more"),
        ("negative-binomial", -1.0, 5.0, "0 or more"),
        ("gamma", 0.0, 5.0, "above 0"),
    ],
)
def test_a_target_whose_range_is_not_of_the_family_is_named_before_a_sum(
    family: str, low: float, high: float, words: str, tmp_path: Path
) -> None:
    Schema(
        columns=(NumericColumn("x", 0.0, 1.0),),
        label=Targets(columns=(NumericColumn("salary", low, high),)),
        scaling="range",
    ).save(tmp_path / "schema.json")
    rows = pd.DataFrame({"x": [0.1, 0.5, 0.9] * 10, "salary": [1.0, 0.0, 1.0] * 10})
    with pytest.raises(ParameterError, match=f"target='salary'.*{words}.*--family"):
        glm(rows, schema=tmp_path / "schema.json", family=family, split="even")
