"""MASG: its stages, its textbook form, the published schedule, and one stage as Nesterov's."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from protocols.errors import ParameterError
from protocols.fields import from_fields
from protocols.updates.strongly_convex import (
    MultiStage,
    StronglyConvexNesterov,
    recommended_first_stage,
)
from tests.protocols.updates.textbook import levels_used, nesterov, response, run

RNG = np.random.default_rng(7)
SPECTRUM = np.array([1.0, 4.0, 20.0])
CENTRE, START = RNG.standard_normal((2, 3))
RULE = MultiStage(rounds=160, mu=1.0, smoothness=20.0, first_stage=13)


def _gradient(w: np.ndarray) -> np.ndarray:
    return SPECTRUM * (w - CENTRE)


def test_lengths_and_steps_are_the_paper_s() -> None:
    """kappa = 20: ceil(sqrt(20) ln 8) = 10, so stages of 13, 40, 80, … iterations."""
    rates, stages = RULE.rates(), RULE.stages()
    assert stages == [1] * 13 + [2] * 40 + [3] * 80 + [4] * 27
    assert rates == [{1: 1, 2: 1 / 16, 3: 1 / 64, 4: 1 / 256}[k] / 20 for k in stages]
    assert replace(RULE, p=2.0).length(2) == 4 * math.ceil(math.sqrt(20) * math.log(16)) == 52
    assert recommended_first_stage(1.0, 20.0) == 14
    assert recommended_first_stage(1.0, 1.01) == 1


@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_equals_the_textbook_in_every_iteration(scale: float) -> None:
    rule = replace(RULE, step_scale=scale)
    expected = nesterov(_gradient, START, rule.rates(), rule.stages(), 1.0)
    found = [w / rule.scale(t) for t, w in enumerate(run(rule, _gradient, START))]
    assert np.allclose(found, expected, rtol=0, atol=1e-12)


def test_momentum_restarts_between_stages_alone() -> None:
    still = [t for t in range(RULE.rounds) if RULE.momentum(t) == 0.0]
    assert still == [12, 52, 132, 159]
    unbroken = nesterov(_gradient, START, RULE.rates(), [1] * RULE.rounds, 1.0)
    assert not np.allclose(run(RULE, _gradient, START)[-1], unbroken[-1], rtol=0, atol=1e-6)


def test_one_stage_is_nesterov_s_method() -> None:
    rule = replace(RULE, rounds=13, division="laplace")
    shared = {k: v for k, v in asdict(rule).items() if k not in ("first_stage", "p")}
    plain = StronglyConvexNesterov(**shared)
    assert np.array_equal(run(rule, _gradient, START), run(plain, _gradient, START))
    assert rule.noise_shares() == plain.noise_shares()
    assert rule.noise_gain() == plain.noise_gain()


@pytest.mark.parametrize(
    ("rounds", "first", "last"), [(53, 65.291, 43.187), (293, 343.447, 205.276)]
)
def test_published_schedule(rounds: int, first: float, last: float) -> None:
    """b_t n eps / S_1 = 1 / share at t = 1 and T, for mu = 1, L = 20, p = 1, n_1 = 13."""
    shares = replace(RULE, rounds=rounds, division="laplace").noise_shares()
    assert abs(1 / shares[0] - first) < 5e-4
    assert abs(1 / shares[-1] - last) < 5e-4


@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_noise_gain_is_the_response_at_the_ridge(ridge: float) -> None:
    rule = replace(RULE, rounds=70, ridge=ridge)
    found = [response(rule, 0.0, t) for t in range(70)]
    assert math.isclose(rule.noise_gain(), float(np.linalg.norm(found)), rel_tol=1e-12)


def test_levels_are_what_a_step_uses() -> None:
    assert RULE.levels() == levels_used(RULE)


def test_shortened_stays_multistage() -> None:
    rule = replace(RULE, division="laplace")
    best = rule.shortened(sensitivity=1e-2, budget=1.0, dim=20, initial_error=10.0)
    assert isinstance(best, MultiStage)
    assert 1 < best.rounds < 160
    assert best == replace(rule, rounds=best.rounds)


def test_plan() -> None:
    fields = json.loads(json.dumps(RULE.to_dict()))
    assert fields.pop("kind") == "masg"
    assert from_fields(MultiStage, fields) == RULE


@pytest.mark.parametrize(
    ("field", "value"), [("first_stage", 0), ("p", 0.5), ("p", math.inf), ("mu", -1.0)]
)
def test_wrong_fields_are_refused(field: str, value: float) -> None:
    with pytest.raises(ParameterError, match=field):
        replace(RULE, **{field: value})
