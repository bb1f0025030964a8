"""One model: its coefficients are the same wherever a run shows them. INSECURE toy rings."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from dp_accounting.pld import pld_privacy_accountant
from numpy.typing import NDArray

from ciphercohort import simulate
from ciphercohort.after.inference_table import _number
from ciphercohort.deploy.results import party_results
from ciphercohort.job.inputs import GIVEN
from ciphercohort.report.release import Release
from ciphercohort.report.release_report import render_release
from ciphercohort.results.coefficients import with_ends
from ciphercohort.results.predict import load_model
from ciphercohort.results.result import RunResult
from ciphercohort.verify.folder import verify_run
from parties.agent.settings import OUTCOME, RESULTS, SCHEMA
from protocols.plan.run_plan import RunPlan
from protocols.sums.plan import GradientPlan
from protocols.words import number
from sims.simulated_sums import Sums
from tests.sims.document import Document
from tests.sims.model_runs import make_counts, make_frame, public_schema
from tests.sims.tables import lopsided_frame

Array = NDArray[np.float64]
TOY = {"profile": "fast-insecure"}
FEW: dict[str, Any] = {"iterations": 2, **TOY}
HOME, SUMS = {"protocol": "encrypted-model"}, {"protocol": "secure-aggregation"}
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
WITHIN: dict[str, Any] = {"epsilon": 12.0, "inference": True, "iterations": 2}
PRIVATE: dict[str, dict[str, Any]] = {
    "private logistic rows": {"model": "logistic", **WITHIN, **TOY},
    "private logistic home": {"model": "logistic", **HOME, **WITHIN, **TOY},
    "private logistic sums": {"model": "logistic", "update": "gd", **SUMS, **WITHIN},
    "private linear rows": {"model": "linear", **WITHIN, **TOY},
    "private linear sums": {"model": "linear", **SUMS, **WITHIN},
}
"""All that there are: linear models at home and Poisson models have no certificate."""
TRAINED: dict[str, dict[str, Any]] = {
    "logistic rows": {"model": "logistic", "as_trained": True, **FEW},
    "logistic home": {"model": "logistic", "as_trained": True, **HOME, **FEW},
    "quadratic home": {"model": "logistic", "update": "quadratic-nag", **HOME, **FEW},
    "logistic sums": {"model": "logistic", "as_trained": True, "iterations": 2, **SUMS},
    "linear rows": {"model": "linear", "as_trained": True, **FEW},
    "linear home": {"model": "linear", "as_trained": True, **HOME, **FEW},
    "linear sums": {"model": "linear", "as_trained": True, "iterations": 2, **SUMS},
    "private sums": {"model": "logistic", "epsilon": 8.0, "update": "gd", "iterations": 2, **SUMS},
    "private linear": {"model": "linear", "epsilon": 8.0, **FEW},
    "improved-lffr": {"model": "improved-lffr", **FEW},
    "lffr home": {"model": "lffr", **HOME, **FEW},
    "poisson home": {"model": "poisson", "as_trained": True, **HOME, **FEW},
    "softmax": {"model": "softmax", "iterations": 2, **SUMS},
    "one-vs-rest": {"model": "one-vs-rest", "iterations": 2, **SUMS},
}
"""Without sums that end at the maximum."""


def table(model: str, several: bool, private: bool = False) -> tuple[pd.DataFrame, dict[str, Any]]:
    if private:
        # Noise of epsilon 12 leaves no table of 1,500 rows once in a hundred runs.
        frame = lopsided_frame(6000) if model == "logistic" else make_frame(6000)
        frame = frame.drop(columns=["marker", "pressure", "days"], errors="ignore")
        asked = "y" if model == "logistic" else ["cost"]
        named = {"label": "y"} if model == "logistic" else {"target": "cost"}
        return frame, {**named, "schema": public_schema(frame, asked)}
    if model == "logistic":
        return lopsided_frame(400), {"label": "y"}
    if model == "poisson":
        return make_counts(), {"target": "visits"}
    if model in ("softmax", "one-vs-rest"):
        frame = lopsided_frame(400)
        return frame.drop(columns="y"), {"label": "ward"}
    frame = make_frame()
    if several:
        return frame, {"target": ["cost", "days"]}
    return frame.drop(columns="days"), {"target": "cost"}


Ran = tuple[RunResult, Path, pd.DataFrame]
RAN = Sums.ran
OPENED: dict[Path, list[tuple[GradientPlan, Array, str]]] = {}
"""Sums of each run, by its folder."""


def ran(name: str, options: dict[str, Any], out: Path) -> Ran:
    frame, named = table(options["model"], "sums" not in name, name in PRIVATE)
    quiet = {"ledger": out.with_name("ledger")} if "epsilon" in options else {"no_privacy": True}
    opened = OPENED.setdefault(out, [])

    def recorded(sums: Sums, template: GradientPlan) -> tuple[GradientPlan, Array, str]:
        opened.append(RAN(sums, template))
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sums, "ran", recorded)
        found = simulate(data=frame, seed=1, test_share=0.1, out=out, **quiet, **named, **options)
    return found, out, frame


@pytest.fixture(scope="module", params=[*RUNS, *PRIVATE])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    name = request.param
    return ran(name, (RUNS | PRIVATE)[name], tmp_path_factory.mktemp("one") / "run")


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


def test_every_output_has_the_same_coefficients(run: Ran, tmp_path: Path) -> None:
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
        shown = as_printed(row, "coef")
        assert shown in (as_printed(row, "coef", own), "") and (shown != "" or own == 0)
        frame = np.atleast_2d(np.asarray(known.coefficients, dtype=float).T)
        held = np.atleast_1d(known.intercept)[output] if j == len(names) - 1 else frame[output, j]
        assert held == pytest.approx(own, rel=1e-12, abs=1e-300)
        printed.append(shown)
    release = out / "release"
    pages = {
        "text": [re.split("  +", line.strip()) for line in result.inference.text().split("\n")],
        "latex": latex_rows((release / "inference.tex").read_text()),
        "owners' report": html_rows((out / "private/report.html").read_text(), rows),
        "release": html_rows((release / "report.html").read_text(), rows),
        "notebook": html_rows(result._repr_html_(), rows),
        "made again": html_rows(render_release(Release.load(release)), rows),
    }
    for name, page in pages.items():
        names_ = {row_name(row) for row in rows}
        told = [[*line, "", ""] for line in page if line[0] in names_]  # a reference is empty
        assert [line[1] for line in told] == printed, name
        assert [line[2] for line in told] == [as_printed(row, "se") for row in rows], name
        assert not any("Odds ratio [per unit" in cell for line in page for cell in line), name
    ratio = result.inference.ratio
    for path in ("release/report.html", "private/report.html") if ratio else ():
        cells = Document((out / path).read_text()).cells
        assert {with_ends(row, ratio) for row in rows} <= {*cells}, path
        known_rows = [row for row in rows if row["se"] > 0]
        assert all(row[f"{ratio}_low"] < row[ratio] < row[f"{ratio}_high"] for row in known_rows)
    kept = json.loads((release / "inference.json").read_text())["rows"]
    assert [as_printed(row, "coef") for row in kept] == printed
    assert [check.name for check in verify_run(out) if not check.passed] == []


def test_a_private_table_is_paid_for_with_all_that_came_before(run: Ran) -> None:
    """Of whitened rows: the second moment, training and four sums, by another accountant."""
    result, out, _ = run
    if result.inference is None or not result.plan.privacy:
        pytest.skip("no privacy")
    accountant = pld_privacy_accountant.PLDAccountant(value_discretization_interval=1e-3)
    for path in out.with_name("ledger").glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        runs = len(result.inference.mechanisms) + 1 + result.plan.whitens
        assert sum(line["kind"] == "commit" for line in lines) == runs
    for line in lines:
        for event in line.get("events", ()):
            gaussian = dp_accounting.GaussianDpEvent(event["noise_multiplier"])
            accountant.compose(gaussian, event["count"])
    assert 11.3 < accountant.get_epsilon(1e-5) <= 12.0


def test_a_hospital_ends_at_the_same_model(run: Ran, tmp_path: Path) -> None:
    """By the sums that it took part in; by fewer, or others, it has the model as trained."""
    result, out, _ = run
    if result.plan.privacy:
        pytest.skip("`infer` sums with noise after a deployment's training, and leaves its model")
    result.schema.save(tmp_path / SCHEMA)

    def told(plan: RunPlan, weights: Array, head: str = "") -> Path:
        folder = tmp_path / RESULTS / plan.session
        folder.mkdir(parents=True)
        outcome = {"plan": plan.to_dict(), "weights": weights.tolist(), "transcript": head}
        (folder / OUTCOME).write_text(json.dumps(outcome))
        return folder

    home = told(result.plan, result.released, result.transcript_head)
    *others, last = OPENED[out]
    for plan, values, _ in others:
        told(plan, values)
    member = last[0].members[0]
    foreign = told(
        replace(last[0], members=(replace(member, rows=7), *last[0].members[1:])), last[1]
    )
    assert list(party_results(tmp_path)) == [home]
    assert load_model(home).view == "" and not (home / "inference.json").exists()
    shutil.rmtree(foreign)
    told(last[0], last[1])
    # Of trainings before and after, which ended close to the same point.
    for k, (plan, values, _) in enumerate(OPENED[out]):
        fields = dict(plan.objective)
        if "theta" not in fields:
            continue  # sums of products are at no point: they are the same of every training
        fields["theta"] = [value * (1 + 1e-13) + 1e-15 for value in fields["theta"]]
        for name in ("0", "z"):
            other = replace(plan, session=f"{name}{k}", objective=fields, of_training="ab" * 32)
            told(other, values * (1 + 1e-6))
    assert list(party_results(tmp_path)) == [home]
    documents = Release.of(
        replace(result, promise=None, certificate=None, schema_from=GIVEN)
    ).documents()
    for name in ("model.json", "inference.json", "inference.tex", "plan.json"):
        assert (home / name).read_text() == documents[name], name
    rows = result.inference.rows() if result.inference else []
    page = html_rows((home / "report.html").read_text(), rows)
    assert [line[1] for line in page] == [as_printed(row, "coef") for row in rows]
    assert {check.name for check in verify_run(home) if not check.passed} <= {"schema"}


def as_printed(row: Mapping[str, Any], key: str, value: float | None = None) -> str:
    """Four decimals, one fewer for each digit of an error above 1; of a reference nothing."""
    own = row[key] if value is None else value
    fewer = len(str(int(row["se"]))) if (row["se"] or 0) > 1 else 0
    return "" if own is None or own != own else _number(own, 4, fewer)


def row_name(row: Mapping[str, Any], whole: bool = False) -> str:
    return " ".join(filter(None, [whole and row.get("target"), row["name"]]))


def html_rows(page: str, rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Three cells from each name of a row on; names without their target."""
    cells = Document(page).cells
    names = {row_name(row, True): row_name(row) for row in rows}
    return [[names[c], *cells[k + 1 : k + 3]] for k, c in enumerate(cells) if c in names]


def latex_rows(page: str) -> list[list[str]]:
    """As Python prints numbers."""

    def plain(cell: str) -> str:
        cell = cell.strip().strip("$").replace("--", "–").replace("\\_", "_")
        power = re.fullmatch(r"(.*) \\times 10\^\{(-?\d+)\}", cell)
        return f"{power[1]}e{int(power[2]):+03d}" if power else cell

    return [[plain(c) for c in line.split("&")] for line in page.split("\n") if line]


@pytest.mark.parametrize("name", TRAINED)
def test_models_as_trained_have_one_table_as_well(name: str, tmp_path: Path) -> None:
    """Where the report states coefficients: of rows that are clipped it states steps alone."""
    result, out, _ = ran(name, TRAINED[name], tmp_path / "run")
    assert result.inference is None and not (out / "release/inference.json").exists()
    told = [note for note in result.public_warnings if note.startswith("this model is as trained")]
    assert len(told) == (name in ("logistic rows", "logistic home", "quadratic home"))
    for note in told:
        assert 0 < float(re.findall(r"up to ([\d.e+]+) standard errors", note)[0]) < 1e3
        assert "standard errors from the maximum" in (out / "release/report.html").read_text()
    document = json.loads((out / "release/model.json").read_text())
    known = load_model(out)
    coef = np.atleast_2d(document["coef"])
    constants = np.atleast_1d(document["intercept"])
    held = np.asarray(known.coefficients, dtype=float).T
    np.testing.assert_array_equal(np.atleast_2d(held), coef)
    np.testing.assert_array_equal(np.atleast_1d(known.intercept), constants)
    np.testing.assert_array_equal(known.weights, result.weights)
    clipped = known.encoding.row_norm is not None or result.scaling is not None
    for page in ("release/report.html", "private/report.html"):
        cells = Document((out / page).read_text()).cells
        shown = {c: cells[k + 1 : k + 1 + len(coef)] for k, c in enumerate(cells)}
        due = dict(zip(document["features"], coef.T, strict=True))
        if len(coef) == 1 and clipped:
            assert "Intercept" not in shown
            continue
        due["Intercept"] = constants
        assert {c: shown[c] for c in due} == {c: list(map(number, v)) for c, v in due.items()}


def test_predictions_are_those_of_the_table(run: Ran) -> None:
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


def test_it_is_the_maximum_likelihood(run: Ran) -> None:
    """Of the rows that were trained on: statsmodels' to 1e-4 standard errors."""
    result, _, frame = run
    assert result.inference is not None
    if result.plan.privacy:
        pytest.skip("noise")
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
