"""One model: its coefficients are the same wherever a run shows them. INSECURE toy rings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray

from ciphercohort import simulate
from ciphercohort.after.inference_table import _number
from ciphercohort.report.release import Release
from ciphercohort.report.release_report import render_release
from ciphercohort.results.predict import load_model
from ciphercohort.results.result import RunResult
from ciphercohort.verify.folder import verify_run
from tests.sims.model_runs import make_counts, make_frame
from tests.sims.tables import lopsided_frame

Array = NDArray[np.float64]
TOY = {"profile": "fast-insecure"}
RUNS: dict[str, dict[str, Any]] = {
    "logistic rows": {"model": "logistic", **TOY},
    "logistic home": {"model": "logistic", "protocol": "encrypted-model", **TOY},
    "logistic sums": {"model": "logistic", "protocol": "secure-aggregation"},
    "logistic asked": {"model": "logistic", "update": "gd", "inference": True, **TOY},
    "linear rows": {"model": "linear", **TOY},
    "linear home": {"model": "linear", "protocol": "encrypted-model", **TOY},
    "linear sums": {"model": "linear", "protocol": "secure-aggregation"},
    "poisson rows": {"model": "poisson", "iterations": 3, **TOY},
}


def table(model: str, several: bool) -> tuple[pd.DataFrame, dict[str, Any]]:
    if model == "logistic":
        return lopsided_frame(400), {"label": "y"}
    if model == "poisson":
        return make_counts(), {"target": "visits"}
    frame = make_frame()
    if several:
        return frame, {"target": ["cost", "days"]}
    return frame.drop(columns="days"), {"target": "cost"}


@pytest.fixture(scope="module", params=RUNS)
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunResult, Path, pd.DataFrame]:
    options = RUNS[request.param]
    out = tmp_path_factory.mktemp("one") / "run"
    frame, named = table(options["model"], "sums" not in request.param)
    found = simulate(
        data=frame, no_privacy=True, seed=1, test_share=0.1, out=out, **named, **options
    )
    return found, out, frame


def statsmodels_fit(result: RunResult, raw: Array, y: Array) -> tuple[Array, Array]:
    """Coefficients and standard errors, the intercept first, of columns that are not determined."""
    x = np.column_stack([np.ones(len(raw)), raw])
    kind = result.plan.model
    if kind == "linear":
        fit = sm.OLS(y, x).fit()
    elif kind == "logistic":
        fit = sm.Logit(y, x).fit(disp=0, maxiter=200)
    else:
        fit = sm.GLM(y, x, family=sm.families.Poisson()).fit(tol=1e-12)
    return np.asarray(fit.params), np.asarray(fit.bse)


def test_every_output_has_the_same_coefficients(
    run: tuple[RunResult, Path, pd.DataFrame], tmp_path: Path
) -> None:
    result, out, _ = run
    assert result.inference is not None and result.view == "ranges"
    rows = result.inference.rows()
    document = json.loads((out / "release/model.json").read_text())
    coef = np.atleast_2d(document["coef"])
    constants = np.atleast_1d(document["intercept"])
    known = load_model(out)
    names = [*document["features"], "intercept"]
    printed = []
    for k, row in enumerate(rows):
        output = k // (len(rows) // len(constants))
        j = names.index(row["name"])
        own = constants[output] if row["name"] == "intercept" else coef[output, j]
        # A column that the others determine has none in the table, and 0 in the model.
        shown = _number(row["coef"])
        assert shown in (_number(own), "–") and (shown != "–" or own == 0)
        frame = np.atleast_2d(np.asarray(known.coefficients, dtype=float).T)
        held = np.atleast_1d(known.intercept)[output] if j == len(names) - 1 else frame[output, j]
        assert held == pytest.approx(own, rel=1e-12, abs=1e-300)
        printed.append(shown)
    pages = {
        "text": result.inference.text(),
        "owners' report": (out / "private/report.html").read_text(),
        "release": (out / "release/report.html").read_text(),
        "notebook": result._repr_html_(),
        "latex": (out / "release/inference.tex").read_text(),
        "kept": json.dumps(json.loads((out / "release/inference.json").read_text())["rows"]),
        "made again": render_release(Release.load(out / "release")),
    }
    for name, page in pages.items():
        plain = page.replace("$", "").replace("−", "-")
        if name == "kept":
            told = [row["coef"] for row in json.loads(page)]
            assert [_number(float("nan") if c is None else c) for c in told] == printed
            continue
        for each in printed:
            if "e" not in each and each != "–":  # an exponent is mathematics in LaTeX
                assert each in plain, (name, each)
        assert "Odds ratio [per unit" not in page, name
    assert all(check.passed for check in verify_run(out))


def test_predictions_are_those_of_the_table(run: tuple[RunResult, Path, pd.DataFrame]) -> None:
    result, out, frame = run
    known = load_model(out)
    raw = np.column_stack([_columns(frame, name) for name in known.schema.feature_names])
    coef = np.asarray(known.coefficients, dtype=float).reshape(raw.shape[1], -1)
    scores = raw @ coef + np.atleast_1d(np.asarray(known.intercept, dtype=float))
    # Of rows within the schema's ranges: values beyond count as their ends.
    shift, scale = known.encoding.affine()
    inside = (np.abs((raw - shift) / scale) <= 1).all(axis=1)
    assert inside.mean() > 0.9
    scores, found = scores[inside], known.predict(frame)[inside]
    kind = result.plan.model
    if kind == "logistic":
        np.testing.assert_allclose(found.probability, 1 / (1 + np.exp(-scores[:, 0])), atol=1e-9)
    elif kind == "linear":
        np.testing.assert_allclose(found.to_numpy(), scores, atol=1e-7)
    else:
        np.testing.assert_allclose(np.log(found.to_numpy()), scores, atol=1e-7)


def _columns(frame: pd.DataFrame, feature: str) -> Array:
    name, is_category, category = feature.partition("=")
    if is_category:
        return (frame[name].astype(str) == category).to_numpy(float)
    return frame[name].to_numpy(float)


def test_it_is_the_maximum_likelihood(run: tuple[RunResult, Path, pd.DataFrame]) -> None:
    """Of the rows that were trained on: statsmodels' to 1e-4 standard errors."""
    result, _, frame = run
    assert result.inference is not None
    tested = {tuple(row) for row in np.round(result.test_raw, 9)}
    raw = np.column_stack([_columns(frame, name) for name in result.schema.feature_names])
    is_test = [
        tuple(row) in tested for row in np.round(np.column_stack([raw, np.ones(len(raw))]), 9)
    ]
    kept = ~np.array(is_test)
    if kept.sum() != result.plan.num_rows:  # equal rows on both sides
        pytest.skip("rows cannot be told apart")
    for k, output in enumerate(result.inference.outputs):
        own, errors = result.inference.coef[k], result.inference.se[k]
        there = ~np.isnan(own)
        y = frame[output or "y"].to_numpy(float)[kept]
        params, bse = statsmodels_fit(result, raw[kept][:, there[1:]], y)
        assert np.abs(own[there] - params).max() <= 1e-4 * bse.min()
        np.testing.assert_allclose(errors[there], bse, rtol=1e-4)


def test_as_trained_says_how_far_it_may_be(tmp_path: Path) -> None:
    frame = lopsided_frame(300)
    found = simulate(
        data=frame, label="y", no_privacy=True, as_trained=True, seed=1, out=tmp_path / "run", **TOY
    )
    assert found.view == "" and found.inference is None
    told = [note for note in found.public_warnings if note.startswith("this model is as trained")]
    assert len(told) == 1
    stated = float(re.findall(r"up to ([\d.e+]+) standard errors", told[0])[0])
    assert 0 < stated < 1e3
    page = (tmp_path / "run/release/report.html").read_text()
    assert "standard errors from the maximum" in page
