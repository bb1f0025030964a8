"""LFFR where rows stay home: its twin is that of encrypted rows, its noise and slots are bounded.

Encrypted = twin: `test_linear_at_home`. The outside truth is scipy's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from protocols.errors import ParameterError
from protocols.lffr.home_plan import LffrModelPlan
from protocols.lffr.plan import LffrPlan
from protocols.lffr.slots import LffrCourse
from protocols.models.lffr import PAPER_LINK, slope_of_loss
from protocols.plan import kinds
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss.budget import Budget
from protocols.rows.slots import norms
from sims.lffr_twin import run_lffr_twin
from tests.protocols.model.test_linear_at_home import (
    FIGURES,
    LFFR_RULE,
    LINK,
    RULES,
    drafted,
    session_of,
    shards_of,
)
from tests.support.alike import spread
from tests.support.helpers import NOISE, Floats, make_plan
from tests.support.helpers import plain_weights as plain


def lffr_plan(make: Any, rows: Sequence[int], rule: Mapping[str, Any], **changes: Any) -> Any:
    fields: dict[str, Any] = {"make": make, "model": "lffr", "link": PAPER_LINK, "targets": 2}
    return make_plan(**(fields | {"rows": rows, "features": 3, "update": rule} | changes))


def test_noise_of_lffr_is_below_its_bound_and_not_far() -> None:
    """Of groups of rows in four parts for each of three targets; flooding hides the bound."""
    rule = {"kind": "gd", "rounds": 4, "learning_rate": 0.5}
    std, plan = spread(lambda: session_of([200, 180], 15, 3, rule, 4, "lffr"))
    assert 0.1 < std / kinds.model_error_std(plan) < 1


def test_the_twin_of_lffr_is_that_of_encrypted_rows() -> None:
    """With the same noise, rate and ridge."""
    shards = shards_of([60, 90], 3, 2)
    x, y = (np.concatenate(part) for part in zip(*shards, strict=True))
    rule = {"kind": "gd", "rounds": 5, "learning_rate": 3.0, "ridge": 0.04}
    plan = lffr_plan(LffrModelPlan, [60, 90], rule, privacy=NOISE)
    noise = np.random.default_rng(3).normal(0, 0.02, (5, 3, 2))
    other = LffrPlan(
        session=plan.session,
        members=plan.members,
        schema=plan.schema,
        num_features=3,
        privacy=NOISE,
        profile="fast-insecure",
        ckks=plan.ckks,
        outputs=2,
        rounds=5,
        link=PAPER_LINK,
        curvature=None,
        learning_rate=3.0,
        ridge=0.02,
    )
    theirs = run_lffr_twin(other, x, y, noise)
    assert np.allclose(plain(plan, shards, noise), theirs, atol=1e-12)
    assert plan.accounted_as == other.accounted_as
    assert plan.privacy_setting(1.0) == other.privacy_setting(1.0)


def test_the_twin_of_lffr_ends_where_scipy_finds_its_gradient_zero() -> None:
    """With the paper's polynomial for the sigmoid, written out."""
    x, y = (np.concatenate(part) for part in zip(*shards_of([60, 90], 3, 1), strict=True))

    def gradient(w: Floats) -> Floats:
        z = x @ w
        p = 0.5 + 0.19824 * z - 0.0044650 * z**3
        return x.T @ ((p - y[:, 0]) * p * (1 - p))

    rule = {"kind": "nag", "rounds": 600, "learning_rate": 1.5}
    plan = lffr_plan(LffrModelPlan, [60, 90], rule, targets=1)
    found = plain(plan, [(x, y[:, 0])], np.zeros((600, 3)))
    assert np.abs(found - optimize.root(gradient, np.zeros(3), tol=1e-12).x).max() < 1e-3


def test_lffr_is_drafted_like_that_of_encrypted_rows() -> None:
    """With privacy: the same noise, rate and rounds. Without: nag, whatever the targets."""
    figures = PublicFigures.even(rows=3000, features=4, parties=3)
    given = {"model": "lffr", "epsilon": 2.0, "colluders": 1}
    home = drafted(figures, **given)
    rows: Any = calibrate(figures, Wanted(update="", **given)).template  # type: ignore[arg-type]
    assert home.privacy == rows.privacy and home.rounds == rows.rounds
    assert home.update == {"kind": "gd", "rounds": 10, "ridge": 0.0} | {
        "learning_rate": rows.learning_rate
    }
    assert home.slot_bound is not None
    plain = drafted(replace(FIGURES, outputs=2), model="lffr")
    assert (plain.kind, plain.rule.kind, plain.targets) == ("model-lffr", "nag", 2)
    assert plain.ckks.depth == 6 + 2
    ridged = drafted(FIGURES, model="lffr", ridge=0.5)
    assert ridged.update["ridge"] == 1.0 and ridged.slot_bound is not None


@pytest.mark.parametrize("name", ["weight", "offset"])
def test_lffr_takes_weights_and_no_offsets(name: str) -> None:
    plan: Any = lffr_plan(LffrModelPlan, [20, 20], LFFR_RULE)
    refused = plan.drops(name)
    assert bool(refused) == (name == "offset")


def test_lffr_refuses_another_rule_link_or_model() -> None:
    for changes, words in (
        ({"link": LINK}, "1/2 plus an odd"),
        ({"model": "linear"}, "is not 'lffr'"),
        ({"update": {"kind": "nag", "rounds": 2, "learning_rate": 1.0}, "privacy": NOISE}, "gd"),
    ):
        with pytest.raises(ParameterError, match=words):
            replace(lffr_plan(LffrModelPlan, [20, 20], LFFR_RULE), **changes)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.kind}-{rule.rounds}")
def test_lffr_stays_within_what_is_proven(rule: Any) -> None:
    """Rows at the bound on one axis, targets that pull outwards: of every vector of the rule."""
    budget = Budget.of(None, NoiseSplit(parties=3, colluders=0))
    rule = rule if rule.kind == "gd" else replace(rule, rounds=4)  # the walk is of short runs
    course = LffrCourse(
        rule=rule, link=PAPER_LINK, norm_bound=2.0, rows=100, features=1, sigma=0.0, budget=budget
    )
    found = norms(course)
    assert len(found) == 1 + (rule.kind == "gd")
    state = rule.start(np.zeros(2))
    for t in range(rule.rounds):
        point = rule.point(state)
        assert all(np.abs(point).max() <= each.points[t] for each in found)
        slope = slope_of_loss(PAPER_LINK, 2 * point, np.array([1.0, 0.0]))
        assert np.abs(slope).max() <= course.moved(float(np.abs(point).max()))
        rests = rule.step(np.zeros(2), state, t)[: rule.sums(t)]
        for each in found:
            for rest, (_, bound) in zip(rests, each.vectors[t], strict=True):
                assert np.abs(rest).max() <= bound
        state = rule.step(rule.gradient_factor(t) * 2 * slope, state, t)
    last = float(np.abs(rule.weights(state)).max())
    assert last <= min(each.last for each in found) < 6 * last
