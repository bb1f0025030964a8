"""Linear regression where rows stay home: encrypted = twin = least squares, several targets.

Whole runs on toy rings (INSECURE). The outside truth is scikit-learn's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from parties.data.schema import NumericColumn, Targets
from protocols.ckks.periodic import PeriodicLayout
from protocols.errors import ParameterError, PrivacyError
from protocols.model_plan import ModelPlan
from protocols.models.linear import Linear
from protocols.privacy.budget import Budget
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.shares import NoiseSplit
from protocols.row_slots import Course, norms
from protocols.updates.momentum import GradientDescent, Nesterov
from tests.helpers import (
    NOISE,
    Floats,
    Session,
    half_of,
    make_data,
    make_plan,
    open_session,
)
from tests.helpers import plain_weights as plain

CLOSE = 1e-4
LINK = Linear().approximation().polynomial


def shards_of(rows: Sequence[int], features: int, targets: int) -> list[tuple[Floats, Floats]]:
    """Rows as `make_data`; targets linear in them but for noise, on [0, 1]."""
    rng = np.random.default_rng(7)
    truth = rng.uniform(-0.5, 0.5, (features, targets))
    return [
        (x, np.clip(0.5 + x @ truth + rng.normal(0, 0.05, (len(x), targets)), 0, 1))
        for x, _ in make_data(list(rows), features, 1)
    ]


def session_of(
    rows: Sequence[int],
    features: int,
    targets: int,
    update: Mapping[str, Any],
    held: int,
    ring_dim: int = 512,
) -> Session:
    shards = shards_of(rows, features, targets)
    columns = tuple(NumericColumn(name=f"y{k}", low=0.0, high=1.0) for k in range(targets))
    fields: dict[str, Any] = {
        "make": ModelPlan,
        "model": "linear",
        "link": LINK,
        "targets": targets,
        "update": update,
        "ring_dim": ring_dim,
        "features_per_ciphertext": held,
    }
    return open_session(lambda common: make_plan(**(fields | common)), shards, Targets(columns))


def twin_of(session: Session) -> Floats:
    plan = session.plan
    found = plain(plan, session.shards, np.zeros((plan.rounds, *plan.fitted_shape)))
    return found.reshape(plan.layout.shape)


CASES = {
    # one part; parts, giant steps and groups; k = 1; three targets in two parts each.
    "one target": ([20, 30], 5, 1, {"kind": "gd", "rounds": 4, "learning_rate": 1.0}, 8),
    "groups": ([70, 1, 40], 9, 1, {"kind": "nag", "rounds": 4, "learning_rate": 1.0}, 16),
    "no rotation": ([20, 300], 7, 2, {"kind": "nag", "rounds": 3, "learning_rate": 1.0}, 2),
    "three targets": (
        [20, 30],
        9,
        3,
        {"kind": "gd", "rounds": 3, "learning_rate": 0.9, "ridge": 0.1},
        8,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_encrypted_equals_plain(case: str) -> None:
    """A party is restarted from its state in the middle of it."""
    session = session_of(*CASES[case])
    restarted = []

    def deliver(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if step == "gradient/1":
            session.restart(next(iter(session.parties)))
            restarted.append(step)
        if step == "refresh/1":  # the joint key is in a process once
            assert len({id(half_of(party)._public) for party in session.parties.values()}) == 1
        return session.deliver(step, outgoing)

    weights = session.run(deliver).weights
    twin = twin_of(session)
    assert restarted and weights.shape == twin.shape == session.plan.layout.shape
    assert np.abs(twin).max() > 0.05
    assert np.abs(weights - twin).max() < CLOSE


def test_the_twin_is_least_squares() -> None:
    """Of each target; with a ridge scikit-learn's, of the mean of squares."""
    shards = shards_of([60, 90], 3, 2)
    x, y = (np.concatenate(part) for part in zip(*shards, strict=True))
    for ridge, fit in (
        (0.0, LinearRegression(fit_intercept=False)),
        (0.2, Ridge(alpha=0.2 * len(x), fit_intercept=False)),
    ):
        rule = {"kind": "gd", "rounds": 2000, "learning_rate": 0.8, "ridge": ridge}
        plan = make_plan(
            make=ModelPlan,
            rows=[60, 90],
            features=3,
            model="linear",
            link=LINK,
            targets=2,
            update=rule,
        )
        weights = plain(plan, shards, np.zeros((2000, 3, 2)))
        assert np.allclose(weights, fit.fit(x, y).coef_.T, atol=1e-6)


# -- what is drafted -------------------------------------------------------------------------------

FIGURES = PublicFigures.even(rows=900, features=20, parties=3, norm_bound=21**0.5)


def drafted(figures: PublicFigures = FIGURES, **options: Any) -> ModelPlan:
    wanted = Wanted(model="linear", protocol="encrypted-model", update="", **options)
    plan = calibrate(figures, wanted).template
    assert isinstance(plan, ModelPlan)
    return plan


def test_a_gradient_of_degree_one_takes_two_levels() -> None:
    plan = drafted()
    assert (plan.link.degree, plan.rule.kind) == (1, "nag")
    assert ModelPlan.levels_of(LINK, GradientDescent(rounds=2, learning_rate=1.0)) == 2
    assert plan.ckks.depth == ModelPlan.levels_of(LINK, plan.rule) + 2 == 5
    assert plan.update["learning_rate"] == pytest.approx(1 / 21)
    assert drafted(replace(FIGURES, outputs=2)).layout.num_parts == 2 * plan.layout.num_parts


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 1.0}, "encrypted-rows, where noise is added to sums once"),
        ({"ridge": 0.1}, "ridge=0.1 with update='nag'"),
    ],
)
def test_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises((PrivacyError, ParameterError), match=words):
        drafted(**options)


def test_no_promise_about_several_targets() -> None:
    """Whoever makes the plan."""
    plan = drafted(replace(FIGURES, outputs=2))
    with pytest.raises(ParameterError, match="privacy"):
        replace(plan, privacy=NOISE)
    with pytest.raises(ParameterError, match="a label is one"):
        replace(plan, model="logistic", targets=2)


def test_more_numbers_than_one_decryption_opens() -> None:
    with pytest.raises(ParameterError, match="opens 512 numbers"):
        PeriodicLayout(
            num_slots=256,
            num_features=20,
            rows_by_party=(3,),
            features_per_ciphertext=16,
            outputs=17,
        )


# -- bounds on iterates ----------------------------------------------------------------------------

RULES = (
    GradientDescent(rounds=40, learning_rate=0.25),
    GradientDescent(rounds=15, learning_rate=0.2, ridge=0.5),
    Nesterov(rounds=25, learning_rate=0.25),
)


def course_of(rule: Any) -> Course:
    budget = Budget.of(None, NoiseSplit(parties=3, colluders=0))
    return Course(
        rule=rule, link=LINK, norm_bound=2.0, rows=100, features=1, sigma=0.0, budget=budget
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.kind}-{rule.rounds}")
def test_the_spectrum_bounds_every_vector(rule: Any) -> None:
    """Equal rows sqrt(h) with target 1 attain f(h) sqrt(h): the worst of them attain the bound."""
    found = next(each for each in norms(course_of(rule)) if "spectrum" in each.proof)
    h = 4 * np.linspace(0, 1, 4001) ** 2
    state, reached = rule.start(np.zeros_like(h)), []
    for t in range(rule.rounds):
        point, factor = rule.point(state), rule.gradient_factor(t)
        worst = float(np.abs(point).max())
        assert worst <= found.points[t]
        for rest, (_, bound) in zip(
            rule.step(np.zeros_like(h), state, t), found.vectors[t], strict=True
        ):
            assert np.abs(rest).max() <= bound
        reached.append(worst / found.points[t])
        state = rule.step(factor * (h * point - np.sqrt(h)), state, t)
    last = float(np.abs(rule.weights(state)).max())
    assert 0.98 < last / found.last <= 1
    assert min(reached[1:]) > 0.98


def test_no_proof_where_steps_are_long() -> None:
    """1 / C^2 is the longest that cannot expand."""
    rule = GradientDescent(rounds=40, learning_rate=0.26)
    assert not any("spectrum" in each.proof for each in norms(course_of(rule)))
