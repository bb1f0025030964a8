"""Simulated runs of an encrypted model, recorded, verified and audited. INSECURE toy rings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protocols.registry import sequence
from sims.config import SimulationConfig
from sims.simulation import simulate
from tests.sims.fake_run import make_frame
from tests.sims.model_runs import cohort

TOY: dict[str, Any] = {
    "protocol": "encrypted-model",
    "profile": "fast-insecure",
    "parties": 3,
    "seed": 1,
    "keep_messages": True,
}
RUNS: dict[str, dict[str, Any]] = {
    "without a promise": {"update": "nag", "rounds": 3, "degree": 15},
    "barrier": {"update": "barrier", "rounds": 2, "epsilon": 8.0},
    "whitened": {"update": "quadratic-gd", "rounds": 3, "degree": 7, "epsilon": 4.0, "parties": 2},
}


@pytest.mark.parametrize("name", RUNS)
def test_a_recorded_run_is_the_twins_and_passes_both_audits(name: str, tmp_path: Path) -> None:
    data = {"data": make_frame(300), "label": "died", "out": tmp_path / "run"}
    result = simulate(SimulationConfig(**(TOY | data | RUNS[name])))
    plan: Any = result.plan
    assert plan.kind == "model" and (plan.whitening is not None) == (name == "whitened")
    assert np.abs(result.released).max() > 1e-3
    assert result.max_abs_diff_to_twin < 1e-4
    for command in (("verify",), ("audit", "transcript")):
        done = cohort(*command, tmp_path / "run")
        assert done.exit_code == 0, done.output
    recorded = (tmp_path / "run" / "messages").glob("*.msg")
    assert len(list(recorded)) == 2 * len(sequence(plan)) * len(plan.members)
