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
from protocols.privacy.randomness import SeededRandomness
from protocols.rows import RowsPlan
from protocols.serialise import to_plain
from sims.config import SimulationConfig
from sims.documents import to_json
from sims.result import RunResult
from sims.simulation import simulate
from sims.verify_certificate import certificate_problems


@lru_cache
def private_run(update: str) -> RunResult:
    """INSECURE toy ring: two parties, 300 rows."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (300, 3))
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame["y"] = (x @ [2.0, -1.0, 1.0] + rng.logistic(size=300) > 0).astype(int)
    config = SimulationConfig(
        data=frame,
        label="y",
        parties=2,
        update=update,
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
    result = private_run("quadratic-nag")
    plan = result.plan
    assert isinstance(plan, RowsPlan) and plan.curvature is not None and plan.privacy is not None
    assert result.max_abs_diff_to_twin < 1e-3 * float(np.abs(result.twin_weights).max())
    assert result.iterations[-1].largest_logit <= plan.link.radius
    fields = json.loads(to_json(result.certificate))
    assert list(certificate_problems(fields, plan, result.schema)) == []
    weak = replace(plan.curvature, sigma=plan.curvature.sigma / 2)
    forged = replace(plan, update={**plan.update, "curvature": to_plain(weak)})
    assert "update" in "; ".join(certificate_problems(fields, forged, result.schema))


def test_the_twin_needs_the_noise_on_the_bound() -> None:
    """Without it the twin is elsewhere: the run's curvature was noisy."""
    plan = private_run("quadratic-nag").plan
    assert isinstance(plan, RowsPlan) and plan.curvature is not None and plan.privacy is not None
    drawn = plan.draw_noise(SeededRandomness(1))
    first, rest = plan.divide_noise(drawn)
    assert drawn.shape == (plan.rounds + 1, plan.num_features) and rest.shape == drawn[1:].shape
    share = plan.privacy.share_std * plan.curvature.sigma / plan.privacy.sigma
    many = [plan.draw_noise(SeededRandomness(k))[0] for k in range(100)]
    assert np.std(many) == pytest.approx(share, rel=0.18)  # 400 values: 5 standard errors
    assert np.abs(first).max() > 0


def test_parties_recompute_the_cost() -> None:
    result = private_run("quadratic-nag")
    plan, norm = result.plan, result.schema.norm_bound
    assert isinstance(plan, RowsPlan) and plan.curvature is not None
    cost = recompute(plan, norm)
    assert cost.epsilon == pytest.approx(8.0, rel=1e-4)
    weak = replace(plan.curvature, sigma=plan.curvature.sigma / 2)
    forged = replace(plan, update={**plan.update, "curvature": to_plain(weak)})
    with pytest.raises(PolicyError, match="sensitivity"):
        recompute(forged, norm)
    with pytest.raises(PolicyError, match="sensitivity|certified"):
        recompute(plan, 2 * norm)
    silent = replace(plan.curvature, sigma=0.0)
    forged = replace(plan, update={**plan.update, "curvature": to_plain(silent)})
    with pytest.raises(PolicyError, match="sigma=0 of the curvature"):
        recompute(forged, norm)


def test_plain_nesterov_runs_with_privacy() -> None:
    result = private_run("nag")
    assert result.max_abs_diff_to_twin < 1e-3 * float(np.abs(result.twin_weights).max())
    assert isinstance(result.plan, RowsPlan)
    cost = recompute(result.plan, result.schema.norm_bound)
    assert cost.epsilon == pytest.approx(8.0, rel=1e-4)
