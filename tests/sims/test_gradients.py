"""Whole runs of the secure-aggregation protocol: every rule, its twin, its refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression

from ciphercohort import FederatedLogisticRegression
from protocols.aggregate.parameters import choose
from protocols.errors import CohortError, ParameterError, ProtocolError
from protocols.privacy.calibrate import sums
from protocols.privacy.calibrate.calibration import Calibration
from protocols.privacy.catalogue import NOISES
from protocols.updates.registry import UPDATES
from sims import simulation
from sims.config import SimulationConfig
from sims.report import render_report
from sims.result import RunResult
from sims.simulation import simulate
from sims.verify import verify_run


def table(rows: int = 120, seed: int = 1) -> pd.DataFrame:
    """Two informative columns and a noisy label."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    y = (x @ [1.5, -1.0, 0.0] + rng.logistic(size=rows) > 0).astype(int)
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y})


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
    return simulate(SimulationConfig(**{**fields, **options}))


@pytest.mark.parametrize("update", UPDATES["secure-aggregation"])
@pytest.mark.parametrize("epsilon", [None, 5.0])
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
    result = run(update="nag", ridge=0.05, rounds=150, epsilon=None)
    recipe_rows = result.rows_by_party
    assert sum(recipe_rows.values()) == 96
    config = SimulationConfig(data=table(), label="y", protocol="secure-aggregation", seed=3)
    from sims.prepare import prepare

    data = prepare(config, np.random.default_rng(3))
    model = LogisticRegression(C=1 / (0.05 * 96), fit_intercept=False, tol=1e-10, max_iter=2000)
    model.fit(data.rows, data.labels)
    assert np.allclose(result.weights, model.coef_[0], atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        *({"mechanism": mechanism, "colluders": 1} for mechanism in NOISES),
        {"weights": "equal", "split": "dirichlet:0.5"},
        {"update": "scd", "batches": 4, "schedule": "poisson"},
        {"update": "scd", "batches": 4, "loss": "svm"},
        {"update": "nag-opt", "mechanism": "laplace", "rounds": 30},
        {"update": "masg-opt", "rounds": 30},
        {"parties": 12},
    ],
)
def test_options(options: dict[str, Any]) -> None:
    result = run(**options)
    assert result.max_abs_diff_to_twin <= 1e-5
    assert result.certificate is not None and result.certificate["satisfied"]


def test_noise_division_shortens_the_run() -> None:
    assert run(update="nag-opt", rounds=200).plan.rounds < 200


def test_a_run_folder_verifies(tmp_path: Path) -> None:
    run(update="hb", out=tmp_path / "run")
    checks = verify_run(tmp_path / "run")
    assert all(check.passed for check in checks), checks
    assert "round" in " ".join(check.detail for check in checks)


@pytest.mark.parametrize(
    ("path", "value", "check"),
    [
        (("setting", "scales"), [9.0] * 4, "certificate"),
        (("setting", "epsilon"), 0.1, "certificate"),
        (("figures", "epsilon_exact"), 0.1, "certificate"),
    ],
)
def test_an_altered_certificate_fails(
    tmp_path: Path, path: tuple[str, str], value: Any, check: str
) -> None:
    run(out=tmp_path / "run")
    file = tmp_path / "run" / "certificate.json"
    content = json.loads(file.read_text())
    content[path[0]][path[1]] = value
    file.write_text(json.dumps(content))
    assert check in [c.name for c in verify_run(tmp_path / "run") if not c.passed]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"protocol": "encrypted-rows", "update": "hb"}, "--protocol secure-aggregation"),
        (
            {"protocol": "encrypted-rows", "update": "gd", "clip": 1.0},
            "option of --protocol secure-aggregation",
        ),
        ({"protocol": "other"}, "protocol='other'"),
        ({"update": "clipped-gd"}, "--clip"),
        ({"mechanism": "uniform"}, "mechanism"),
        ({"momentum": 1.0}, "momentum"),
        ({"ridge": -1.0}, "ridge"),
        ({"batches": 0}, "batches"),
        ({"clip": 0.0}, "clip"),
        ({"weights": "some"}, "weights"),
    ],
)
def test_refusals(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        run(**options)


def test_a_party_refuses_too_little_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    calibrated = simulation.calibrated

    def halved(*asked: Any) -> Any:
        plan: Any = calibrated(*asked).template
        scales = tuple(scale / 2 for scale in plan.noise_scales)
        return Calibration(template=replace(plan, noise_scales=scales), certificate=None)

    monkeypatch.setattr(simulation, "calibrated", halved)
    with pytest.raises(ProtocolError, match="privacy_noise"):
        run()


def test_values_beyond_the_range_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Overflow is a clear error, never a wrong sum."""
    narrow = choose(parties=3, largest_sum=1e-6, precision=1e-12)
    monkeypatch.setattr(sums, "_cipher", lambda *_: narrow)
    with pytest.raises(CohortError, match="below .* its largest contribution"):
        run(epsilon=None)


@pytest.mark.parametrize(("iterations", "told"), [(5, 1), (200, 0)])
def test_sums_without_noise_that_stop_short_say_so(iterations: int, told: int) -> None:
    x, y = load_wine(return_X_y=True)
    model = FederatedLogisticRegression(
        protocol="secure-aggregation", C=1.0, epsilon=None, iterations=iterations
    ).fit(x[:, :5], y == 0)
    words = [w for w in model.result_.warnings if f"10 times the {iterations} iterations" in w]
    assert len(words) == told


def test_a_report_says_that_the_sums_open() -> None:
    x, y = load_wine(return_X_y=True)
    model = FederatedLogisticRegression(
        protocol="secure-aggregation", epsilon=None, iterations=2
    ).fit(x[:, :2], y == 0)
    text = render_report(model.result_)
    assert "Every sum opens" in text and "shows nothing before its end" not in text
