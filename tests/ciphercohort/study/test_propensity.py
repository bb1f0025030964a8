"""Rows that weigh by propensities: statsmodels' models of the pooled rows with those weights."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.special import expit

from ciphercohort.after.sums import sums_wanted
from ciphercohort.study.asked import GlmOptions
from ciphercohort.study.glm import Glm, glm_by
from parties.kernel.study.glm import TARGETS
from parties.reader.schema import NumericColumn, Schema
from parties.reader.shard import encode_shard
from parties.reader.views import by_range
from protocols.errors import ParameterError, SchemaError
from sims.prepare import inferred
from sims.study import glm
from tests.ciphercohort.study.test_glm import Plain, fitted
from tests.sims.model_runs import cohort

ROWS, TRIM = 600, 0.15
ESTIMANDS = ("ate", "att", "overlap")
FAMILIES = {
    "gaussian": sm.families.Gaussian,
    "binomial": sm.families.Binomial,
    "poisson": sm.families.Poisson,
}


def table(family: str, seed: int = 3, rows: int = ROWS, effect: float = 0.5) -> pd.DataFrame:
    """The treatment is given to the old and to men, whose outcomes are larger."""
    rng = np.random.default_rng(seed)
    age, sex = rng.uniform(30, 90, rows).round(), rng.choice(["f", "m"], rows)
    z = (age - 60) / 15 + (sex == "m")
    treated = rng.random(rows) < expit(0.9 * z - 0.4)
    eta = 0.3 * z + effect * treated
    y = {
        "gaussian": lambda: eta + rng.normal(0, 1, rows),
        "binomial": lambda: (rng.random(rows) < expit(eta)).astype(float),
        "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
    }[family]()
    return pd.DataFrame(
        {
            **{"y": y, "age": age, "sex": sex, "arm": np.where(treated, "b", "a")},
            **{"w": rng.uniform(0.5, 3, rows), "off": 0.0, "site": rng.choice(list("pqrs"), rows)},
        }
    )


def over(rows: pd.DataFrame, schema: Schema, columns: tuple[str, ...] = ()) -> Plain:
    """Sums over the rows of every site, in the clear."""
    own = by_range(schema)
    shards = {str(name): encode_shard(each, own) for name, each in rows.groupby("site")}
    sizes = {name: each.rows for name, each in shards.items()}
    wanted = sums_wanted(None, 1e-5, 0)
    return Plain(schema=own, sizes=sizes, wanted=wanted, shards=shards, columns=columns)


def design(rows: pd.DataFrame, *names: str) -> pd.DataFrame:
    found = {"age": rows.age, "sex=m": rows.sex == "m", "arm=b": rows.arm == "b"}
    return sm.add_constant(pd.DataFrame({name: found[name] for name in names}).astype(float))


def weights(rows: pd.DataFrame, estimand: str, trim: float = TRIM) -> tuple[Any, np.ndarray]:
    """The model of the treatment, and w."""
    t = (rows.arm == "b").astype(float)
    model = sm.GLM(t, design(rows, "age", "sex=m"), family=sm.families.Binomial()).fit(tol=1e-13)
    p = np.clip(model.fittedvalues, trim, 1 - trim)
    own = {
        "ate": t / p + (1 - t) / (1 - p),
        "att": t + (1 - t) * p / (1 - p),
        "overlap": t * (1 - p) + (1 - t) * p,
    }[estimand]
    return model, own.to_numpy()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("more", [{}, {"weight": "w"}], ids=["plain", "weight"])
@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_weighted_model_is_that_of_the_pooled_rows(
    family: str, estimand: str, more: dict[str, Any]
) -> None:
    """Errors are HC0 of a model whose rows have these weights."""
    rows = table(family)
    asked = {"propensity": "arm=b", "estimand": estimand, "trim": TRIM, **more}
    found = fitted(rows, family, ("arm",), **asked)
    model, w = weights(rows, estimand)
    w = w * (rows.w if more else 1.0)
    x = design(rows, "arm=b")
    due = sm.GLM(rows.y, x, family=FAMILIES[family](), var_weights=w).fit(tol=1e-13, cov_type="HC0")
    names = ["const", "arm=b"]
    np.testing.assert_allclose(found.coef, due.params[names], rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.errors["robust_se"], due.bse[names], rtol=1e-6)
    assert found.weighting is not None
    own = found.weighting.model
    order = ["const", "age", "sex=m"]
    np.testing.assert_allclose(own.coef, model.params[order], rtol=0, atol=1e-6)
    np.testing.assert_allclose(own.errors["se"], model.bse[order], rtol=1e-6)


@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("arms", [("a", "b"), ("b", "a"), ("new", "usual"), ("usual", "new")])
def test_the_effect_is_that_of_the_arm_that_was_asked_for(
    arms: tuple[str, str], estimand: str
) -> None:
    """Wherever its category stands in the schema: the other is compared with."""
    treated, other = arms
    rows = table("gaussian")
    named = rows.assign(arm=np.where(rows.arm == "b", treated, other))
    found = fitted(
        named, "gaussian", ("arm",), propensity=f"arm={treated}", estimand=estimand, trim=TRIM
    )
    _, w = weights(rows, estimand)
    due = sm.WLS(rows.y, sm.add_constant((rows.arm == "b").astype(float)), weights=w).fit()
    assert found.names == ("intercept", f"arm={treated}")
    np.testing.assert_allclose(found.coef, due.params, atol=1e-6)
    assert f"reference: arm {other}" in found.notes


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_arms_are_those_of_the_weighted_rows(estimand: str) -> None:
    """Effective rows, and differences over the spread of both arms before rows weigh."""
    rows = table("gaussian").assign(arm=lambda own: own.arm.map({"b": 1, "a": 0}))
    found = fitted(rows, "gaussian", ("arm",), propensity="arm", estimand=estimand, trim=TRIM)
    named = rows.assign(arm=rows.arm.map({1: "b", 0: "a"}))
    model, w = weights(named, estimand)
    t, own = rows.arm.to_numpy() == 1, found.weighting
    assert own is not None and found.names == ("intercept", "arm")
    told = own.released()
    p = model.fittedvalues
    assert told["clipped"] == ((p < TRIM) | (p > 1 - TRIM)).sum() > 10
    assert "weigh as at the end" in "".join(own.notes())
    for arm, mine in zip(told["arms"], (t, ~t), strict=True):
        assert arm["rows"] == mine.sum()
        assert arm["weights"] == pytest.approx(w[mine].sum())
        assert arm["effective_rows"] == pytest.approx(w[mine].sum() ** 2 / (w[mine] ** 2).sum())
    values = {"age": rows.age.to_numpy(), "sex=m": (rows.sex == "m").to_numpy(float)}
    for row in told["balance"]:
        x = values[row["name"]]
        flag = row["name"] != "age"
        spread = math.sqrt(np.mean([x[mine].var(ddof=1 - flag) for mine in (t, ~t)]))
        for prefix, u in (("", np.ones(ROWS)), ("weighted_", w)):
            means = [np.average(x[mine], weights=u[mine]) for mine in (t, ~t)]
            assert row[f"{prefix}mean"] == pytest.approx(means[0])
            assert row[f"{prefix}mean_others"] == pytest.approx(means[1])
            gap = (means[0] - means[1]) / spread
            assert row[f"{prefix}difference"] == pytest.approx(gap, abs=1e-9)


def test_weights_take_out_what_the_treatment_went_by() -> None:
    """The crude effect is far off, the weighted one within its error of what rows were made by."""
    rows = table("gaussian", seed=1, rows=8000)
    weighted = fitted(rows, "gaussian", ("arm",), propensity="arm=b")
    crude = fitted(rows, "gaussian", ("arm",))
    (_, bias), (_, effect) = crude.coef, weighted.coef
    error = float(weighted.errors["se"][1])
    assert bias > 0.5 + 10 * crude.errors["se"][1] and abs(effect - 0.5) < 2 * error < 0.1
    assert weighted.weighting is not None
    assert weighted.weighting.largest("weighted_difference") < 0.1
    assert weighted.weighting.largest("difference") > 0.5
    (row,) = (each for each in weighted.rows() if each["name"] == "arm=b")
    assert row["se"] == row["robust_se"] == pytest.approx((row["high"] - row["coef"]) / 1.959964)
    assert "robust std err" in weighted.tables()[0].heads
    assert [each.name for each in weighted.tables()] == ["glm", "propensity", "balance"]


def test_cells_of_few_rows_are_not_shown() -> None:
    """Neither as a mean, nor by a difference; and so many rows that are clipped."""
    rows = table("gaussian")
    rare = np.where(np.arange(ROWS) % 61 == 0, "m", "f")
    found = fitted(rows.assign(sex=rare), "gaussian", ("arm",), propensity="arm=b")
    assert found.weighting is not None
    age, sex = found.weighting.balance()
    assert math.isfinite(age["difference"]) and sex.pop("name") == "sex=m"
    assert all(math.isnan(each) for each in sex.values())


def test_few_held_probabilities_are_not_counted() -> None:
    rows = table("gaussian")
    model, _ = weights(rows, "ate")
    ends = np.minimum(model.fittedvalues, 1 - model.fittedvalues)
    for least, most, words in ((0, 0, ""), (1, 9, "fewer than 10 rows"), (10, 40, "{} rows")):
        counts = {(ends < trim).sum(): trim for trim in np.unique(ends) - 1e-9}
        count, trim = next((n, each) for n, each in counts.items() if least <= n <= most)
        found = fitted(rows, "gaussian", ("arm",), propensity="arm=b", trim=float(trim))
        assert found.weighting is not None
        told, notes = found.weighting.released()["clipped"], [*found.weighting.warnings()]
        assert told == (None if 0 < count < 10 else count)
        assert [note.split(" have")[0] for note in notes] == [words.format(count)] * bool(count)


@pytest.mark.parametrize("column", ["age", "sex"])
def test_a_column_is_as_hidden_as_its_missing_cells(column: str) -> None:
    """Few of them, or few of a category beside many: means of the column tell of these, too."""
    rows = table("gaussian")
    few = np.arange(ROWS) % 151 == 0
    rows[column] = rows[column].where(~few, None)
    found = fitted(rows, "gaussian", ("arm",), propensity="arm=b")
    assert found.weighting is not None
    told = {row.pop("name"): row for row in found.weighting.balance()}
    assert f"{column}=missing" in told
    for name, row in told.items():
        assert all(map(math.isnan, row.values())) == name.startswith(column), name


@pytest.mark.parametrize("missing", ["none", "indicator", "typical", "indicator of none"])
@pytest.mark.parametrize("few", [False, True])
def test_cells_of_two_numbers_are_counted_as_those_of_categories(few: bool, missing: str) -> None:
    """By the schema, whatever stands for missing cells; where these are not counted, nothing is."""
    rows = table("gaussian").drop(columns=["w", "off"])
    flag = (np.arange(ROWS) % (97 if few else 4) == 0).astype(float)
    empty = (np.arange(ROWS) % 5 == 1) & (missing in ("indicator", "typical"))
    rows["flag"] = pd.Series(flag).where(~empty)
    fill = "typical" if missing == "typical" else "indicator"
    schema = inferred(rows, ["y"], [], exclude=("site",), missing=fill)
    (own,) = (column for column in schema.columns if column.name == "flag")
    assert isinstance(own, NumericColumn) and own.binary
    if missing == "indicator of none":
        told = msgspec.structs.replace(own, missing="indicator")
        schema = replace(schema, columns=tuple(told if c is own else c for c in schema.columns))
    sums = over(rows, schema, ("arm",))
    found = glm_by(sums, GlmOptions(target="y", family="gaussian", propensity="arm=b"))
    assert found.weighting is not None
    told = {row.pop("name"): row for row in found.weighting.balance()}
    assert all(map(math.isnan, told["flag"].values())) == (few or missing == "typical")
    assert math.isfinite(told["age"]["difference"])
    if not few and missing == "none":
        treated = rows[rows.arm == "b"]
        assert told["flag"]["mean"] == pytest.approx(treated.flag.mean())


def test_what_is_named_and_left_out_is_refused() -> None:
    options = GlmOptions(propensity="arm=b", propensity_columns=("age", "sex"))
    with pytest.raises(ParameterError, match="exclude='sex' is also in propensity_columns"):
        options.settled(("age", "sex", "arm"), ("sex",))


def test_a_target_beyond_those_that_rows_can_name_is_refused() -> None:
    """Its place is that of a feature."""
    rows = table("gaussian").drop(columns=["w", "off"])
    names = [f"t{k}" for k in range(TARGETS + 2)]
    rows = rows.assign(**{name: rows.y + k for k, name in enumerate(names)})
    for name in names:
        asked: dict[str, Any] = {"target": name, "family": "gaussian"}
        schema = inferred(rows, names, [], exclude=("site", "y"))
        sums = over(rows, schema)
        if names.index(name) < TARGETS:
            assert glm_by(sums, GlmOptions(**asked)).coef[0] > names.index(name) - 3
            continue
        with pytest.raises(ParameterError, match=f"target='{name}' is beyond the first 8 targets"):
            glm_by(sums, GlmOptions(**asked))


def test_how_errors_take_weights_is_said_of_each_estimand() -> None:
    rows = table("gaussian")
    for estimand in ESTIMANDS:
        found = fitted(rows, "gaussian", ("arm",), propensity="arm=b", estimand=estimand)
        assert found.weighting is not None
        told = "".join(found.weighting.basis())
        assert ("too wide" in told) == (estimand == "ate")
        assert ("may narrow or widen" in told) == (estimand != "ate")


@pytest.mark.parametrize(
    ("change", "given", "words"),
    [
        ({}, {"propensity": "arm=c"}, "no other group"),
        ({}, {"propensity": "age"}, "and no groups"),
        ({}, {"propensity": "y"}, "target of the schema"),
        ({}, {"propensity": "arm=b", "target": "arm=b"}, "column is the outcome"),
        ({}, {"propensity": "arm=b", "estimand": "atc"}, "estimand='atc' is not one of"),
        ({}, {"propensity": "arm=b", "trim": 0.6}, "trim=0.6"),
        ({}, {"propensity": "arm=b", "propensity_columns": "arm"}, "none of the other columns"),
        ({}, {"trim": 0.1}, "propensity alone"),
        ({"arm": "few"}, {"propensity": "arm=b"}, "fewer than 10 rows"),
        ({"arm": "missing"}, {"propensity": "arm=b"}, "may be missing"),
        ({"arm": "old"}, {"propensity": "arm=b"}, "propensity of arm=b: .*separates"),
        ({"arm": "three"}, {"propensity": "arm=b"}, "3 categories, and arms are two"),
    ],
)
def test_what_has_no_weights_is_refused(
    change: dict[str, Any], given: dict[str, Any], words: str
) -> None:
    rows = table("binomial")
    arms = {
        "few": lambda: np.where(np.arange(ROWS) % 100 == 0, "b", "a"),
        "missing": lambda: rows.arm.where(np.arange(ROWS) % 50 > 0, None),
        "old": lambda: np.where(rows.age > 60, "b", "a"),
        "three": lambda: np.where(np.arange(ROWS) % 3 == 0, "c", rows.arm),
    }
    own = change.get("arm")
    rows = rows.assign(arm=arms[own]() if own else rows.arm)
    with pytest.raises(ParameterError, match=words):
        fitted(rows, "binomial", **given)


def test_a_target_may_be_a_category(tmp_path: Path) -> None:
    """In a simulation without a schema, too; the treatment's own model."""
    rows = table("binomial").drop(columns=["w", "off"])
    model, _ = weights(rows, "ate")
    names = ["const", "age", "sex=m"]
    for schema in (None, tmp_path / "schema.json"):
        if schema is not None:
            inferred(rows, ["y"], [], exclude=("site",), missing="indicator").save(schema)
        exclude = ("y",) if schema is None else ()
        found = glm(rows, target="arm=b", split="by:site", schema=schema, exclude=exclude)
        assert isinstance(found, Glm) and found.target == "arm=b"
        np.testing.assert_allclose(found.coef, model.params[names], rtol=0, atol=1e-6)
    for name, words in (("arm=c", "no other group"), ("arms=b", "'arms' is not a column")):
        with pytest.raises((ParameterError, SchemaError), match=words):
            glm(rows, target=name, split="by:site")


def test_a_simulation_takes_all_columns_for_its_propensities(tmp_path: Path) -> None:
    rows = table("binomial").drop(columns=["w", "off"])
    rows.to_csv(tmp_path / "rows.csv", index=False)
    given = ("--data", tmp_path / "rows.csv", "--target", "y", "--include", "arm")
    more = ("--propensity", "arm=b", "--split", "by:site", "--out", tmp_path / "out")
    shown = cohort("glm", *given, *more)
    assert shown.exit_code == 0, shown.output
    told = json.loads((tmp_path / "out" / "glm.json").read_text())
    due = fitted(table("binomial"), "binomial", ("arm",), propensity="arm=b")
    assert [row["name"] for row in told["inference"]] == ["intercept", "arm=b"]
    np.testing.assert_allclose([row["coef"] for row in told["inference"]], due.coef, atol=1e-8)
    assert [row["name"] for row in told["propensity"]["inference"]] == ["intercept", "age", "sex=m"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("glm.csv", "glm.json", "glm.tex", "ratios.svg", "report.html"),
        *("propensity.csv", "propensity.tex", "balance.csv", "balance.tex", "balance.svg"),
    }
    assert "Propensity of arm=b" in shown.stdout and "effective rows" in shown.stdout
    weights_alone = ("--propensity-columns", "sex", "--estimand", "att", "--trim", "0.2")
    assert cohort("glm", *given, *more[:-2], *weights_alone).exit_code == 0


@pytest.mark.parametrize("more", [(), ("age",)])
def test_what_is_excluded_is_in_neither_model(more: tuple[str, ...]) -> None:
    """Of a simulation and of a deployment, whose schema stands."""
    rows = table("binomial").drop(columns=["w", "off"]).assign(bmi=np.arange(ROWS) % 7)
    given: dict[str, Any] = {"propensity": "arm=b", "propensity_columns": more}
    found = glm(rows, target="y", split="by:site", exclude=("sex",), **given)
    assert isinstance(found, Glm) and found.weighting
    known = ("age", "sex", "arm", "bmi")
    options = GlmOptions(**given).settled(known, ("sex",))
    assert found.weighting.treatment.model.names == (*options.propensity_columns,)
    assert {"sex=m"}.isdisjoint(found.names)


def test_rare_arms_cost_no_precision() -> None:
    """Of parties' sums, whose range is that of rows that weigh 10,000: they stood beside those."""
    rows = table("gaussian", rows=300)
    rows["y"] *= 1e4
    given: dict[str, Any] = {"propensity": "arm=b", "trim": 1e-4, "weight": "w"}
    due = fitted(rows, "gaussian", ("arm",), **given)
    rows, family = rows.drop(columns="off"), "gaussian"
    found = glm(rows, target="y", family=family, include=("arm",), split="by:site", **given)
    assert isinstance(found, Glm)
    np.testing.assert_allclose(found.coef, due.coef, rtol=1e-10)
    np.testing.assert_allclose(found.errors["se"], due.errors["se"], rtol=1e-8)
