"""GramPlan: JSON and back, refusals, and what it hands to party and coordinator."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from protocols import plans
from protocols.decrypt import release_error_std
from protocols.errors import MessageError, ParameterError
from protocols.gram import GramSums, row_sum_bound
from protocols.gram_plan import GramPlan
from protocols.plan import Member
from protocols.privacy.randomness import SeededRandomness
from protocols.protocol import sequence
from tests.helpers import NOISE, insecure


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
    assert sequence(plan)[-3:-1] == (f"refresh/{len(plan.refreshes) - 1}", "decrypt")
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


def test_flooding_leaves_four_digits_at_128_bits() -> None:
    """Ring 2^15, 9 features, 2 outputs, 2 parties, 60 iterations: weights are right to 1e-4."""
    from protocols.ckks.parameters import choose_parameters
    from protocols.gram_training import LEVELS

    ckks = choose_parameters(LEVELS)
    assert (ckks.ring_dim, ckks.security_bits) == (32768, 128)
    plan = make_plan(ckks=ckks, profile="secure", num_features=9, rounds=60)
    assert release_error_std(plan) < 1e-4 / 3
