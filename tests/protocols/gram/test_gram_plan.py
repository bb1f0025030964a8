"""GramPlan: JSON and back, refusals, and what it hands to party and coordinator."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ciphercohort.job.config import configured
from parties.kernel.gram.sums import GramSums
from protocols.errors import MessageError, ParameterError
from protocols.gram.contributions import row_sum_bound
from protocols.gram.errors import ASSUMED_WEIGHT
from protocols.gram.plan import GramPlan
from protocols.plan import kinds as plans
from protocols.plan.protocol import sequence
from protocols.plan.run_plan import Member
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.steps.decrypt import release_error_std
from tests.support.helpers import NOISE, insecure


def make_plan(**changes: Any) -> GramPlan:
    """Two parties of 30 and 10 rows, INSECURE."""
    members = tuple(
        Member(name=f"hospital-{k}", rows=rows, verify_key="00" * 32, commitment="11" * 32)
        for k, rows in enumerate((30, 10))
    )
    fields: dict[str, Any] = {
        "session": "session", "members": members, "schema": {"digest": "22" * 32},
        "num_features": 5, "privacy": None, "profile": "fast-insecure", "model": "linear",
        "ckks": insecure(6, 1024), "outputs": 2, "rounds": 9, "ridge": 0.01,
        "curvature_bound": row_sum_bound(5**0.5, 5, 1.0),
    }  # fmt: skip
    return GramPlan(**(fields | changes))


def test_steps_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan()
    last = f"refresh/{len(plan.refreshes) - 1}"
    assert sequence(plan)[-4:-1] == (last, "commit-decrypt", "decrypt")
    assert len(plan.rotations) == 9
    data = json.loads(json.dumps(plan.to_dict()))
    assert plans.plan_from_dict(data) == plan
    with pytest.raises(MessageError):
        plans.plan_from_dict({**data, "outputs": True})
    assert make_plan(rounds=10).digest() != plan.digest()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "logistic"}, "model='logistic' is not one of linear, improved-lffr"),
        ({"rounds": 0}, "rounds=0"),
        ({"num_features": 257, "outputs": 1}, "need 512 ciphertexts of 512 slots"),
        ({"ckks": insecure(2, 1024)}, "depth=4 levels is below"),
        ({"ridge": -0.1}, "ridge=-0.1"),
        ({"profile": "secure"}, "security_bits=0"),
    ],
)
def test_refused_at_birth(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make_plan(**changes)


def test_contribution() -> None:
    """Encoded targets; noise only with privacy, on the grid of the plan's sigma."""
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-1, 1, (30, 5)), rng.uniform(0, 1, (30, 2))
    plain = make_plan(model="improved-lffr")
    noise = plain.draw_noise(SeededRandomness(1, "a"))
    assert noise.shape == (15 + 10,) and not noise.any()
    sums = plain.contribution(x, y, noise)
    np.testing.assert_array_equal(sums.cross, GramSums.of(x, plain.fitted.encode(y)).cross)
    private = make_plan(privacy=NOISE)
    assert not private.task.row_sums
    drawn = private.draw_noise(SeededRandomness(1, "a"))
    noisy, without = (private.contribution(x, y, part) for part in (drawn, 0 * drawn))
    assert np.abs(noisy.gram - without.gram).max() > 0.01 * 40
    unit = private.split.grid(NOISE.sigma).unit
    np.testing.assert_array_equal(np.diag(noisy.gram) / 40 % unit, 0)


def test_flooding_leaves_three_digits_at_128_bits() -> None:
    """Ring 2^15, 9 features, 2 outputs, 2 parties, 60 iterations: right to 1e-3 (std)."""
    from protocols.ckks.circuits.choice import choose_parameters
    from protocols.gram.training import LEVELS

    ckks = choose_parameters(LEVELS)
    assert (ckks.ring_dim, ckks.security_bits) == (32768, 128)
    plan = make_plan(ckks=ckks, profile="secure", num_features=9, rounds=60)
    assert release_error_std(plan) < 1e-3


@pytest.mark.parametrize("promise", [{"no_privacy": True}, {"epsilon": 1.0}], ids=str)
@pytest.mark.parametrize("model", ["linear", "improved-lffr"])
@pytest.mark.parametrize("features", [1, 5, 20, 100, 250, 410])
def test_whatever_the_rows_flooding_leaves_29_bits(
    features: int, model: str, promise: dict[str, Any]
) -> None:
    """Errors grow with |W| at most, and F times as long ones cost 2 log2 F bits (`ckks.flooding`).

    Of plans as they are by default. Other numbers of features lie between these.
    """
    norm = math.sqrt(features + 1)
    figures = PublicFigures.even(rows=20_000, features=features, parties=3, norm_bound=norm)
    members = tuple(
        Member(name=f"hospital-{k}", rows=rows, verify_key=f"{k:064}", commitment="11" * 32)
        for k, rows in enumerate(figures.rows_by_party)
    )
    calibrated = calibrate(figures, configured(model=model, **promise).wanted())
    plan: Any = calibrated.plan("session", members)
    found = plans.slot_bounds(plan, norm)
    longest = found.release * plan.unit
    assert longest > ASSUMED_WEIGHT  # else it would be a bound
    assert 40 - 2 * math.log2((1 + longest) / (1 + ASSUMED_WEIGHT)) >= 29


def test_noisy_sums_are_of_rows_in_any_order_and_no_further_apart_than_certified() -> None:
    """In exact integers of the grid: |u u^T - v v^T| of two rows u = (x, y) of the bounds."""
    rng = np.random.default_rng(5)
    x, y = rng.uniform(-1, 1, (50, 5)), rng.uniform(0, 1, (50, 2))
    x[:10] = np.sign(x[:10])
    plan = make_plan(privacy=NOISE)
    grid = plan.split.grid(NOISE.sigma)
    zero = np.zeros(plan.task.noise_size)

    def units(rows: np.ndarray, targets: np.ndarray) -> list[int]:
        sums = plan.contribution(rows, targets, zero)
        upper = np.triu_indices(5)
        gram = sums.gram[upper] * np.where(upper[0] == upper[1], 1, np.sqrt(2))
        flat = np.concatenate([gram, sums.cross.ravel()]) / plan.num_rows
        return [int(v) for v in np.rint(flat / grid.unit)]

    once, order = units(x, y), rng.permutation(50)
    assert units(x[order], y[order]) == once
    setting = plan.privacy_setting(math.sqrt(5))
    bound = Fraction(setting.sensitivity) / plan.num_rows / Fraction(grid.unit)
    for k in range(10):
        other, target = x.copy(), y.copy()
        other[k], target[k] = -np.roll(x[k], 1), 1 - y[k]
        moved = [a - b for a, b in zip(once, units(other, target), strict=True)]
        assert 0 < sum(v * v for v in moved) <= bound * bound
