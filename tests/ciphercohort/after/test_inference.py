"""Standard errors by secure sums: statsmodels' figures; with privacy, coverage and the budget."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from dp_accounting.pld import pld_privacy_accountant

from ciphercohort import simulate
from ciphercohort.after import inference_table
from ciphercohort.after.inference import Inference, naming
from ciphercohort.after.inference_cost import check_inference, inference_line
from ciphercohort.after.inference_rows import to_ranges
from ciphercohort.after.sums import sums_wanted
from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.figures import figures_of
from ciphercohort.report.release import Release
from ciphercohort.report.release_report import privacy_facts
from ciphercohort.report.report import render_report
from ciphercohort.verify.folder import verify_run
from parties.reader.schema import CategoricalColumn, NumericColumn, Schema, Targets
from parties.reader.views import row_norm
from protocols.errors import ParameterError, PrivacyError
from protocols.privacy.loss import epsilon_for_mu, mu_for_epsilon
from protocols.privacy.loss.accounting import GaussianEvent
from protocols.statistics.inference.budget import left_mu, shares, training_part
from protocols.statistics.inference.estimate import (
    Array,
    Noisy,
    UnclearError,
    clear_inverse,
    joint_maximum,
    least_squares,
    noisy_least_squares,
)
from sims.prepare import split_rows
from sims.simulated_sums import encoded, infer, with_shards
from sims.simulation import party_specs
from tests.sims.evaluation_tables import COSTED, COUNTED, MODEL, SCHEMA, table
from tests.sims.model_runs import public_schema

FRAME = table()
RAW = np.column_stack(
    [np.ones(len(FRAME)), FRAME.age, FRAME.dose, FRAME.ward == "B", FRAME.ward == "C"]
).astype(float)
FITS = {
    "logistic": (SCHEMA, sm.Logit(FRAME.died == "yes", RAW).fit(disp=0)),
    "poisson": (COUNTED, sm.GLM(FRAME.visits, RAW, family=sm.families.Poisson()).fit()),
    "linear": (COSTED, sm.OLS(FRAME.cost, RAW).fit()),
}


KNOWN = {"poisson": np.array([[0.6], [-0.8], [0.0], [0.0], [0.1], [0.1]])}
"""Not of these rows: where private steps towards a count begin."""


def run(
    schema: Schema,
    model: str,
    frame: pd.DataFrame = FRAME,
    epsilon: float | None = None,
    ledger: Path | None = None,
    weights: Any = None,
) -> Inference:
    config = SimulationConfig(label="died", epsilon=epsilon, ledger=ledger, seed=3)
    frames, names = split_rows(frame, 3, "even", schema.label.names[0], np.random.default_rng(0))
    shards = encoded(dict(zip(names, frames, strict=True)), schema, private=epsilon is not None)
    specs = with_shards(party_specs(config, shards, 3, ""), shards)
    if weights is None:
        weights = MODEL.weights if model == "logistic" else np.zeros((schema.num_features, 1))
    return infer(specs, schema, weights, model, sums_wanted(epsilon, 1e-5, 0))


@pytest.mark.parametrize("model", FITS)
def test_the_table_is_statsmodels(model: str) -> None:
    schema, fit = FITS[model]
    found = run(schema, model)
    rows = pd.DataFrame(found.rows()).set_index("name")
    kept = rows.drop(index="ward=A")
    assert rows.loc["ward=A"].isna()["coef"] and found.notes[-1] == "reference: ward A"
    scale = np.maximum(1.0, np.abs(fit.params))
    assert (np.abs(kept.coef - np.asarray(fit.params)) < 1e-3 * np.asarray(scale)).all()
    np.testing.assert_allclose(kept.se, fit.bse, rtol=0.01)
    np.testing.assert_allclose(kept.z, np.asarray(fit.params / fit.bse), rtol=0.02, atol=1e-3)
    np.testing.assert_allclose(kept.p, fit.pvalues, atol=2e-3)
    np.testing.assert_allclose(
        kept[["low", "high"]].to_numpy(),
        np.asarray(fit.conf_int()),
        rtol=0.01,
        atol=1e-3 * scale.max(),
    )
    ratio = {"logistic": "odds_ratio", "poisson": "rate_ratio"}.get(model)
    assert found.ratio == (ratio or "")
    if ratio:
        np.testing.assert_allclose(kept[ratio], np.exp(fit.params), rtol=2e-3)


def test_the_model_that_it_starts_from_does_not_matter() -> None:
    far = MODEL.weights * np.array([-3.0, 2.0, 0.0, 1.0, -2.0, 4.0])
    np.testing.assert_allclose(
        run(SCHEMA, "logistic", weights=far).coef, run(SCHEMA, "logistic").coef, atol=1e-4
    )


def test_whatever_is_beyond_its_range_is_named(tmp_path: Path) -> None:
    """A target as a feature is."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(-1, 1, 200), "cost": rng.uniform(-1, 1, 200)})
    frame.loc[0, "cost"], frame.loc[1, "x"] = 9.0, 9.0
    x, cost = (NumericColumn(name, -1.0, 1.0) for name in ("x", "cost"))
    schema = tmp_path / "schema.json"
    Schema(columns=(x,), label=Targets(columns=(cost,)), scaling="range").save(schema)
    found = simulate(
        data=frame, target="cost", schema=schema, model="linear", protocol="secure-aggregation",
        no_privacy=True, inference=True, test_share=0.0,
    )  # fmt: skip
    assert found.inference is not None
    assert found.inference.kept == (
        "values beyond the schema's range count as its end, in cost, x",
    )


@pytest.mark.parametrize("model", ["logistic", "linear"])
def test_columns_that_nearly_determine_each_other_have_statsmodels_figures(model: str) -> None:
    """Of a condition of 1e8 of X^T X: coefficients to 1e-4 standard errors, and as those."""
    rng = np.random.default_rng(0)
    x, hair = 0.3 * rng.uniform(-1, 1, (2000, 3)), rng.uniform(-1, 1, 2000)
    x = np.column_stack([x, x @ [1, -1, 1] + 3e-4 * hair, 1e-3 * hair**2])
    raw = sm.add_constant(x)
    assert np.linalg.cond(raw.T @ raw) > 1e8
    risk = x @ [1, -0.5, 0.3, 0.4, 2.0] - 0.4
    died, cost = rng.random(2000) < 1 / (1 + np.exp(-risk)), 150 + 20 * risk
    cost += 10 * rng.normal(size=2000)
    base, y = (SCHEMA, died) if model == "logistic" else (COSTED, cost)
    columns = tuple(NumericColumn(name, -1.0, 1.0) for name in "abcde")
    frame = pd.DataFrame(x, columns=list("abcde")).assign(
        died=np.where(died, "yes", "no"), cost=cost
    )
    kind = sm.families.Binomial() if model == "logistic" else sm.families.Gaussian()
    fit = sm.GLM(y, raw, family=kind).fit(tol=1e-12)
    found = run(
        replace(base, columns=columns, scaling="range"), model, frame, weights=np.zeros((6, 1))
    )
    assert (np.abs(found.coef[0] - fit.params) < 1e-4 * fit.bse).all()
    assert not any("left out" in note for note in found.notes)
    np.testing.assert_allclose(found.se[0], fit.bse, rtol=1e-4)
    assert found.rounds <= 8


def test_a_column_that_separates_the_labels_is_named_as_the_cause() -> None:
    frame = FRAME.assign(dose=np.where(FRAME.died == "yes", 1.0, -1.0))
    with pytest.raises(ParameterError, match="dose.* separates the labels"):
        run(SCHEMA, "logistic", frame)


def test_two_columns_that_separate_the_labels_together_are_named() -> None:
    """Rows of ward B whose dose is 1 never die, but others of ward B and others of dose 1 do."""
    rng = np.random.default_rng(0)
    frame = FRAME.assign(dose=rng.choice([0.0, 1.0], len(FRAME)))
    frame = frame[~((frame.ward == "A") & (frame.dose == 1))]
    frame.loc[(frame.ward == "A"), "ward"] = "B"
    lone = (frame.ward == "B") & (frame.dose == 1)
    keep = frame[~lone | (frame.died == "no")]
    both = keep.assign(age=np.where((keep.ward == "B") & (keep.dose == 1), 90.0, 25.0))
    with pytest.raises(ParameterError, match="separates the labels"):
        run(SCHEMA, "logistic", both)


def test_the_models_without_standard_errors_are_refused() -> None:
    with pytest.raises(ParameterError, match="logistic, linear, poisson"):
        run(COSTED, "improved-lffr")
    with pytest.raises(ParameterError, match="improved-lffr"):
        SimulationConfig(model="improved-lffr", targets=("cost",), inference=True)


@pytest.mark.parametrize("model", FITS)
def test_a_private_table_spends_the_promise_and_holds_the_truth(model: str, tmp_path: Path) -> None:
    schema, fit = FITS[model]
    copies = 40 if model == "poisson" else 4
    found = run(schema, model, pd.concat([FRAME] * copies), 12.0, tmp_path, KNOWN.get(model))
    truth = np.asarray(fit.params)
    rows = pd.DataFrame(found.rows()).set_index("name").drop(index="ward=A")
    assert (np.abs(rows.coef - truth) < 4.5 * rows.se).all()
    sample = rows.se * np.sqrt(1 - rows.privacy_share) * math.sqrt(copies)
    np.testing.assert_allclose(sample, fit.bse, rtol=0.4 if model == "linear" else 0.25)
    assert (rows.privacy_share > 0.02).all() and (rows.privacy_share < 1).all()
    accountant = pld_privacy_accountant.PLDAccountant(value_discretization_interval=1e-3)
    for each in found.mechanisms:
        for event in each.events:
            accountant.compose(dp_accounting.GaussianDpEvent(event.noise_multiplier))
    assert 11.7 < accountant.get_epsilon(1e-5) <= 12.0 * 1.001
    assert found.about()["epsilon_in_all"] == 12.0
    assert len(found.mechanisms) == (1 if model == "linear" else 4)
    spent = [json.loads(line) for line in (tmp_path / "party-2.jsonl").read_text().splitlines()]
    assert sum(line["kind"] == "commit" for line in spent) == len(found.mechanisms)


def test_too_few_rows_for_the_noise_are_refused(tmp_path: Path) -> None:
    """Of any columns before a sum is opened; of these, once they are known."""
    with pytest.raises(PrivacyError, match="60 rows are below 247"):
        run(SCHEMA, "logistic", FRAME[:60], 0.5, tmp_path)
    assert not any(path.read_text() for path in tmp_path.glob("*.jsonl"))
    with pytest.raises(PrivacyError, match="no interval can be given"):
        run(SCHEMA, "logistic", FRAME[:400], 0.5, tmp_path)
    assert all(path.read_text() for path in tmp_path.glob("*.jsonl"))


@pytest.mark.parametrize(("high", "enough"), [(200.0, False), (15.0, True)])
def test_a_range_too_wide_for_an_interval_is_told_before_a_sum(high: float, enough: bool) -> None:
    """Of counts of nodes, nearly all below 15: as it comes, at epsilon 1 of 4,000 rows."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.uniform(0, 1, 4000), "nodes": rng.exponential(4, 4000)})
    risk = 1 / (1 + np.exp(1 - frame.age - 0.1 * frame.nodes))
    frame["died"] = np.where(rng.random(4000) < risk, "yes", "no")
    columns = (
        NumericColumn("age", 0.0, 1.0, typical=0.5, spread=0.3),
        NumericColumn("nodes", 0.0, high, typical=4.0, spread=3.6),
    )
    schema = replace(SCHEMA, columns=columns)
    config = SimulationConfig(epsilon=1.0, inference=True, protocol="secure-aggregation")
    shape = figures_of(schema, [1334, 1333, 1333])
    (note, *_) = (*check_inference(replace(config, however_noisy=True), shape), "")
    assert note == "" if enough else "by the schema, less have nodes (0.018): narrow" in note
    with nullcontext() if enough else pytest.raises(PrivacyError, match="nothing was spent: leave"):
        check_inference(config, shape)
    with nullcontext() if enough else pytest.raises(PrivacyError, match="no interval .* nodes"):
        run(schema, "logistic", frame, 1.0, weights=np.zeros((3, 1)))


def test_a_refusal_names_the_columns_of_which_least_is_known() -> None:
    """The rare category, and not the others; by the matrix that was opened with noise."""
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.uniform(-1, 1, (4000, 2)), rng.random(4000) < 0.005, np.ones(4000)])
    names = ("age", "sex", "ward", "intercept")
    with pytest.raises(PrivacyError, match="Least is known of ward$"), naming(names):
        clear_inverse(x.T @ x, 20.0, "the information")
    turned = np.linalg.qr(rng.normal(size=(4, 4)))[0]  # of other coordinates, brought back
    with pytest.raises(PrivacyError, match="Least is known of ward$"), naming(names, turned.T):
        clear_inverse(turned.T @ x.T @ x @ turned, 20.0, "the information")
    # Several intervals of one baseline, none of which is much alone.
    shared = (*["baseline"] * 4, "age")
    direction = np.array([0.28, 0.28, 0.28, 0.28, 0.2])
    with pytest.raises(PrivacyError, match="Least is known of baseline, age$"), naming(shared):
        raise UnclearError("words", direction * np.sqrt(1 / (direction**2).sum()))


def test_training_and_inference_divide_the_promise() -> None:
    epsilon, delta = training_part(1.0, 1e-5, shares(inference=True, evaluation=False)[0])
    assert 0.5 < epsilon < 1.0 and delta == 5e-6

    class Spent:
        additive_delta = 1e-6
        events = (GaussianEvent(noise_multiplier=1 / 0.15),)

    left = left_mu(1.0, 1e-5, (Spent(),))  # type: ignore[arg-type]
    accountant = pld_privacy_accountant.PLDAccountant()
    for mu in (0.15, left):
        accountant.compose(dp_accounting.GaussianDpEvent(1 / mu))
    assert 0.97 < accountant.get_epsilon(9e-6 - 1e-7) <= 1.001
    with pytest.raises(PrivacyError, match="nothing is left"):
        left_mu(0.5, 1e-5, (Spent(),))  # type: ignore[arg-type]


# -- encodings ------------------------------------------------------------------------------------


def test_no_row_is_longer_than_stated_with_an_indicator_beside_a_number() -> None:
    """A typical value at the end of its range, and the indicator: two of size 1."""
    columns = (NumericColumn("age", 0.0, 10.0, typical=10.0, missing="indicator"),)
    schema = Schema(columns=columns, label=SCHEMA.label, scaling="range")
    frame = pd.DataFrame({"age": [None, 4.0], "died": ["yes", "no"]})
    norms = np.linalg.norm(encoded({"a": frame}, schema, private=False)["a"].x, axis=1)
    assert norms.max() == pytest.approx(row_norm(schema))


def test_a_private_table_of_filled_cells_is_that_of_the_whole_encoding() -> None:
    """A first category that fills cells in, and an indicator beside categories, stay what they are.

    The intercept and differences to the category left out say the same as all coefficients.
    """
    columns = (
        CategoricalColumn("ward", ("A", "B"), "typical", "A"),
        CategoricalColumn("kind", ("x", "y"), "indicator"),
    )
    schema = Schema(columns=columns, label=SCHEMA.label, scaling="range")
    frame = pd.DataFrame({"ward": ["A", "B", None, "A"], "kind": ["x", None, "y", "y"]})
    frame["died"] = ["yes", "no", "yes", "no"]
    whole, private = (
        encoded({"a": frame}, schema, private=private)["a"] for private in (False, True)
    )
    assert private.schema.feature_names == ("ward=B", "kind=y", "kind=missing")
    weights = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    fewer = to_ranges(schema, private.schema, weights, "logistic")
    np.testing.assert_allclose(private.x @ fewer, whole.x @ weights)


# -- formulas -------------------------------------------------------------------------------------


def symmetric_noise(rng: np.random.Generator, d: int, tau: float) -> Array:
    """Std tau on the diagonal, tau / sqrt(2) off it."""
    upper = np.triu(rng.normal(0.0, tau / math.sqrt(2), (d, d)), 1)
    return upper + upper.T + np.diag(rng.normal(0.0, tau, d))


def test_noise_of_a_step_has_the_stated_covariance() -> None:
    """Given A, theta - theta^ = -A^-1 sum_k w_k (z_k + E_k delta_k): 20,000 draws of z and E."""
    rng, d = np.random.default_rng(0), 3
    information, top = np.diag([40.0, 60.0, 90.0]), np.array([0.8, -0.5, 0.3])
    points = ((np.zeros(d), 2.0, 1.5), (np.array([0.6, -0.6, 0.9]), 1.0, 0.75))
    sums = [
        Noisy(point, -information @ (top - point), information, sigma, tau)
        for point, sigma, tau in points
    ]
    weights = (0.2, 0.8)  # of 1 / sigma^2
    draws = [
        sum(
            w * (sigma * rng.standard_normal(d) + symmetric_noise(rng, d, tau) @ (top - point))
            for w, (point, sigma, tau) in zip(weights, points, strict=True)
        )
        for _ in range(20_000)
    ]
    inverse = np.linalg.inv(information)
    estimate, pooled = joint_maximum(sums, 0.25)
    np.testing.assert_allclose(pooled, information)
    np.testing.assert_allclose(estimate.theta, top)
    np.testing.assert_allclose(np.cov(draws @ inverse, rowvar=False), estimate.noise, atol=4e-5)
    assert estimate.noise.max() > 5e-4
    np.testing.assert_allclose(
        np.diag(estimate.covariance - estimate.noise), 0.25 * np.diag(inverse)
    )


def test_the_maximum_of_several_sums_is_that_of_their_mean_model() -> None:
    """Of exact quadratics of one likelihood any weights give its maximum; of others the mean's."""
    sums = [
        Noisy(np.array([point]), np.array([slope]), np.array([[curve]]), sigma, 0.0)
        for point, slope, curve, sigma in ((0.0, -6.0, 2.0, 1.0), (1.0, -4.0, 4.0, 0.5))
    ]
    # 0.2 (-6 + 2 t) + 0.8 (-4 + 4 (t - 1)) = 0
    estimate, _ = joint_maximum(sums)
    assert estimate.theta[0] == pytest.approx(7.6 / 3.6)


def test_noisy_least_squares_without_noise_is_least_squares() -> None:
    rng = np.random.default_rng(0)
    u = np.column_stack([rng.standard_normal((200, 3)), np.ones(200), rng.random((200, 2))])
    products = u.T @ u
    for one, two in zip(
        least_squares(products, 2, 200), noisy_least_squares(products, 2, 200, 0.0), strict=True
    ):
        np.testing.assert_allclose(one.theta, two.theta)
        np.testing.assert_allclose(one.covariance, two.covariance, atol=1e-15)


# -- whole runs -----------------------------------------------------------------------------------


COMMON: Any = {"protocol": "secure-aggregation", "update": "nag"}


def test_a_run_with_inference(tmp_path: Path) -> None:
    from sims.api import plan, simulate

    asked: dict[str, Any] = {"label": "died", "split": "by:site", "exclude": ["visits", "cost"]}
    asked |= {**COMMON, "seed": 2, "inference": True}
    frame = pd.concat([table(), table(seed=1)], ignore_index=True)
    result = simulate(data=frame, no_privacy=True, out=tmp_path / "run", **asked)
    assert result.inference is not None
    summary = json.loads((tmp_path / "run" / "private/summary.json").read_text())
    row = summary["inference"][1]
    assert set(row) >= {"name", "coef", "se", "z", "p", "low", "high", "odds_ratio"}
    latex = (tmp_path / "run" / "release/inference.tex").read_text()
    assert r"\bottomrule" in latex and "odds ratio" in latex
    assert all(check.passed for check in verify_run(tmp_path / "run"))
    page = (tmp_path / "run" / "private/report.html").read_text()
    assert "Standard errors" in page and "Reference: ward A" in page
    text = result.inference.text()
    assert "P>|z|" in text and "[0.025" in text
    schema = public_schema(frame, "died", exclude=("visits", "cost", "site"))
    private = simulate(
        data=frame, schema=schema, epsilon=8.0, out=tmp_path / "private", **{**asked, "exclude": []}
    )
    assert private.inference is not None and private.plan.privacy is not None
    assert private.plan.privacy.epsilon < 8.0
    shares = [
        row["privacy_share"] for row in private.inference.rows() if row["coef"] == row["coef"]
    ]
    assert min(shares) > 0 and max(shares) < 1
    stated = private.summary()
    shown, own = stated["privacy"], stated["inference_about"]
    mus = [
        mu_for_epsilon(epsilon=epsilon, delta=delta)
        for epsilon, delta in ((shown["epsilon"], 5e-6), (own["epsilon"], 1e-5))
    ]
    together = epsilon_for_mu(mu=math.hypot(*mus), delta=1e-5)
    whole = stated["privacy_in_all"]
    assert (whole["epsilon"], whole["delta"]) == (8.0, 1e-5)
    assert whole["after"] == pytest.approx(own["epsilon"])
    assert shown["epsilon"] < own["epsilon_in_all"] == 8.0 == pytest.approx(together, rel=0.02)
    assert all(check.passed for check in verify_run(tmp_path / "private"))
    facts = {name: value for name, value, _ in privacy_facts(Release.of(private))}
    assert facts["ε of the whole run"] == "8" and "ε of what followed the training" in facts
    assert "ε of the whole run" in render_report(private)
    forecast = plan(rows=1440, features=5, epsilon=8.0, inference=True, timing=False, **COMMON)
    body = forecast.to_dict()
    assert body["privacy"]["epsilon"] == pytest.approx(shown["epsilon"])
    parts = body["inference"]["epsilon"]
    assert parts["inference"] == pytest.approx(own["epsilon"], rel=1e-3)
    line = inference_line(body["inference"])
    assert "make 8 in all" in line and "times as wide as without privacy" in line
    assert "three to eight" in inference_line(
        plan(
            rows=900, features=5, no_privacy=True, inference=True, timing=False, **COMMON
        ).to_dict()["inference"]
    )
    for insists in (False, True):
        with pytest.raises(PrivacyError, match="no intervals: 1,440.*: leave --inference out$"):
            simulate(data=frame, epsilon=0.05, however_noisy=insists, **asked)
    with pytest.raises(PrivacyError, match="probably no intervals: 1,440.* by --however-noisy"):
        simulate(data=frame, epsilon=1.0, **asked)


@pytest.mark.parametrize(
    ("coef", "se", "cells"),
    [
        (0.123456, 0.0123456, ["0.1235", "0.0123"]),
        (12.3456789, 1.23456789, ["12.346", "1.235"]),
        (68205.3905, 3012.7, ["68205", "3013"]),
        (-3.4e7, 2.5e6, ["-3.400e+07", "2.500e+06"]),
        (0.5, float("nan"), ["0.5000", "–"]),
    ],
)
def test_a_table_shows_no_digits_far_below_an_error(
    coef: float, se: float, cells: list[str]
) -> None:
    row = {"coef": coef, "se": se, "z": 1.0, "p": 0.3, "low": coef - se, "high": coef + se}
    assert inference_table._cells(row, "")[:2] == cells
