"""Whole runs at real 128-bit parameters: encrypted against the plaintext twin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.layout import RELEASE, SECOND_MOMENT
from coordinator.replay import replay
from parties.reader.infer import infer_schema
from protocols.ckks import MAX_LOG_QP_128
from protocols.model.plan import ModelPlan
from protocols.plan.protocol import protocol_of
from protocols.rows.plan import RowsPlan
from sims.simulation import simulate
from tests.sims.fake_run import make_frame
from tests.sims.model_runs import cohort
from tests.support.helpers import log2_error, make_session

ROWS = (1000, 250, 3)


@pytest.mark.secure
@pytest.mark.parametrize(
    ("make", "update", "degree"), [(RowsPlan, "barrier-1", 7), (ModelPlan, "nag", 7)]
)
def test_three_parties_at_128_bits(make: type[RowsPlan], update: str, degree: int) -> None:
    """1253 x 10 rows, T = 2: the twin's weights to 2^-13.3 (1e-4)."""
    session = make_session(
        rows=ROWS,
        features=10,
        rounds=2,
        degree=degree,
        update=update,
        ring_dim=None,
        security=128,
        make=make,
    )
    outcome = session.run()
    ckks = outcome.plan.ckks
    assert (ckks.security_bits, outcome.plan.profile) == (128, "secure")
    assert ckks.log_qp <= MAX_LOG_QP_128[ckks.ring_dim]
    assert outcome.plan.layout.num_rows == 1253
    assert np.abs(outcome.weights).max() > 0.05
    twin = session.twin()
    error = log2_error(outcome.weights, twin)
    assert error <= np.log2(1e-4), f"log2 error {error:.1f}"
    # And as much as the flooding says: 6.5 deviations have p = 1e-10.
    stated = protocol_of(outcome.plan).release_error(outcome.plan)
    deviations = np.abs(outcome.weights - twin).max() / stated
    assert deviations <= 6.5, f"{deviations:.1f} deviations"


@pytest.mark.secure
def test_whitened_rows_at_128_bits(tmp_path: Path) -> None:
    """Both runs, 300 rows of two parties, T = 4: the twin's weights to what the flooding says."""
    public = tmp_path / "schema.json"
    infer_schema(make_frame(100), "died").save(public)
    config = SimulationConfig(
        data=make_frame(300),
        label="died",
        schema=public,
        parties=2,
        update="quadratic-gd",
        rounds=4,
        degree=7,
        epsilon=4.0,
        seed=1,
        out=tmp_path / "run",
        keep_messages=True,
    )
    result = simulate(config)
    assert result.plan.security_bits == 128 and result.plan.profile == "secure"
    assert getattr(result.plan, "whitening", None) is not None and result.plan.rounds == 4
    assert np.abs(result.released).max() > 0.05
    # 6.5 deviations of the released weights (p = 1e-10), before they are mapped back.
    stated = protocol_of(result.plan).release_error(result.plan)
    mapped = np.linalg.norm(result.plan.whitening.matrix, 2)
    assert result.max_abs_diff_to_twin < 6.5 * stated * mapped < 0.01
    audited = cohort("verify", tmp_path / "run")
    assert audited.exit_code == 0, audited.output
    assert replay(tmp_path / "run" / RELEASE / SECOND_MOMENT).passed
