"""A simulated run on whitened rows, from its folder. INSECURE toy ring."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.layout import RELEASE, SECOND_MOMENT
from ciphercohort.report.run_folder import RunFolder
from ciphercohort.results.predict import load_model
from ciphercohort.verify.folder import verify_run
from coordinator.replay import Check
from parties.reader.schema import Schema
from protocols.errors import SchemaError
from protocols.plan.kinds import plan_from_dict
from protocols.plan.published import published
from protocols.privacy.calibrate.pace import SHARE
from protocols.privacy.loss import mu_for_epsilon
from protocols.privacy.search.rescale import Scaling
from sims.simulation import _recording, simulate
from tests.sims.model_runs import public_schema


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whitened") / "run"
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.normal(size=(900, 3)), columns=["a", "b", "c"])
    frame["y"] = (frame.a - 0.5 * frame.b + rng.logistic(size=900) > 0).astype(int)
    config = SimulationConfig(
        data=frame,
        label="y",
        schema=public_schema(frame, "y"),
        parties=3,
        epsilon=8.0,
        update="quadratic-gd",
        rounds=4,
        profile="fast-insecure",
        seed=1,
        out=path,
    )
    result = simulate(config)
    assert result.max_abs_diff_to_twin < 1e-3
    assert result.costs.bytes_per_party["keys"] > result.costs.bytes_per_party["agree"] > 0
    return path


def failed(path: Path) -> list[Check]:
    return [check for check in verify_run(path) if not check.passed]


def test_it_verifies(folder: Path) -> None:
    assert not failed(folder)
    assert "second moment" in {check.name for check in verify_run(folder)}


def test_what_is_published_follows_from_what_was_released(folder: Path) -> None:
    model = json.loads((folder / "release/model.json").read_text())
    fields = json.loads((folder / "release/plan.json").read_text())
    plan = plan_from_dict({k: v for k, v in fields.items() if k != "digest"})
    bias = Schema.from_dict(model["schema"]).bias
    weights, scaling = published(plan, np.array(model["released"]), bias)
    assert weights.tolist() == model["weights"]
    assert (scaling is None) == (model["scaling"] is None)


@pytest.mark.parametrize("what", ["gone", "another", "changed"])
def test_the_run_before_is_part_of_it(folder: Path, tmp_path: Path, what: str) -> None:
    """Without it nobody knows whether the ball is wide enough."""
    path = shutil.copytree(folder, tmp_path / "run")
    messages = path / RELEASE / SECOND_MOMENT / "messages"
    if what == "gone":
        shutil.rmtree(path / RELEASE / SECOND_MOMENT)
    elif what == "another":
        plan = json.loads((path / "release/plan.json").read_text())
        plan["moment_plan"] = "0" * 64
        (path / "release/plan.json").write_text(json.dumps(plan))
    else:
        last = max(messages.glob("*.msg"))
        last.write_bytes(last.read_bytes()[:-1])
    assert {"second moment"} <= {check.name for check in failed(path)}


@pytest.mark.parametrize("field", ["slope", "intercept"])
def test_a_scaling_of_ones_own_is_refused(folder: Path, tmp_path: Path, field: str) -> None:
    """What is stated may differ by a percent, as another machine's would, and no more."""
    path = shutil.copytree(folder, tmp_path / "run")
    model = json.loads((path / "release/model.json").read_text())
    for moved, refused in ((0.001, False), (0.2, True)):
        scaling = {**model["scaling"], field: model["scaling"][field] + moved}
        weights = Scaling(**scaling).of(np.array(model["released"]), _bias(model))
        changed = {**model, "scaling": scaling, "weights": weights.tolist()}
        (path / "release/model.json").write_text(json.dumps(changed))
        told = " ".join(check.detail for check in failed(path) if check.name == "model")
        assert (f"scaling.{field}" in told) == refused


def _bias(model: dict[str, Any]) -> float:
    return Schema.from_dict(model["schema"]).bias


def test_the_report_says_what_each_run_costs(folder: Path) -> None:
    """mu of both in quadrature is mu of epsilon, by the plan's own figures."""
    text = (folder / "private/report.html").read_text()
    (parts,) = re.findall(r"ε of the two runs.*?([0-9.]+) and ([0-9.]+)", text, re.DOTALL)
    fields = json.loads((folder / "release/plan.json").read_text())
    first, second = (mu_for_epsilon(epsilon=float(part), delta=1e-5) for part in parts)
    whole = mu_for_epsilon(epsilon=fields["privacy"]["epsilon"], delta=1e-5)
    assert math.hypot(first, second) == pytest.approx(whole, rel=2e-3)
    assert first**2 == pytest.approx(SHARE * whole**2, rel=0.05)


def test_a_loaded_model_scores_a_file(folder: Path, tmp_path: Path) -> None:
    """By path as by table; sigmoid(intercept + coefficients x) where no row is clipped."""
    model = load_model(folder / "release/model.json")
    table = pd.DataFrame({"a": [0.1, -0.3], "b": [0.2, 0.1], "c": [0.0, 0.3], "y": [1, 0]})
    table.to_csv(tmp_path / "some.csv", index=False)
    assert model.score(str(tmp_path / "some.csv")) == model.score(table)
    with pytest.raises(SchemaError, match="column 'y' to predict is missing"):
        model.score(table.drop(columns="y"))
    scores = model.intercept + table[["a", "b", "c"]] @ model.coefficients[["a", "b", "c"]]
    np.testing.assert_allclose(model.predict_proba(table)[:, 1], expit(scores), atol=1e-9)
    far = pd.DataFrame({"a": [50.0], "b": [-40.0], "c": [0.0]})
    z = model.intercept + float(far.iloc[0] @ model.coefficients[["a", "b", "c"]])
    assert abs(model.predict_proba(far)[0, 1] - expit(z)) > 0.001


def test_a_run_that_is_terminated_says_so(tmp_path: Path) -> None:
    """By SIGTERM, as by Ctrl-C."""
    recorded = RunFolder.create(tmp_path / "run")
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), _recording(recorded):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    status = json.loads((tmp_path / "run" / "release/status.json").read_text())
    assert status["state"] == "aborted" and "interrupted" in str(status)
    assert signal.getsignal(signal.SIGTERM) == before
