"""Every model beside a constant: on screen, in JSON, in the report; of runs and evaluations.

INSECURE toy rings.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciphercohort.results.verdict import no_better
from protocols.models.model import TargetModel
from protocols.models.registry import REGRESSIONS, model_of
from tests.sims.model_runs import cohort

RNG = np.random.default_rng(11)
ROWS, CONSTANT = "40 rows", "share of positives (0.500)"


@pytest.mark.parametrize("name", REGRESSIONS)
def test_targets_are_held_against_their_mean(name: str) -> None:
    """Of two targets a good one is not named; one without spread has no mean to be beside."""
    model = model_of(TargetModel, name)
    x = np.column_stack([RNG.uniform(-0.5, 0.5, (400, 2)), np.ones(400)])
    weights = np.array([[1.0, 0.5], [-0.5, 1.0], [0.1, 0.2]])
    y = np.clip(model.decode(x @ weights), 0.0, 1.0)
    for change, bad in (((1, 1), ""), ((-1, 1), "cost "), ((1, -1), "days "), ((-1, -1), ", days")):
        reversed_ = weights * np.array([*[change] * 2, (1, 1)])
        told = no_better(model.metrics(reversed_, x, y), ROWS, ("cost", "days"), CONSTANT)
        assert (bad in told) if bad else not told
        assert told.count("cost") == (change[0] < 0) and told.count("days") == (change[1] < 0)
    constant = model.metrics(-weights, x, np.full_like(y, 0.5))
    assert no_better(constant, ROWS, ("cost", "days"), CONSTANT) == ""


@pytest.mark.parametrize("key", ["r2", "d2"])
@pytest.mark.parametrize(("value", "silent"), [(0.0, False), (-0.3, False), (1e-3, True)])
def test_a_tie_is_no_better(key: str, value: float, silent: bool) -> None:
    told = no_better({key: [value]}, ROWS, ("cost",), CONSTANT)
    assert (told == "") == silent
    assert silent or f"cost {value:.4g}".replace("-", "−") in told


def test_a_figure_that_is_none_says_nothing() -> None:
    nothing = {"log_loss": float("nan"), "base_rate_log_loss": 0.6}
    assert no_better(nothing, ROWS, ("died",), CONSTANT) == ""
    assert no_better({"r2": [float("nan")]}, ROWS, ("cost",), CONSTANT) == ""


# -- outputs --------------------------------------------------------------------------------------

OUTCOMES = {
    "linear": RNG.normal(size=200),
    "poisson": RNG.poisson(3.0, 200),
    "logistic": RNG.choice(["no", "yes"], 200),
    "softmax": RNG.choice(["a", "b", "c"], 200),
}


@pytest.mark.parametrize("model", OUTCOMES)
def test_every_output_of_a_run_and_of_an_evaluation_says_it(model: str, tmp_path: Path) -> None:
    """Outcomes that no column tells of, from rows that are few beside the columns."""
    columns = pd.DataFrame(RNG.normal(size=(200, 12))).rename(columns=lambda k: f"x{k}")
    frame = columns.assign(y=OUTCOMES[model])
    frame[:24].to_csv(tmp_path / "few.csv", index=False)
    frame[24:].to_csv(tmp_path / "test.csv", index=False)
    outcome = "--target" if model in REGRESSIONS else "--label"
    how: tuple[Any, ...] = ("--profile", "fast-insecure")
    if model not in REGRESSIONS:
        how = ("--protocol", "secure-aggregation", "--learning-rate", 4)
    shown = cohort(
        "simulate", "--data", tmp_path / "few.csv", "--test", tmp_path / "test.csv", outcome, "y",
        "--model", model, "--no-privacy", "--iterations", 40, *how, "--out", tmp_path / "run",
    )  # fmt: skip
    assert shown.exit_code == 0, shown.output
    assert "no better than the" in shown.stdout.splitlines()[0]
    body = json.loads((tmp_path / "run/private/summary.json").read_text())
    assert "no better than the" in body["warnings"][0]
    page = (tmp_path / "run/private/report.html").read_text()
    assert "no better than the" in page.partition("<header>")[2].partition("</header>")[0]
    mailed = tmp_path / "run/release"
    files = [path for path in mailed.rglob("*") if path.is_file()]
    assert not [f for f in files if b"no better than" in f.read_bytes()]
    again = cohort(
        "evaluate", "--model", tmp_path / "run", "--data", tmp_path / "test.csv",
        "--out", tmp_path / "judged",
    )  # fmt: skip
    assert again.exit_code == 0 and " ".join(again.stderr.split()).count("no better than") == 1
    found = json.loads((tmp_path / "judged/evaluation.json").read_text())
    assert "no better than the" in found["warnings"][0]
