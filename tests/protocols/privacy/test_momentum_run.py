"""Private accelerated runs on an INSECURE toy ring: equal to the twin, and recomputed."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest

from parties.recompute import recompute
from protocols.errors import PolicyError
from protocols.rows import RowsPlan
from sims.config import SimulationConfig
from sims.documents import to_json
from sims.result import RunResult
from sims.simulation import simulate
from sims.verify_certificate import certificate_problems


@lru_cache
def private_run() -> RunResult:
    """INSECURE toy ring: two parties, 300 rows."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (300, 3))
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame["y"] = (x @ [2.0, -1.0, 1.0] + rng.logistic(size=300) > 0).astype(int)
    config = SimulationConfig(
        data=frame,
        label="y",
        parties=2,
        update="nag",
        rounds=2,
        degree=3,
        ring_dim=1024,
        epsilon=8.0,
        colluders=1,
        seed=4,
        profile="fast-insecure",
    )
    result = simulate(config)
    assert isinstance(result, RunResult)
    return result


def test_a_private_run_equals_its_twin() -> None:
    result = private_run()
    plan = result.plan
    assert isinstance(plan, RowsPlan) and plan.privacy is not None
    assert result.max_abs_diff_to_twin < 1e-3 * float(np.abs(result.twin_weights).max())
    assert result.iterations[-1].largest_logit <= plan.link.radius
    fields = json.loads(to_json(result.certificate))
    assert list(certificate_problems(fields, plan, result.schema)) == []
    slower = replace(plan, update={**plan.update, "learning_rate": plan.rule.least_rate / 2})
    assert "update" in "; ".join(certificate_problems(fields, slower, result.schema))


def test_parties_recompute_the_cost() -> None:
    result = private_run()
    plan, norm = result.plan, result.schema.norm_bound
    assert recompute(plan, norm).epsilon == pytest.approx(8.0, rel=1e-4)
    with pytest.raises(PolicyError, match="sensitivity|certified"):
        recompute(plan, 2 * norm)
