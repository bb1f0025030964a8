"""What every update rule promises, over the registry: a new rule is tried by being registered.

A new rule adds to `textbook.TEXTBOOKS` the recursion of its source, and to `cases.VALUES` and
`OUTSIDE` the fields that no other rule has.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from protocols.errors import ParameterError
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.updates.momentum import GradientDescent, HeavyBall, Momentum, Nesterov
from protocols.updates.registry import ANYWHERE, RULES, rounds_of, rule_from_dict, rule_named
from protocols.updates.update import Update
from tests.protocols.updates.cases import (
    FEATURES,
    VALUES,
    course,
    example,
    fields_of,
    levels_used,
    names_of,
    responses,
    suits_ciphertexts,
)
from tests.protocols.updates.textbook import textbook
from tests.support.helpers import NOISE, log2_error, make_data, make_plan, plain_weights
from tests.support.joint import encrypted_weights

ENCRYPTED = [kind for kind in RULES if suits_ciphertexts(kind)]
LINEAR = [kind for kind in RULES if issubclass(rule_named(kind), Momentum)]
RNG = np.random.default_rng(5)
START, CENTRE = RNG.standard_normal((2, FEATURES)) / 2
HESSIAN = np.diag([0.1, 0.3, 0.5, 0.8, 1.0])
NOISES = RNG.normal(0, 0.1, (200, FEATURES))
OUTSIDE: dict[str, tuple[Any, ...]] = {
    "rounds": (0, -1, 2**20 + 1),
    "learning_rate": (0.0, -1.0),
    "ridge": (-0.1, 3.0),
    "momentum": (1.0, -0.1),
    "curvature": ({**VALUES["curvature"], "offset": 0.0}, {**VALUES["curvature"], "error": 0.0}),
    "schedule": ("cosine",),
    "extra": (-0.1, 2.1),
    "decay": (0.0, 1.1),
    "first_alpha": (0.0, 1.1),
    "mu": (0.0, 2.0),
    "smoothness": (0.01,),
    "step_scale": (0.0, 1.5),
    "division": ("gamma",),
    "first_stage": (0,),
    "p": (0.5,),
    "theta": (0.0, -1.0),
    "weight": (0.0, -1.0),
    "reciprocal": ({"coefficients": [1.0], "center": 5.2, "radius": 4.8},),
    "factor": (0.0,),
    "beta1": (1.0, -0.1),
    "beta2": (1.0, -0.1),
}
"""Of every field: values beyond its bounds."""
FIELDS = [(kind, name) for kind in RULES for name in names_of(kind)]


def noisy(t: int, w: np.ndarray) -> np.ndarray:
    """Neither linear nor without noise."""
    return HESSIAN @ (w - CENTRE) + np.sin(w) / 3 + NOISES[t]


# -- in a plan ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RULES)
def test_round_trip(kind: str) -> None:
    """Through JSON; the kind, all fields and nothing else; on ciphertexts is what runs there."""
    assert rule_named(kind).kind == kind
    assert kind not in ANYWHERE or kind in ENCRYPTED
    rule = example(kind)
    text = json.dumps(rule.to_dict(), allow_nan=False)
    assert rule_from_dict(json.loads(text)) == rule
    assert rule.to_dict() == fields_of(kind)
    assert rounds_of(rule.to_dict()) == rule.rounds == 4


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_wrong_fields_are_refused(kind: str, name: str) -> None:
    """Wrong types, numbers that are none, and values beyond the bounds; the message names it.

    The class refuses the values that the plan refuses.
    """
    good = VALUES[name]
    wrong = [None, True, [], "x", {}, *OUTSIDE[name]]
    if isinstance(good, (int, float)):
        wrong += [math.nan, math.inf, -math.inf]
        wrong += [10**400] if isinstance(good, float) else [2.5]
    for value in wrong:
        with pytest.raises(ParameterError, match=rf"{name}|low|coefficients|error"):
            rule_from_dict(fields_of(kind, **{name: value}))
    for value in () if isinstance(good, dict) else OUTSIDE[name]:
        with pytest.raises(ParameterError, match=name):
            replace(example(kind), **{name: value})  # type: ignore[type-var]
    for value in (math.nan, math.inf) if isinstance(good, float) else ():
        with pytest.raises(ParameterError, match=name):
            replace(example(kind), **{name: value})  # type: ignore[type-var]


@pytest.mark.parametrize("kind", RULES)
def test_missing_and_unknown_fields_are_refused(kind: str) -> None:
    whole = fields_of(kind)
    own = fields(rule_named(kind))  # type: ignore[arg-type]
    required = [f.name for f in own if repr(f.default).endswith("_TYPE object")]
    for name in ("rounds", *required):
        with pytest.raises(ParameterError, match=name):
            rule_from_dict({k: v for k, v in whole.items() if k != name})
    for node in ("", *(name for name, value in whole.items() if isinstance(value, dict))):
        extra = {**whole, node: {**whole[node], "x": 1}} if node else {**whole, "x": 1}
        with pytest.raises(ParameterError, match=rf"no field {node}\.?x"):
            rule_from_dict(extra)


@pytest.mark.parametrize("kind", [None, 3, "rmsprop", "GD"])
def test_unknown_kinds_are_refused(kind: Any) -> None:
    with pytest.raises(ParameterError, match="update kind"):
        rule_from_dict({"kind": kind, "rounds": 1})
    for rounds in (None, True, 2.0, "2"):
        with pytest.raises(ParameterError, match="no integer"):
            rounds_of({"kind": kind, "rounds": rounds})


# -- the pair -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("rounds", [1, 2, 3, 40])
def test_every_iteration_is_the_textbook_s(kind: str, rounds: int) -> None:
    """With noise, ridge and momentum; schedule "harmonic" and "geometric" where there are two."""
    for change in ({}, {"schedule": "geometric"}) if "schedule" in names_of(kind) else ({},):
        given = fields_of(kind, rounds=rounds, **change)
        own = {k: v for k, v in given.items() if k not in ("kind", "curvature", "division")}
        rule = rule_from_dict(given)
        start = 0 * START if getattr(rule, "from_zero", False) else START
        wanted, found = textbook(kind)(noisy, start, **own), course(rule, noisy, start)
        scale = np.abs(wanted).max()
        assert scale > 1e-3
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11 * max(1.0, scale))


@pytest.mark.parametrize("kind", RULES)
def test_steps_are_pure_and_hold_the_gradient_as_stated(kind: str) -> None:
    """Frozen inputs, equal outputs; `sums(t)` vectors with one gradient, then old ones as such."""
    rule = example(kind, rounds=5)
    state: tuple[np.ndarray, ...] = rule.start(START)
    for t in range(rule.rounds):
        for vector in state:
            vector.setflags(write=False)
        g = np.linspace(1, 2, FEATURES)
        g.setflags(write=False)
        new, again, still = (rule.step(move, state, t) for move in (g, g, 0.0 * g))
        assert all(np.array_equal(a, b) for a, b in zip(new, again, strict=True))
        if kind in ENCRYPTED:
            count = rule.sums(t)
            for moved, rest in zip(new[:count], still[:count], strict=True):
                np.testing.assert_allclose(rest - moved, g, rtol=1e-12)
            kept = new[count:]
            assert all(now is old for now, old in zip(kept, state[: len(kept)], strict=True))
            assert t + 1 < rule.rounds or count == 1
        state = new


@pytest.mark.parametrize("kind", ENCRYPTED)
def test_units_do_not_matter(kind: str) -> None:
    """Weights and gradients over 8: the same step over 8, whatever the rule does with them."""
    rule = example(kind)
    state, g = rule.start(START), CENTRE
    small = rule.step(g / 8, tuple(v / 8 for v in state), 0, 8.0)
    np.testing.assert_allclose(np.multiply(8, small), rule.step(g, state, 0), rtol=1e-12)


@pytest.mark.parametrize("kind", ENCRYPTED)
def test_levels_are_what_a_step_uses(kind: str) -> None:
    for change in ({}, {"rounds": 1}, {"rounds": 2}, {"ridge": 0.0}, {"momentum": 0.0}):
        if set(change) <= set(names_of(kind)):
            rule = example(kind, **change)
            assert rule.levels() == levels_used(rule)


@pytest.mark.parametrize("kind", sorted(set(RULES) - set(ENCRYPTED)))
def test_the_others_refuse_encrypted_rows_in_words(kind: str) -> None:
    rule = example(kind)
    words = (
        "divide by roots"
        if kind.endswith(("adagrad", "adam"))
        else "secure-aggregation protocol only"
    )
    for call in (rule.levels, rule.noise_gain):
        with pytest.raises(ParameterError, match=f"{kind!r}.*{words}"):
            call()
    with pytest.raises(ParameterError, match=words):
        make_plan(update=fields_of(kind))


@pytest.mark.parametrize("kind", LINEAR)
def test_noise_gain_is_the_flat_response(kind: str) -> None:
    """Root of the summed squares, run by run; every rule at its least curvature."""
    for rounds in (1, 2, 9, 30):
        keeps_ridge = "mu" in names_of(kind)
        change = {"ridge": 0.0} if "ridge" in names_of(kind) and not keeps_ridge else {}
        flat = np.linalg.norm(responses(example(kind, rounds=rounds, **change), 0.0))
        assert math.isclose(example(kind, rounds=rounds).noise_gain(), float(flat), rel_tol=1e-12)


STABLE = {
    "gd": 2 / 0.4 - 0.02,
    "hb": 2 * 1.6 / 0.4 - 0.02,
    "nag": 1 / 0.4,
    "nag-sc": 2.0 / 0.7 - 0.02,
}


@pytest.mark.parametrize("kind", [kind for kind in STABLE if kind in RULES])
def test_no_curvature_of_the_stable_range_responds_more(kind: str) -> None:
    rule = example(kind, rounds=24)
    for curvature in np.linspace(0.0, STABLE[kind], 25):
        found = responses(rule, float(curvature))
        assert np.linalg.norm(found) <= rule.noise_gain() * (1 + 1e-9)


def test_a_barrier_step_expands_no_distance() -> None:
    rule = example("barrier", rounds=30)
    flat = lambda t, w: HESSIAN @ w / 4  # noqa: E731
    gap = course(rule, flat, START)[-1] - course(rule, flat, START + 1e-3)[-1]
    assert np.linalg.norm(gap) <= 1e-3 * math.sqrt(FEATURES)
    assert rule.noise_gain() == math.sqrt(30)


# -- degenerate cases ------------------------------------------------------------------------------

DEGENERATE: dict[str, tuple[Update, Update]] = {
    "heavy ball without momentum": (
        HeavyBall(rounds=25, learning_rate=0.6, momentum=0.0, ridge=0.2),
        GradientDescent(rounds=25, learning_rate=0.6, ridge=0.2),
    ),
    "one round": (
        Nesterov(rounds=1, learning_rate=0.5),
        GradientDescent(rounds=1, learning_rate=0.5),
    ),
}


@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_cases(case: str) -> None:
    check_the_same(*DEGENERATE[case])


def check_the_same(rule: Update, plain: Update) -> None:
    """To the last bit; so are what masks are made of, and the budget's shares."""
    assert np.array_equal(course(rule, noisy, START), course(plain, noisy, START))
    for t in range(rule.rounds):
        assert rule.gradient_factor(t) == plain.gradient_factor(t) and rule.sums(t) == plain.sums(t)
    assert rule.levels() == plain.levels()
    assert rule.noise_shares() == plain.noise_shares()
    assert math.isclose(rule.noise_gain(), plain.noise_gain(), rel_tol=1e-12)


# -- encrypted -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ENCRYPTED)
def test_encrypted_equals_plain(kind: str) -> None:
    """On a toy ring (INSECURE), noise included: 2^-28; without its noise the twin is far off."""
    common: dict[str, Any] = {"rows": [12, 9], "features": FEATURES, "degree": 5, "ring_dim": 1024}
    noisy_plan = make_plan(update=fields_of("gd"), privacy=NOISE, **common)
    # Of a preconditioner nobody promises privacy: the circuit adds what it is given.
    private = None if "curvature" in names_of(kind) else NOISE
    plan = make_plan(update=fields_of(kind), privacy=private, **common)
    shards = make_data([12, 9], FEATURES, 5)
    noises = [noisy_plan.draw_noise(SeededRandomness(5, m.name)) for m in plan.members]
    released = encrypted_weights(plan, shards, noises).exact
    twin = plain_weights(plan, shards, sum(noises))
    assert np.abs(twin).max() > 0.02
    assert log2_error(released, twin) <= -28
    assert log2_error(released, plain_weights(plan, shards, 0.0 * noises[0])) > -12
