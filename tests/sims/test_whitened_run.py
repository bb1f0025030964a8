"""A simulated run on whitened rows, from its folder. INSECURE toy ring."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parties.data.schema import Schema
from protocols.plans import plan_from_dict
from protocols.privacy.rescale import Scaling
from protocols.published import published
from sims.config import SimulationConfig
from sims.run_folder import SECOND_MOMENT
from sims.simulation import simulate
from sims.verify import Check, verify_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whitened") / "run"
    config = SimulationConfig(
        parties=3,
        epsilon=4.0,
        update="quadratic-gd",
        rounds=2,
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
    model = json.loads((folder / "model.json").read_text())
    fields = json.loads((folder / "plan.json").read_text())
    plan = plan_from_dict({k: v for k, v in fields.items() if k != "digest"})
    bias = Schema.from_dict(model["schema"]).bias
    weights, scaling = published(plan, np.array(model["released"]), bias)
    assert weights.tolist() == model["weights"]
    assert (scaling is None) == (model["scaling"] is None)


@pytest.mark.parametrize("what", ["gone", "another", "changed"])
def test_the_run_before_is_part_of_it(folder: Path, tmp_path: Path, what: str) -> None:
    """Without it nobody knows whether the ball is wide enough."""
    path = shutil.copytree(folder, tmp_path / "run")
    messages = path / SECOND_MOMENT / "messages"
    if what == "gone":
        shutil.rmtree(path / SECOND_MOMENT)
    elif what == "another":
        plan = json.loads((path / "plan.json").read_text())
        plan["moment_plan"] = "0" * 64
        (path / "plan.json").write_text(json.dumps(plan))
    else:
        last = max(messages.glob("*.msg"))
        last.write_bytes(last.read_bytes()[:-1])
    assert {"second moment"} <= {check.name for check in failed(path)}


@pytest.mark.parametrize("field", ["slope", "intercept"])
def test_a_scaling_of_ones_own_is_refused(folder: Path, tmp_path: Path, field: str) -> None:
    """What is stated may differ by a percent, as another machine's would, and no more."""
    path = shutil.copytree(folder, tmp_path / "run")
    model = json.loads((path / "model.json").read_text())
    if model["scaling"] is None:
        pytest.skip("nothing was known of this model's scale")
    for moved, refused in ((0.001, False), (0.2, True)):
        scaling = {**model["scaling"], field: model["scaling"][field] + moved}
        weights = Scaling(**scaling).of(np.array(model["released"]), _bias(model))
        changed = {**model, "scaling": scaling, "weights": weights.tolist()}
        (path / "model.json").write_text(json.dumps(changed))
        told = " ".join(check.detail for check in failed(path) if check.name == "model")
        assert (f"scaling.{field}" in told) == refused


def _bias(model: dict[str, Any]) -> float:
    return Schema.from_dict(model["schema"]).bias
