"""Of the methods of arXiv:2008.01989: rates, stages, shares of the budget, the best length."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocols.errors import ParameterError
from protocols.privacy.loss.schedule import optimal_bound
from protocols.updates.strongly_convex import (
    MultiStage,
    StronglyConvexNesterov,
    recommended_first_stage,
)
from tests.protocols.updates.test_contract import check_the_same

RULE = StronglyConvexNesterov(rounds=40, mu=0.05, smoothness=2.0)
STAGED = MultiStage(rounds=160, mu=1.0, smoothness=20.0, first_stage=13)
BUDGET = {"sensitivity": 1e-4, "budget": 1.0, "dim": 20, "initial_error": 10.0}


def test_uniform_and_divided_budgets() -> None:
    """a_t grows by 1 / (1 - sqrt(mu alpha)) per iteration: shares by its third or second root."""
    assert RULE.noise_shares() == (1 / 40,) * 40
    growth = 1 / (1 - math.sqrt(0.5 * 0.05))
    for division, root in (("laplace", 3), ("gaussian", 2)):
        shares = np.array(replace(RULE, division=division).noise_shares())
        assert math.isclose(shares.sum(), 1.0, rel_tol=1e-12)
        assert np.allclose(shares[1:] / shares[:-1], growth ** (1 / root), rtol=1e-12)


@pytest.mark.parametrize("division", ["laplace", "gaussian"])
def test_shortened_takes_the_smallest_bound(division: str) -> None:
    rule = replace(RULE, rounds=300, division=division)
    best = rule.shortened(**BUDGET)
    bounds = [
        optimal_bound(replace(rule, rounds=t).log_error_weights(), mechanism=division, **BUDGET)
        for t in range(1, 301)
    ]
    assert 1 < best.rounds < 300
    assert best == replace(rule, rounds=int(np.argmin(bounds)) + 1)
    with pytest.raises(ParameterError, match="mechanism='uniform'"):
        RULE.shortened(**BUDGET)


def test_shortened_stays_multistage() -> None:
    rule = replace(STAGED, division="laplace")
    best = rule.shortened(**{**BUDGET, "sensitivity": 1e-2})
    assert isinstance(best, MultiStage) and 1 < best.rounds < 160
    assert best == replace(rule, rounds=best.rounds)


def test_lengths_and_steps_are_the_paper_s() -> None:
    """kappa = 20: ceil(sqrt(20) ln 8) = 10, so stages of 13, 40, 80, … iterations."""
    assert list(STAGED.stages) == [1] * 13 + [2] * 40 + [3] * 80 + [4] * 27
    steps = {1: 1, 2: 1 / 16, 3: 1 / 64, 4: 1 / 256}
    assert list(STAGED.rates) == [steps[k] / 20 for k in STAGED.stages]
    assert [t for t, m in enumerate(STAGED.momenta) if m == 0.0] == [12, 52, 132, 159]
    assert replace(STAGED, p=2.0).length(2) == 4 * math.ceil(math.sqrt(20) * math.log(16)) == 52
    assert recommended_first_stage(1.0, 20.0) == 14
    assert recommended_first_stage(1.0, 1.01) == 1


def test_one_stage_is_a_constant_step() -> None:
    fields: dict[str, Any] = {"rounds": 13, "mu": 0.1, "smoothness": 2.0, "division": "laplace"}
    check_the_same(MultiStage(**fields, first_stage=13), StronglyConvexNesterov(**fields))
