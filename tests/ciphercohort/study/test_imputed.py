"""Fits of imputed rows, pooled: statsmodels' multiple imputation of the same rows."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from statsmodels.imputation.bayes_mi import MI

from ciphercohort.after.sums import sums_wanted
from ciphercohort.study.asked import CoxOptions, GlmOptions
from ciphercohort.study.glm import glm_by
from ciphercohort.study.imputed import Pooled, imputed_by
from ciphercohort.study.private_cox import hazards_by
from parties.reader.imputation import drawn
from parties.reader.infer import infer_schema
from parties.reader.schema import NumericColumn, Schema, Targets
from parties.reader.views import Views, by_range, encode_with_views
from protocols.errors import ParameterError, SchemaError
from sims.study import glm
from tests.ciphercohort.study.test_glm import Plain
from tests.sims.model_runs import cohort

ROWS, DRAWS = 500, 4
NAMES = ("age", "bmi", "stage=II")


@cache
def table() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    age = rng.uniform(30, 90, ROWS).round()
    bmi = 25 + 0.1 * (age - 60) + rng.normal(0, 3, ROWS)
    stage = pd.Series(np.where(rng.random(ROWS) < 0.4, "II", "I"), dtype=object)
    death = rng.exponential(30 * np.exp(-0.08 * (bmi - 25) - 0.5 * (stage == "II")))
    leaves = rng.uniform(10, 60, ROWS)
    months, died = np.ceil(np.minimum(death, leaves)), (death <= leaves).astype(int)
    found = {"months": months, "died": died, "age": age, "bmi": bmi.round(1), "stage": stage}
    frame = pd.DataFrame(found).assign(site=rng.choice(list("pqr"), ROWS))
    frame.loc[rng.random(ROWS) < 0.3, "bmi"] = np.nan
    frame.loc[rng.random(ROWS) < 0.2, "stage"] = None
    return frame


@dataclass(frozen=True, kw_only=True)
class Drawn(Plain):
    """With views of rows whose cells are missing."""

    views: dict[str, Views] = field(default_factory=dict)

    def drawn(self, draw: int) -> Drawn:
        own = drawn(self.schema, draw)
        return replace(self, schema=own, shards={n: v.imputed(own) for n, v in self.views.items()})


@cache
def schema() -> Schema:
    own = infer_schema(
        table().drop(columns="site"),
        ["months", "died"],
        scaling="range",
        row_norm=None,
        missing="typical",
        impute=DRAWS,
    )
    ends = {"months": 60.0, "died": 1.0}
    label = Targets(columns=tuple(NumericColumn(n, 0.0, high) for n, high in ends.items()))
    return replace(own, label=label)


def sums(epsilon: float | None = None) -> Drawn:
    parts = {str(name): rows for name, rows in table().groupby("site")}
    views = {n: encode_with_views(rows, schema(), coins=n.encode())[1] for n, rows in parts.items()}
    sizes = {name: len(rows) for name, rows in parts.items()}
    return Drawn(
        schema=by_range(schema()),
        sizes=sizes,
        wanted=sums_wanted(epsilon, 1e-5, 0),
        views=views,
    )


class Frames:
    """What statsmodels' imputation gives, one after the other: our owners' own rows."""

    def __init__(self) -> None:
        self._each = iter(range(1, DRAWS + 1))

    def update(self) -> None:
        rows = sums().drawn(next(self._each))
        shift, scale = rows.schema.affine()
        x = np.concatenate([shard.x[:, :-1] for shard in rows.shards.values()])
        y = np.concatenate([shard.y for shard in rows.shards.values()])
        self.data = pd.DataFrame(shift + scale * x, columns=list(rows.schema.expanded_names))
        self.data[["months", "died"]] = y * [60.0, 1.0]


def anchor(model: Any, **kwds: Any) -> tuple[Any, Any, Any]:
    """Coefficients, errors, and the share of variance between draws."""
    args = [kwds.pop("args")]
    found = MI(Frames(), model, *args, burn=0, nrep=DRAWS, skip=0, **kwds).fit()
    return found.params, np.sqrt(np.diag(found.cov_params())), found.fmi


@cache
def fitted(kind: str) -> Pooled:
    if kind == "cox":
        found = imputed_by(hazards_by, sums(), CoxOptions(imputations=DRAWS))
    else:
        asked = GlmOptions(target="died", family=kind, imputations=DRAWS)
        found = imputed_by(glm_by, sums(), asked)
    assert isinstance(found, Pooled)
    return found


FAMILIES = {"binomial": sm.families.Binomial, "gaussian": sm.families.Gaussian}


@pytest.mark.parametrize("kind", ["cox", *FAMILIES])
def test_pooled_figures_are_those_of_statsmodels(kind: str) -> None:
    """Of the same imputed rows; its `fmi` is lambda, the share of variance between draws."""
    if kind == "cox":
        due = anchor(
            sm.PHReg,
            args=lambda d: (d.months, d[list(NAMES)]),
            model_kwds_fn=lambda d: {"status": d.died, "ties": "efron"},
        )
    else:
        due = anchor(
            sm.GLM,
            args=lambda d: (d.died, sm.add_constant(d[list(NAMES)])),
            model_kwds_fn=lambda d: {"family": FAMILIES[kind]()},
        )
    rows = fitted(kind).rows()
    assert [row["name"] for row in rows][-3:] == list(NAMES)
    for row, coef, se, share in zip(rows, *due, strict=True):
        assert row["coef"] == pytest.approx(coef, rel=1e-6)
        assert row["se"] == pytest.approx(se, rel=1e-6)
        # gamma = (r + 2 / (df + 3)) / (1 + r) of lambda = r / (1 + r)
        gamma = share + (1 - share) * 2 / (row["freedom"] + 3)
        assert row["fraction_missing"] == pytest.approx(gamma, rel=1e-6)


def test_degrees_of_freedom_are_between_those_of_draws_and_of_rows() -> None:
    """Barnard and Rubin: an example by hand, and the limits."""
    for row in fitted("gaussian").rows():
        share = 1 - (1 - row["fraction_missing"]) / (1 - 2 / (row["freedom"] + 3))
        f = ROWS - 4
        observed = (f + 1) / (f + 3) * f * (1 - share)
        old = (DRAWS - 1) / share**2
        assert row["freedom"] == pytest.approx(1 / (1 / old + 1 / observed), rel=1e-6)
        assert row["freedom"] < f
    assert fitted("cox").rows()[0]["freedom"] < table().died.sum()


@pytest.mark.parametrize("kind", ["cox", "binomial", "gaussian"])
def test_documents_have_the_pooled_table(kind: str) -> None:
    found = fitted(kind)
    files, told = dict(found.documents()), json.loads(json.dumps(found.released()))
    stem = "cox" if kind == "cox" else "glm"
    assert told["inference"] == found.rows() and len(told["fits"]) == DRAWS
    assert told["inference_about"]["imputations"] == DRAWS
    assert told["inference_about"]["rounds"] == len(told["plans"])
    shown = [f"{100 * row['fraction_missing']:.0f} %" for row in found.rows()]
    lines = files[f"{stem}.csv"].splitlines()[1:]
    assert [line.rpartition(",")[2] for line in lines] == shown
    assert f"{DRAWS} imputations" in files["report.html"]
    assert all(each.replace("%", r"\%") in files[f"{stem}.tex"] for each in shown)
    assert ("ratios.svg" in files) == (kind != "gaussian")
    assert "Rubin" in found.tables()[0].text()


@pytest.mark.parametrize(
    ("asked", "epsilon", "words"),
    [
        (CoxOptions(imputations=51), None, "not from 2 to 50"),
        (CoxOptions(imputations=2, curves="stage"), None, "curves are of one fit"),
        (CoxOptions(imputations=2), 1.0, "belongs to exact sums"),
    ],
)
def test_what_does_not_fit_is_refused(asked: CoxOptions, epsilon: float | None, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        imputed_by(hazards_by, sums(epsilon), asked)


def test_a_schema_without_models_is_refused() -> None:
    own = sums()
    own = replace(own, schema=replace(own.schema, imputation=None))
    with pytest.raises(SchemaError, match="schema init --missing typical --impute"):
        imputed_by(hazards_by, own, CoxOptions(imputations=2))


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema with models, by which a simulation draws and says how far it is; and its own."""
    rows = table().head(60)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    out, path = tmp_path / "schema.json", str(tmp_path / "rows.csv")
    options = ("--missing", "typical", "--impute", "3", "--exclude", "site", "--out", out)
    made = cohort("schema", "init", path, "--target", "months,died", *options)
    assert made.exit_code == 0, made.output
    assert "bmi, stage=II" in cohort("schema", "show", out).stdout
    asked = ("--family", "gaussian", "--imputations", "2", "--split", "by:site", "--json")
    told = list[tuple[str, int, int]]()
    saying = nullcontext(lambda *each: told.append(each))
    monkeypatch.setattr("ciphercohort.cli.progress.pulse", lambda console: saying)
    ran = cohort("glm", "--data", path, "--schema", out, "--target", "died", *asked)
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["inference_about"]["imputations"] == 2
    assert [each for each in told if each[0] == "draws"] == [("draws", 0, 2), ("draws", 1, 2)]
    sums = [done for unit, done, _ in told if unit == "sums"]
    assert sums == [*range(1, len(json.loads(ran.stdout)["plans"]) + 1)]
    left_out = {"exclude": ("died",), "split": "by:site"}
    found = glm(rows, target="months", family="gaussian", imputations=2, **left_out)
    assert isinstance(found, Pooled) and len(found.fits) == 2


@pytest.mark.parametrize(
    "asked",
    [{"target": "died", "propensity": "smoker"}, {"target": "died"}],
    ids=["treatment", "covariate"],
)
def test_a_column_of_two_numbers_is_drawn_as_one_of_two_categories(asked: dict[str, str]) -> None:
    """The same figures, whether a treatment or a covariate is coded so or so."""
    rng, rows = np.random.default_rng(6), 800
    age = rng.uniform(40, 80, rows).round()
    smokes = rng.random(rows) < 1 / (1 + np.exp(-(age - 60) / 10))
    died = (rng.random(rows) < 1 / (1 + np.exp(-(age - 60) / 20 - 0.7 * smokes))).astype(int)
    table = pd.DataFrame({"died": died, "age": age, "site": rng.choice(list("pqr"), rows)})
    gone = rng.random(rows) < 0.3
    category = pd.Series(np.where(smokes, "yes", "no"), dtype=object).where(~gone, None)
    number = pd.Series(smokes.astype(float)).where(~gone)
    found = []
    for column, name in ((number, "smoker"), (category, "smoker=yes")):
        given = {key: name if value == "smoker" else value for key, value in asked.items()}
        rows_ = table.assign(smoker=column)
        found.append(glm(rows_, split="by:site", imputations=3, seed=1, **given))
    one, other = found
    for a, b in zip(one.rows(), other.rows(), strict=True):
        assert a.pop("name") == b.pop("name").removesuffix("=yes")
        assert a == pytest.approx(b, rel=1e-6)
    if "propensity" in asked:
        a, b = (each.fits[0].weighting.released()["arms"] for each in found)
        for mine, yours in zip(a, b, strict=True):
            assert mine.pop("arm") == yours.pop("arm").removesuffix("=yes")
            assert mine == pytest.approx(yours, rel=1e-6)
