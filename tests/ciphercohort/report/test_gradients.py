"""Whole runs of the secure-aggregation protocol: every rule, its twin, its refusals."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression

from ciphercohort import FederatedLogisticRegression
from ciphercohort.job.config import SimulationConfig
from ciphercohort.report.report import render_report
from ciphercohort.results.result import RunResult
from ciphercohort.verify.folder import verify_run
from protocols.aggregate.choice import choose
from protocols.errors import CohortError, ParameterError, ProtocolError
from protocols.privacy.calibrate import sums
from protocols.privacy.calibrate.calibration import Calibration
from protocols.updates.registry import UPDATES
from sims import simulation
from sims.simulation import simulate
from tests.sims.model_runs import public_schema


def table(rows: int = 120, seed: int = 1) -> pd.DataFrame:
    """Two informative columns and a noisy label."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    y = (x @ [1.5, -1.0, 0.0] + rng.logistic(size=rows) > 0).astype(int)
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y})


@cache
def schema_file() -> Path:
    return public_schema(table(), "y")


def run(**options: Any) -> RunResult:
    """A seeded run on `table()`."""
    fields: dict[str, Any] = {
        "data": table(),
        "label": "y",
        "protocol": "secure-aggregation",
        "update": "gd",
        "rounds": 4,
        "seed": 3,
        "epsilon": 5.0,
    }
    if "data" not in options:
        fields["schema"] = schema_file()
    return simulate(SimulationConfig(**{**fields, **options}))


@pytest.mark.parametrize(
    ("update", "epsilon"),
    [
        *((update, 5.0) for update in UPDATES["secure-aggregation"]),
        *((update, None) for update in ("gd", "scd")),
    ],
)
def test_every_rule_equals_its_twin(update: str, epsilon: float | None) -> None:
    clip = 0.5 if update == "clipped-gd" else None
    result = run(update=update, epsilon=epsilon, clip=clip)
    assert result.max_abs_diff_to_twin <= 1e-5
    assert result.scores == pytest.approx(result.twin, rel=1e-4, nan_ok=True)
    assert (result.scores.accuracy, result.scores.auc) == (result.twin.accuracy, result.twin.auc)
    assert np.isfinite(result.weights).all()
    if epsilon:
        assert result.certificate is not None and result.certificate["satisfied"]


def test_without_noise_it_reaches_the_optimum() -> None:
    """Accelerated descent on the exact logistic loss with ridge, against scikit-learn."""
    result = run(update="nag", ridge=0.2, rounds=60, epsilon=None)
    recipe_rows = result.rows_by_party
    assert sum(recipe_rows.values()) == 96
    options: dict[str, Any] = {"label": "y", "protocol": "secure-aggregation", "seed": 3}
    config = SimulationConfig(data=table(), schema=schema_file(), **options)
    from sims.prepare import prepare

    data = prepare(config, np.random.default_rng(3))
    model = LogisticRegression(C=1 / (0.2 * 96), fit_intercept=False, tol=1e-10, max_iter=2000)
    model.fit(data.rows, data.labels)
    assert np.allclose(result.weights, model.coef_[0], atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"colluders": 1},
        {"weights": "equal", "split": "dirichlet:0.5"},
        {"update": "scd", "batches": 4, "schedule": "poisson"},
        {"update": "scd", "batches": 4, "loss": "svm"},
        {"update": "nag-opt", "rounds": 30},
        {"parties": 12},
    ],
)
def test_options(options: dict[str, Any]) -> None:
    result = run(**options)
    assert result.max_abs_diff_to_twin <= 1e-5
    assert result.certificate is not None and result.certificate["satisfied"]


def test_noise_division_shortens_the_run() -> None:
    assert run(update="nag-opt", rounds=200).plan.rounds < 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sums") / "run"
    run(update="hb", out=out)
    return out


def test_a_run_folder_verifies(folder: Path) -> None:
    checks = verify_run(folder)
    assert all(check.passed for check in checks), checks
    assert "round" in " ".join(check.detail for check in checks)


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("setting", "scales", [9.0] * 4),
        ("setting", "epsilon", 0.1),
        ("figures", "epsilon_exact", 0.1),
    ],
)
def test_an_altered_certificate_fails(
    folder: Path, tmp_path: Path, part: str, field: str, value: Any
) -> None:
    path = shutil.copytree(folder, tmp_path / "run")
    content = json.loads((path / "release/certificate.json").read_text())
    assert field in content[part]
    content[part][field] = value
    (path / "release/certificate.json").write_text(json.dumps(content))
    assert "certificate" in [c.name for c in verify_run(path) if not c.passed]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"protocol": "encrypted-rows", "update": "hb"}, "--protocol secure-aggregation"),
        (
            {"protocol": "encrypted-rows", "update": "gd", "clip": 1.0},
            "option of --protocol secure-aggregation",
        ),
        ({"update": "clipped-gd"}, "--clip"),
        ({"clip": 0.0}, "clip"),
    ],
)
def test_refusals(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        run(**options)


def test_a_party_refuses_too_little_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    calibrate = simulation.calibrate

    def halved(*asked: Any) -> Any:
        plan: Any = calibrate(*asked).template
        scales = tuple(scale / 2 for scale in plan.noise_scales)
        return Calibration(template=replace(plan, noise_scales=scales), certificate=None)

    monkeypatch.setattr(simulation, "calibrate", halved)
    with pytest.raises(ProtocolError, match="privacy_noise"):
        run()


def test_values_beyond_the_range_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Overflow is a clear error, never a wrong sum."""
    narrow = choose(parties=3, largest_sum=1e-6, precision=1e-12)
    monkeypatch.setattr(sums, "_cipher", lambda *_: narrow)
    with pytest.raises(CohortError, match="below .* its largest contribution"):
        run(epsilon=None)


@pytest.mark.parametrize(("iterations", "told"), [(2, 1), (40, 0)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_sums_without_noise_that_stop_short_say_so(iterations: int, told: int) -> None:
    x, y = load_wine(return_X_y=True)
    model = FederatedLogisticRegression(
        protocol="secure-aggregation", C=0.1, epsilon=None, iterations=iterations
    ).fit(x[:, :5], y == 0)
    words = [w for w in model.result_.warnings if f"10 times the {iterations} iterations" in w]
    assert len(words) == told
    text = render_report(model.result_)
    assert "Every sum opens" in text and "shows nothing before its end" not in text
