"""Every registered noise: the law that honest parties leave, its grid, its cost."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from protocols.errors import ParameterError
from protocols.privacy.certificates.sums import SumSetting
from protocols.privacy.laws import SystemRandomness
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss.catalogue import NOISES, noise_of
from protocols.privacy.loss.ledger import Ledger
from tests.protocols.privacy.checks import gaussian_accepted

SPLIT = NoiseSplit(parties=4, colluders=2)
SCALE, DELTA = 0.7, 1e-5
every_noise = pytest.mark.parametrize("name", NOISES)


@every_noise
def test_any_honest_group_leaves_the_law(name: str) -> None:
    noise = noise_of(name)
    accepted = gaussian_accepted
    shares = [
        noise.shares(SCALE, SPLIT, 1000, 25, SeededRandomness(2, f"party {p}")).ravel()
        for p in range(SPLIT.parties)
    ]
    for group in combinations(range(SPLIT.parties), SPLIT.honest):
        total = np.sum([shares[p] for p in group], axis=0)
        assert accepted(total, SCALE)
        assert not accepted(total, 0.95 * SCALE) and not accepted(total, 1.05 * SCALE)
        assert not accepted(total - shares[group[0]], SCALE)
    assert accepted(np.sum(shares, axis=0), SPLIT.total_std(SCALE))


@every_noise
def test_shape_grid_and_degenerate_noise(name: str) -> None:
    noise = noise_of(name)
    values = noise.shares(SCALE, SPLIT, 3, 4, SeededRandomness(1))
    assert values.shape == (3, 4) and values.dtype == np.float64
    units = values / noise.grid(SCALE, SPLIT).unit
    assert (units == np.rint(units)).all() and (units % 2).any()
    assert not noise.shares(0.0, SPLIT, 3, 4, SystemRandomness()).any()
    assert noise.shares(SCALE, SPLIT, 0, 4, SystemRandomness()).shape == (0, 4)
    for wrong in ((-1.0, 1, 1), (math.nan, 1, 1), (SCALE, -1, 1), (SCALE, 1, 0)):
        with pytest.raises(ParameterError, match="sigma|rounds"):
            noise.shares(wrong[0], SPLIT, wrong[1], wrong[2], SystemRandomness())


@every_noise
def test_rounding_is_counted(name: str) -> None:
    """Rounding takes values just beyond a half apart, by almost what the certificate adds."""
    noise = noise_of(name)
    setting = SumSetting(
        mechanism=name,
        sensitivities=(0.1,),
        scales=(SCALE,),
        length=9,
        split=SPLIT,
        epsilon=1.0,
        delta=DELTA,
    )
    half = np.full(setting.length, 0.51)
    apart = (np.linalg.norm(v, ord=noise.norm) for v in (2 * np.rint(half), 2 * half))
    moved = next(apart) - next(apart)
    added = (setting.widened[0] - 0.1) / noise.grid(SCALE, SPLIT).unit
    assert 0.95 * added < moved < added * (1 + 1e-6)


@every_noise
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_a_budget_is_used_to_the_full(name: str, epsilon: float) -> None:
    """By releases of different scales; all are charged to a ledger alike."""
    noise = noise_of(name)
    p, budget = noise.norm, noise.budget(epsilon, DELTA)
    events = [noise.event(noise_multiplier=(p * budget * s) ** (-1 / p)) for s in (0.2, 0.8)]
    assert noise.epsilon(events, DELTA) == pytest.approx(epsilon, rel=1e-9)


@every_noise
def test_a_ledger_reads_what_it_wrote(name: str, tmp_path: Path) -> None:
    noise = noise_of(name)
    events = [noise.event(noise_multiplier=30.0, count=3)]
    others = [noise_of(other).event(noise_multiplier=30.0) for other in NOISES]
    ledger = Ledger(path=tmp_path / "ledger", epsilon=8.0, delta=DELTA)
    ledger.reserve("data", events)
    alone = ledger.spent("data").epsilon
    assert noise.epsilon(events, DELTA) * 0.5 < alone < 8.0
    ledger.reserve("data", others)
    assert alone < ledger.spent("data").epsilon < 8.0


@every_noise
def test_a_coalition_leaves_what_it_does_not_know(name: str) -> None:
    noise, known = noise_of(name), range(SPLIT.parties)
    left = [noise.left(SPLIT, k) for k in known]
    assert left == sorted(left, reverse=True)
    assert left[SPLIT.colluders] == pytest.approx(1.0) and left[SPLIT.colluders + 1] < 0.9
