"""Regressions where rows stay home: encrypted = twin = an outside truth, several targets.

Whole runs on toy rings (INSECURE). The outside truths are scikit-learn's and scipy's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import logit
from sklearn.linear_model import LinearRegression, Ridge

from parties.reader.schema import NumericColumn, Targets
from protocols.ckks import shared_keys
from protocols.ckks.circuits.periodic import PeriodicLayout
from protocols.errors import ParameterError, PrivacyError
from protocols.lffr.home_plan import LffrModelPlan
from protocols.model.plan import ModelPlan
from protocols.models.lffr import PAPER_LINK
from protocols.models.linear import Linear
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss.budget import Budget
from protocols.rows.slots import Course, norms
from protocols.updates.momentum import GradientDescent, Nesterov
from tests.support.helpers import (
    NOISE,
    Floats,
    Session,
    half_of,
    make_data,
    make_plan,
    open_session,
)
from tests.support.helpers import plain_weights as plain

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
    model: str = "linear",
    privacy: Any = None,
    ring_dim: int = 512,
    batches: int = 1,
) -> Session:
    shards = shards_of(rows, features, targets)
    columns = tuple(NumericColumn(name=f"y{k}", low=0.0, high=1.0) for k in range(targets))
    fields: dict[str, Any] = {
        "make": LffrModelPlan if model == "lffr" else ModelPlan,
        "model": model,
        "link": PAPER_LINK if model == "lffr" else LINK,
        "targets": targets,
        "update": update,
        "ring_dim": ring_dim,
        "features_per_ciphertext": held,
        "privacy": privacy,
        "batches": batches,
    }
    return open_session(lambda common: make_plan(**(fields | common)), shards, Targets(columns))


def twin_of(session: Session) -> Floats:
    plan = session.plan
    sources = [SeededRandomness(session.rng_seed, name) for name in session.parties]
    noise = sum(plan.draw_noise(source) for source in sources)
    return plan.decode(plain(plan, session.in_order, noise, sources)).reshape(plan.layout.shape)


LFFR_RULE = {"kind": "gd", "rounds": 3, "learning_rate": 4.0}
CASES: dict[str, tuple[Any, ...]] = {
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
    "improved": (
        [20, 30],
        5,
        2,
        {"kind": "nag", "rounds": 4, "learning_rate": 1.0},
        8,
        "improved-lffr",
    ),
    "lffr": ([20, 30], 5, 1, {"kind": "nag", "rounds": 3, "learning_rate": 4.0}, 8, "lffr"),
    # one part in groups; parts without rotations and a ridge; noise.
    "lffr in groups": ([70, 1, 40], 9, 2, LFFR_RULE, 16, "lffr"),
    "lffr, no rotation": ([20, 300], 5, 2, LFFR_RULE | {"ridge": 0.02}, 2, "lffr"),
    "lffr, noise": ([20, 30], 5, 2, LFFR_RULE, 4, "lffr", NOISE),
}


@pytest.mark.parametrize("case", CASES)
def test_encrypted_equals_plain(case: str) -> None:
    """A party is restarted from its state in the middle of it."""
    session = session_of(*CASES[case])
    restarted = []

    def deliver(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if step == "commit-gradient/1":
            session.restart(next(iter(session.parties)))
            restarted.append(step)
        if step == "refresh/1":  # what is public is in a process once
            halves = [half_of(party) for party in session.parties.values()]
            assert len({id(half.session._loaded) for half in halves}) == 1
            assert len({id(half.session._keys.public_key()[1]) for half in halves}) == 1
            assert len({id(half.context) for half in halves}) == 1
            # Of the ceremony nothing is left: a reference has the size of a key.
            assert "reference" not in shared_keys._LAST[halves[0].context]
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


def test_the_twin_of_improved_lffr_is_least_squares_of_logits() -> None:
    shards = shards_of([60, 90], 3, 2)
    x, y = (np.concatenate(part) for part in zip(*shards, strict=True))
    rule = {"kind": "gd", "rounds": 2000, "learning_rate": 0.8}
    plan: Any = make_plan(
        make=ModelPlan,
        rows=[60, 90],
        features=3,
        model="improved-lffr",
        link=LINK,
        targets=2,
        update=rule,
    )
    weights = plan.decode(plain(plan, shards, np.zeros((2000, 3, 2))))
    fit = LinearRegression(fit_intercept=False).fit(x, logit(0.25 + 0.5 * y))
    assert np.allclose(weights, fit.coef_.T, atol=1e-6)


# -- what is drafted -------------------------------------------------------------------------------

FIGURES = PublicFigures.even(rows=900, features=20, parties=3, norm_bound=21**0.5)


def drafted(
    figures: PublicFigures = FIGURES, model: str = "linear", update: str = "", **options: Any
) -> ModelPlan:
    wanted = Wanted(model=model, protocol="encrypted-model", update=update, **options)
    plan = calibrate(figures, wanted).template
    assert isinstance(plan, ModelPlan)
    return plan


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 1.0}, "encrypted-rows, where noise is added to sums once"),
        ({"ridge": 0.1}, "ridge=0.1 with update='nag'"),
        ({"epsilon": 1.0, "model": "improved-lffr"}, "encrypted-rows, where noise is added to"),
        ({"update": "nag", "model": "lffr", "ridge": 0.1}, "nag.* with ridge=0.1.*takes gd"),
        ({"update": "nag", "model": "lffr", "epsilon": 1.0}, "nag.* with epsilon=1.*takes gd"),
        ({"update": "barrier", "model": "lffr"}, "barrier.*model lffr takes gd or nag"),
        ({"model": "lffr", "floor": 0.1}, "floor=0.1 is of an inverted curvature"),
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
