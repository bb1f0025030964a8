"""`--test-share 0`: every row is trained on, in every model, and every output says so.

INSECURE toy rings.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciphercohort.verify.folder import verify_run
from parties.reader.infer import infer_schema
from protocols.models.registry import CLASSIFIERS, MODELS, REGRESSIONS
from sims.api import simulate
from tests.sims.document import Document
from tests.sims.model_runs import cohort, make_counts, make_frame

ROWS = 240
SUMS = ("--protocol", "secure-aggregation", "--iterations", 5)
TOY = ("--profile", "fast-insecure", "--iterations", 4)
PRIVATE = ("--epsilon", 8, "--seed", 3)
CASES: dict[str, tuple[str, tuple[Any, ...]]] = {
    **{name: (name, (*SUMS, "--no-privacy")) for name in CLASSIFIERS},
    **{name: (name, (*TOY, "--no-privacy")) for name in REGRESSIONS},
    "logistic, encrypted": ("logistic", (*TOY, "--update", "gd", *PRIVATE)),
    "logistic, intervals": ("logistic", (*SUMS, "--no-privacy", "--inference")),
    "logistic, held out": ("logistic", (*SUMS, "--no-privacy", "--held-out", 0.3, "--evaluate")),
    "logistic, private": ("logistic", (*SUMS, *PRIVATE, "--inference")),
    "linear, intervals": ("linear", (*TOY, "--no-privacy", "--inference")),
    "linear, at home": ("linear", ("--protocol", "encrypted-model", *TOY, "--no-privacy")),
    "linear, private": ("linear", (*TOY, *PRIVATE)),
    "lffr, private": ("lffr", (*TOY, *PRIVATE)),
    "poisson, intervals": ("poisson", (*TOY, "--no-privacy", "--inference")),
}


def table(model: str, rows: int = ROWS) -> tuple[pd.DataFrame, list[str]]:
    """Rows, and what is predicted of them."""
    if model == "poisson":
        return make_counts(rows), ["visits"]
    frame = make_frame(rows)
    if model in REGRESSIONS:
        return frame, ["cost", "days"]
    frame = frame.drop(columns=["days", "ward"])
    values = ["low", "high"] if model == "logistic" else ["low", "middle", "high"]
    frame["level"] = pd.qcut(frame.pop("cost"), len(values), labels=values).astype(str)
    return frame, ["level"]


def test_every_model_is_among_the_cases() -> None:
    assert {model for model, _ in CASES.values()} == set(MODELS)


@pytest.mark.parametrize("case", CASES)
def test_every_row_is_trained_on_and_every_output_says_so(case: str, tmp_path: Path) -> None:
    model, how = CASES[case]
    # Noise leaves few rows no standard errors.
    rows = 20 * ROWS if "private" in case and "--inference" in how else ROWS
    frame, names = table(model, rows)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    several = model not in ("logistic", *REGRESSIONS)
    outcome: Any = names if model in REGRESSIONS else names[0]
    scaling: dict[str, Any] = {"several": True} if several else {}
    infer_schema(frame, outcome, **scaling).save(tmp_path / "schema.json")
    words = (
        "simulate", "--data", tmp_path / "rows.csv", "--schema", tmp_path / "schema.json",
        "--target" if model in REGRESSIONS else "--label", ",".join(names), "--model", model,
        "--test-share", 0, *how,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        screen = cohort(*words, "--out", tmp_path / "run")
    assert screen.exit_code == 0, screen.output
    told = " ".join(screen.stdout.split())
    assert "No test rows" in told and "every row was trained on" in told
    assert "no better than" not in told and "nan" not in told and "probability 1/2" not in told
    summary = (tmp_path / "run/private/summary.json").read_text()
    body = json.loads(summary, parse_constant=pytest.fail)
    held_back = 0.3 * rows if "held out" in case else 0
    assert body["rows"] == pytest.approx(rows - held_back, abs=3)
    figures = [body[half].values() for half in ("twin", "optimum", "clipped_optimum")]
    assert {str(value) for own in figures for value in own} <= {"None", "[None]", "[None, None]"}
    assert body["max_abs_diff_to_twin"] < 1e-2
    private = (tmp_path / "run/private/report.html").read_text()
    mailed = (tmp_path / "run/release/report.html").read_text()
    assert "every row was trained on" in private and "test row" not in mailed
    for page in (private, mailed):
        assert "nan" not in [cell.lower() for cell in Document(page).cells]
    if "--inference" in how:
        assert body["inference_about"]["rows"] == rows
        assert "nan" not in (tmp_path / "run/release/inference.tex").read_text()
    checks = verify_run(tmp_path / "run")
    assert all(check.passed for check in checks), [c for c in checks if not c.passed]
    judged = cohort("evaluate", "--model", tmp_path / "run", "--data", tmp_path / "rows.csv")
    assert (judged.exit_code == 0) == (model in MODELS), judged.output


def test_a_result_shows_itself_and_a_plan_counts_every_row() -> None:
    frame, (label,) = table("logistic")
    options: dict[str, Any] = {"data": frame, "label": label, "test_share": 0, "seed": 1}
    result = simulate(**options, protocol="secure-aggregation", iterations=3, no_privacy=True)
    assert "no test rows" in repr(result) and "every row was trained on" in result._repr_html_()
    assert sum(result.rows_by_party.values()) == ROWS and not result.tested
    assert np.isnan(result.scores.accuracy) and np.isfinite(result.iterations[-1].loss)


def test_a_plan_counts_every_row(tmp_path: Path) -> None:
    frame, (label,) = table("logistic")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    shown = cohort(
        "plan", "--data", tmp_path / "rows.csv", "--label", label, "--test-share", 0,
        "--no-timing", "--json", "--no-privacy",
    )  # fmt: skip
    assert json.loads(shown.stdout)["rows"] == ROWS
