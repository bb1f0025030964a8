"""DP-SGD by Opacus beside our own."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("opacus")

from sims.lab import baselines
from sims.lab.baselines_torch import dp_sgd_opacus


@pytest.mark.parametrize("loss", ["ridge", "logistic"])
def test_opacus_is_our_dp_sgd(loss) -> None:
    """Full batch without noise: the same clipped steps, to Opacus' 1e-6 in the clipping."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(60, 5))
    x /= np.linalg.norm(x, axis=1).max()
    y = np.where(x[:, 0] > 0, 1.0, -1.0)
    plan = baselines.DpSgd(loss=loss, lam=0.1, batches=1, rounds=9, clip=0.2, rate=0.4)
    ours = baselines.dp_sgd(plan, x, y, 0.0, rng)
    theirs = baselines.BACKENDS["opacus"](plan, x, y, 0.0, rng)
    assert np.abs(theirs - ours).max() < 1e-4
    assert np.abs(ours).max() > 0.1


def test_opacus_adds_the_noise_that_it_is_told() -> None:
    """800 runs of one round on 4 parameters: std within 5 % (p < 1e-5 if right)."""
    x, y = np.zeros((10, 4)), np.ones(10)
    plan = baselines.DpSgd(loss="ridge", lam=0.0, batches=1, rounds=1, clip=0.5, rate=1.0)
    rng = np.random.default_rng(8)
    found = np.array([dp_sgd_opacus(plan, x, y, 3.0, rng) for _ in range(800)])
    assert found.std() == pytest.approx(0.3, rel=0.05)


def test_opacus_takes_secret_batches_of_the_right_size() -> None:
    x = np.ones((4000, 1))
    plan = baselines.DpSgd(loss="ridge", lam=0.0, batches=4, rounds=1, clip=9.0, rate=1.0)
    step = dp_sgd_opacus(plan, x, np.ones(4000), 0.0, np.random.default_rng(1))
    # (batch size) / (expected size): std sqrt(0.75 / 1000) = 0.027
    assert 0.85 < step[0] < 1.15 and step[0] != 1.0
