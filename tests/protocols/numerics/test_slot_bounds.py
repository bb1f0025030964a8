"""Bounds on slots: never passed by the worst data, not far above it, and refused where unproven.

A case's rows stand on the norm ball's boundary, its labels push one way, its noise is at its tail.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from parties.agent.manifest import describe_plan
from parties.policy import Policy
from parties.verifier.party import Party
from protocols.ckks.circuits.rows import EncryptedGradient
from protocols.errors import ParameterError, PolicyError, ProtocolError
from protocols.exchange.serialise import to_plain
from protocols.gram.contributions import row_sum_bound
from protocols.numerics import slot_bounds
from protocols.numerics.approximation import exponential_approximation, sigmoid_approximation
from protocols.plan import kinds
from protocols.plan.kinds import plan_from_dict, with_slot_bound
from protocols.plan.run_plan import PrivacyPlan
from protocols.privacy.certificates.quiet_descent import QuietDescent, least_radius, logistic_ball
from protocols.privacy.search.search import find_setting
from protocols.rows import slots as row_slots
from protocols.rows.curvature import Curvature, largest_row_sum
from protocols.rows.plan import RowsPlan
from protocols.steps import refresh as refreshing
from protocols.updates.registry import RULES
from tests.protocols import lffr_session
from tests.protocols.gram import test_gram_plan
from tests.protocols.slot_machine import Seen, Slots, packed, seen_slots
from tests.support import exact
from tests.support.helpers import insecure, make_plan, make_rule, make_session
from tests.support.joint import encrypted_weights, joint_keys

C, FEATURES = 1.0, 4
LOOSEST = 8.0
"""No bound is so many times what the worst data attain; twice as many of accelerated steps."""
NOISE = PrivacyPlan(
    epsilon=1.0, delta=1e-5, colluders=1, sigma=0.02, share_std=0.02, sensitivity=1.0
)


def barrier_fields(rounds: int) -> dict[str, Any]:
    """A barrier whose theorem holds without noise."""
    found = find_setting(
        rows=160, features=FEATURES, norm_bound=C, epsilon=None, delta=1e-5, parties=2,
        colluders=0, rounds=rounds, degree=7, method="barrier",
    ).require().setting  # fmt: skip
    return {"rule": found.rule.to_dict(), "link": found.sigmoid.polynomial}


def rows_plan(
    update: dict[str, Any], degree: int = 7, radius: float = 8.0, **changes: Any
) -> RowsPlan:
    """160 rows of two parties, INSECURE; in a ring so small that rows fill several groups."""
    link = changes.pop("link", None) or sigmoid_approximation(degree, radius).polynomial
    levels = 8
    fields = {"link": link, "ckks": insecure(levels, 512)} | changes
    return make_plan(rows=(100, 60), features=FEATURES, update=update, **fields)


def quadratic() -> dict[str, Any]:
    curvature = Curvature.for_rows(largest_row_sum(FEATURES, norm=C), offset=0.1)
    return {**QUADRATIC, "curvature": to_plain(curvature)}


def of_rows(update: Callable[[], dict[str, Any]], **changes: Any) -> Callable[[], Any]:
    return lambda: rows_plan(update(), **changes)


def of_barrier(**changes: Any) -> RowsPlan:
    found = barrier_fields(6)
    return rows_plan(found["rule"], link=found["link"], **changes)


def of_exp(update: dict[str, Any], **changes: Any) -> RowsPlan:
    """exp(z - 3): a link without symmetry."""
    link = exponential_approximation(7, 3.0).polynomial
    return rows_plan({**update, "rounds": 3, "learning_rate": 0.9}, link=link, **changes)


def of_lffr(**changes: Any) -> Any:
    fields = {"features": FEATURES, "rows": (40, 20), "rounds": 3, **changes}
    if "learning_rate" not in changes:
        largest = largest_row_sum(FEATURES, norm=C)
        fields["curvature"] = lffr_session.fixed_hessian_of(largest, ridge=fields["ridge"])
    return lffr_session.make_plan(**fields)


def of_gram(**changes: Any) -> Any:
    bound = row_sum_bound(C, FEATURES, C)
    ring = insecure(6, 1024)
    return test_gram_plan.make_plan(
        **{"num_features": FEATURES, "curvature_bound": bound, "ckks": ring, **changes}
    )


GD = {"kind": "gd", "rounds": 6, "learning_rate": 4.0, "ridge": 0.0}
RIDGE = {**GD, "ridge": 0.1, "rounds": 8}
NAG = {"kind": "nag", "rounds": 3, "learning_rate": 2.0}
HB = {"kind": "hb", "rounds": 4, "learning_rate": 1.0, "momentum": 0.5, "ridge": 0.1}
SC = {"kind": "nag-sc", "rounds": 4, "mu": 0.1, "smoothness": 1.0, "ridge": 0.1,
      "step_scale": 1.0, "division": "uniform"}  # fmt: skip
MASG = {**SC, "kind": "masg", "first_stage": 2, "p": 1.0}
QUADRATIC = {"kind": "quadratic-nag", "rounds": 2, "schedule": "geometric", "learning_rate": 1.0,
             "decay": 0.9, "first_alpha": 1.0}  # fmt: skip


CASES: dict[str, Callable[[], Any]] = {
    "gd": of_rows(lambda: GD),
    "gd-one-step": of_rows(lambda: {**GD, "rounds": 1}),
    "gd-default": of_rows(lambda: {**GD, "rounds": 20, "learning_rate": 4.5}),
    "gd-parts": of_rows(lambda: GD, features_per_ciphertext=2),
    "gd-3": of_rows(lambda: GD, degree=3, radius=10.0),
    "gd-15": of_rows(lambda: GD, degree=15, radius=16.0),
    "gd-noise": of_rows(lambda: GD, privacy=NOISE),
    "ridge": of_rows(lambda: RIDGE),
    "ridge-noise-parts": of_rows(lambda: RIDGE, privacy=NOISE, features_per_ciphertext=2),
    "nag": of_rows(lambda: NAG),
    "nag-noise": of_rows(lambda: NAG, privacy=NOISE),
    "nag-parts": of_rows(lambda: NAG, features_per_ciphertext=1),
    "exp": lambda: of_exp(GD),
    "exp-parts": lambda: of_exp(NAG, features_per_ciphertext=2),
    "hb": of_rows(lambda: HB),
    "quadratic": of_rows(quadratic, radius=30.0, degree=3),
    "quadratic-parts": of_rows(quadratic, radius=30.0, degree=3, features_per_ciphertext=2),
    "barrier": of_barrier,
    "barrier-parts": lambda: of_barrier(features_per_ciphertext=2),
    "lffr": lambda: of_lffr(ridge=0.2),
    "lffr-rate": lambda: of_lffr(curvature=None, learning_rate=1.5, ridge=0.1),
    "lffr-noise": lambda: of_lffr(curvature=None, learning_rate=1.0, privacy=NOISE),
}
for rule in (SC, MASG):
    if rule["kind"] in RULES:
        CASES[str(rule["kind"])] = of_rows(lambda rule=rule: rule)  # type: ignore[misc]
for fast in (False, True):
    CASES |= {
        f"gram{'-fast' * fast}": partial(of_gram, accelerated=fast),
        f"gram-plain{'-fast' * fast}": partial(of_gram, ridge=0.0, accelerated=fast),
        f"gram-ridge{'-fast' * fast}": partial(of_gram, ridge=0.3, rounds=30, accelerated=fast),
        f"gram-improved-lffr{'-fast' * fast}": partial(
            of_gram, model="improved-lffr", rounds=4, accelerated=fast
        ),
        f"gram-noise{'-fast' * fast}": partial(
            of_gram,
            privacy=replace(NOISE, sigma=0.01),
            ridge=0.3,
            curvature_bound=2 * (C**2 + 0.3),
            accelerated=fast,
        ),
    }


def worst_data(plan: Any) -> list[list[tuple[Any, Any]]]:
    """Shards by case: one direction, one column, random, a rare column; all on the boundary.

    For several outputs also one column of short rows: there weights are longest.
    """
    rng, d, outputs = np.random.default_rng(5), FEATURES, getattr(plan, "outputs", 0)
    n = plan.num_rows
    spread = rng.normal(size=(n, d))
    rare = np.tile(np.eye(d)[0] * 0.05, (n, 1))
    rare[:3] = np.eye(d)[1]
    found = []
    spread /= np.linalg.norm(spread, axis=1, keepdims=True)
    column = np.tile(np.eye(d)[0], (n, 1))
    short = [a * column for a in (0.02, 0.05, 0.1, 0.2, 0.4)] if outputs else []
    for unscaled in (np.full((n, d), d**-0.5), column, spread, rare, *short):
        x = C * unscaled
        y = np.ones(n) if x[:, 0].min() > 0 else (x[:, 0] > 0).astype(float)
        y = np.repeat(y[:, None], outputs, axis=1) if outputs else y
        split = [m.rows for m in plan.members]
        cuts = np.cumsum(split)[:-1]
        found.append(list(zip(np.split(x, cuts), np.split(y, cuts), strict=True)))
    return found


def noises(plan: Any, seed: int) -> list[Any]:
    """Gaussian noise of every party, and its first coordinate at five deviations."""
    from protocols.privacy.laws.seeded import SeededRandomness

    found = [plan.draw_noise(SeededRandomness(seed, name)) for name in plan.names]
    if plan.privacy:
        for noise in found:
            noise.flat[0] = 5 * plan.privacy.share_std / len(found) ** 0.5
    return found


def attained(plan: Any) -> Seen:
    """The largest of all data, refresh by refresh."""
    runs = [
        seen_slots(plan, shards, noises(plan, seed))
        for shards in worst_data(plan)
        for seed in ((1, 2, 3) if plan.privacy else (1,))
    ]
    return Seen(
        refreshes=[max(each) for each in zip(*(run.refreshes for run in runs), strict=True)],
        release=max(run.release for run in runs),
    )


def check(policy: Policy, plan: Any, norm_bound: float) -> None:
    policy.check_slots(plan, kinds.slot_bounds(plan, norm_bound))


@pytest.mark.parametrize("name", CASES)
def test_no_slot_passes_its_bound(name: str) -> None:
    """Every refresh and the release, of every rule, model and layout."""
    plan = CASES[name]()
    found, seen = kinds.slot_bounds(plan, C), attained(plan)
    assert found.largest is not None, found.proof
    assert len(found.refreshes) == len(plan.refreshes) == len(seen.refreshes)
    pairs = [*zip(seen.refreshes, found.refreshes, strict=True), (seen.release, found.release)]
    for step, (slot, bound) in enumerate(pairs):
        assert slot <= bound, (step, slot, bound)
    largest = max(*seen.refreshes, seen.release)
    loosest = LOOSEST * (2 if getattr(plan, "accelerated", False) else 1)
    assert found.largest <= loosest * largest


@pytest.mark.parametrize("features", [4, 64])
def test_a_gradients_slots_at_any_weights(features: int) -> None:
    """Rows in a column of the side vector add to it: few of them, or a fourth of all."""
    length, rows = 6.0, 160
    plan = replace(rows_plan({**GD, "rounds": 1}), num_features=features)
    column = np.arange(rows) % plan.layout.block_size == 0
    x, y = np.zeros((rows, features)), np.where(column, 0.0, 1.0)
    x[:, 0] = np.where(column, -C, C)
    shards = [(x[:100], y[:100]), (x[100:], y[100:])]
    evaluator, (data, side) = packed(plan, shards, [np.zeros((1, features))] * 2)
    weights = evaluator.wrap(
        Slots(plan.layout.replicated(-length * np.eye(features)[0] / plan.unit), 1)
    )
    terms = EncryptedGradient(evaluator, plan.units, data, side)(weights, 4.0).terms
    largest = max(float(np.abs(ct.values).max()) for ct in terms.cts)
    norms = row_slots.Norms(
        proof="", points=(length,), vectors=(((4.0, 0.0),),), last=0.0, failure=0.0
    )
    (bound,) = row_slots._slots(plan, row_slots._course(plan, C), norms).refreshes
    assert bound / 1.03 <= largest <= bound


def test_a_bound_has_little_to_spare() -> None:
    """Half of it, or that of a third of the norm, is passed by some case of each protocol."""
    for name in ("gd", "nag", "barrier", "lffr-rate"):
        plan = CASES[name]()
        seen = attained(plan)
        assert max(seen.refreshes) > max(kinds.slot_bounds(plan, C).refreshes) / 2, name
        assert max(seen.refreshes) > max(kinds.slot_bounds(plan, C / 3).refreshes), name
    # The search fits the link's interval to the certificate's R: w_T / unit is at most 1.
    release = kinds.slot_bounds(CASES["barrier"](), C).release
    assert release == pytest.approx(slot_bounds.MARGIN, rel=1e-3)


def test_coefficients_are_at_most_the_largest_slot() -> None:
    """Of what an encrypted run refreshes: 2^scale_bits times the bound, read with all keys."""
    plan = with_slot_bound(rows_plan({**GD, "rounds": 2}), C)
    shards = worst_data(plan)[1]
    silent = [np.zeros((2, FEATURES)) for _ in plan.names]
    keys = joint_keys(2, plan.ckks.depth, plan.ckks.ring_dim)
    seen: list[int] = []

    def read(context: Any, key: Any, shallow: Any, *rest: Any) -> Any:
        for ct in shallow:
            c0, c1 = context.polynomials_of(ct)
            low = context.primes[: len(c0)]
            moduli = np.array(low, dtype=object)[:, None]
            secret = sum(part[: len(low)].astype(object) for part in keys.secrets.values())
            message = (c0.astype(object) + exact.product(c1, secret, low)) % moduli
            seen.append(int(max(abs(exact.whole(message, low)))))
        return join(context, key, shallow, *rest)

    join = refreshing.join
    with patch.object(refreshing, "join", read):
        released = encrypted_weights(plan, shards, silent)
    whole = seen_slots(plan, shards, silent)
    assert plan.slot_bound is not None and len(seen) == 2
    assert max(seen) <= plan.slot_bound * 2.0**plan.ckks.scale_bits
    # A slot is the sum of many coefficients: the largest has a good part of it.
    assert max(seen) > max(whole.refreshes) * 2.0**plan.ckks.scale_bits / 256
    np.testing.assert_allclose(released.exact, whole.weights, atol=1e-6)


# -- the ball -------------------------------------------------------------------------------------


def iterates(link: Any, eta: float, rounds: int, x: Any) -> float:
    """Largest |w_t| of gradient descent on rows with y = 1."""
    w, longest = np.zeros(x.shape[1]), 0.0
    for _ in range(rounds):
        w = w - eta * x.T @ (link(x @ w) - 1) / len(x)
        longest = max(longest, float(np.linalg.norm(w)))
    return longest


@pytest.mark.parametrize(("eta", "rounds"), [(4.5, 1), (4.5, 20), (2.0, 40), (0.5, 100)])
def test_the_ball_of_falls(eta: float, rounds: int) -> None:
    """Holds for every data set tried, and for no long run with a budget of its two left out."""
    link = sigmoid_approximation(7, 8.0).polynomial
    descent = QuietDescent(learning_rate=eta, lam=0.0, rounds=rounds)
    reached = least_radius(lambda r: logistic_ball(descent, link, C, r), 0.1, 8.0)
    assert reached < 8.0
    # Steep steps have no ball.
    assert math.isinf(
        logistic_ball(QuietDescent(learning_rate=10.0, lam=0.0, rounds=2), link, C, 8.0)
    )
    rng, longest = np.random.default_rng(2), 0.0
    for rows in (1, 2, 5, 30):
        for _ in range(20):
            x = rng.normal(size=(rows, FEATURES)) + rng.uniform(0, 2) * np.eye(FEATURES)[0]
            x *= C / np.linalg.norm(x, axis=1, keepdims=True)
            longest = max(longest, iterates(link, eta, rounds, x))
    longest = max(longest, iterates(link, eta, rounds, np.eye(FEATURES)[:1]))
    assert reached / 2.5 < longest <= reached
    with patch("protocols.privacy.certificates.quiet_descent.push_bound", lambda *a, **k: 0.0):
        pushless = math.sqrt(logistic_ball(descent, link, C, reached))
    with patch("protocols.privacy.certificates.quiet_descent.largest_fall", lambda *a: 0.0):
        fallless = math.sqrt(logistic_ball(descent, link, C, reached))
    assert longest > (fallless if rounds == 1 else pushless)


# -- plans without a proof ------------------------------------------------------------------------

DIVERGENT = {**GD, "rounds": 20, "learning_rate": 3e4}
UNPROVEN = {
    "gd at 3e4": lambda: rows_plan(DIVERGENT),
    "two steps at 3e4": lambda: rows_plan({**DIVERGENT, "rounds": 2}),
    "nag, ten steps": lambda: rows_plan({**NAG, "rounds": 10, "learning_rate": 4.5}),
    "hb": lambda: rows_plan({**HB, "rounds": 30}),
    "barrier without its theorem": lambda: make_plan(features=FEATURES),
    "lffr, no ridge": lambda: of_lffr(ridge=0.0),
    "lffr at 40": lambda: of_lffr(curvature=None, learning_rate=40.0),
    "gram, ridge below the noise": lambda: of_gram(privacy=NOISE, ridge=0.01),
    "gram, curvature without the noise": lambda: of_gram(
        privacy=NOISE, ridge=0.5, curvature_bound=2.0
    ),
    "noise that fails often": lambda: rows_plan(GD, privacy=replace(NOISE, delta=0.5)),
}


@pytest.mark.parametrize("name", UNPROVEN)
def test_without_proof_only_by_consent(name: str) -> None:
    """Refused in words that say the risk, whatever the plan states; or explicitly accepted."""
    plan = UNPROVEN[name]()
    assert kinds.slot_bounds(plan, C).largest is None
    for stated in (plan, replace(plan, slot_bound=5.0), with_slot_bound(plan, C)):
        with pytest.raises(PolicyError, match=r"2\.0 bits \(log2\(2P\)\) a refresh of each"):
            check(Policy(), stated, C)
        check(Policy(accept_unbounded=True), stated, C)
    assert with_slot_bound(plan, C).slot_bound is None
    assert "NO PROOF" in describe_plan(plan, plan.names[0], C)


@pytest.mark.parametrize("name", ["gd", "lffr", "lffr-rate", "gram", "barrier"])
def test_a_party_proves_the_bound_itself(name: str) -> None:
    """Less than its own figure, and none at all, are refused; masks depend on neither.

    The norm bound is that of its own schema: with longer rows it refuses.
    """
    plan = with_slot_bound(CASES[name](), C)
    own = plan.slot_bound
    check(Policy(), plan, C)
    check(Policy(), replace(plan, slot_bound=own * (1 + 1e-12)), C)
    for policy in (Policy(), Policy(accept_unbounded=True)):
        with pytest.raises(PolicyError, match="is below .* masks of refreshes would not hide"):
            check(policy, replace(plan, slot_bound=own * 0.999), C)
        check(policy, replace(plan, slot_bound=own * 2.1), C)
    with pytest.raises(PolicyError, match="not stated"):
        check(Policy(), replace(plan, slot_bound=None), C)
    if name in ("gd", "barrier", "lffr-rate"):
        with pytest.raises(PolicyError, match="slot_bound"):
            check(Policy(), plan, 2 * C)
    text = describe_plan(plan, plan.names[0], C)
    assert f"the plan states {own:.4g}; by your own bounds at most {own:.4g}" in text


def test_the_bound_travels_with_the_plan() -> None:
    """JSON and back; figures that leave no room for masks are no plan."""
    plan = with_slot_bound(CASES["gd"](), C)
    fields = json.loads(json.dumps(plan.to_dict()))
    assert plan_from_dict(fields) == plan
    assert plan.digest() != replace(plan, slot_bound=None).digest()
    for value in (0.0, -1.0, 2.0**40):
        with pytest.raises(ParameterError, match="slot_bound"):
            plan_from_dict({**fields, "slot_bound": value})


def strict(**fields: Any) -> Party:
    """A party with the default policy, but for the toy ring and runs without noise."""
    return Party.of(**{**fields, "policy": Policy(allow_insecure=True, exact_sums=True)})


@pytest.mark.parametrize(
    ("update", "share", "refusal"),
    [("gd", 1.0, ""), ("gd", 0.9, "is below"), ("barrier-1", 0.0, "no bound on this run's")],
)
def test_a_party_agrees_to_what_it_can_prove(update: str, share: float, refusal: str) -> None:
    """Through the agreement, by the norm bound of the party's own schema."""
    norm_bound = 3**0.5
    rule = make_rule(update, 1).to_dict()
    own = kinds.slot_bounds(make_plan(rows=(20, 20), update=rule, degree=5), norm_bound).largest
    stated = own * share if own else None
    session = make_session(update=rule, rounds=1, degree=5, party=strict, slot_bound=stated)
    if not refusal:
        session.run()
        return
    with pytest.raises(ProtocolError, match=f"refuses step 'agree': .*{refusal}"):
        session.run()
