"""Rows of a round by a party's own coins: encrypted = twin = the optimum, and what it costs.

Whole runs on toy rings (INSECURE).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare
from sklearn.linear_model import LogisticRegression

from protocols.ckks.circuits.rows_at_home import quotient
from protocols.errors import ParameterError, PrivacyError
from protocols.model import counts, minibatch
from protocols.model.counts import iteration_cost
from protocols.model.errors import _errors
from protocols.model.plan import ModelPlan
from protocols.numerics.approximation import range_bound, sigmoid_approximation
from protocols.plan import kinds
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.certificates.sensitivity import diameter
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.loss import mu_for_epsilon
from protocols.privacy.loss.poisson import poisson_noise_multiplier
from tests.protocols.model.test_linear_at_home import LFFR_RULE, LINK, session_of, twin_of
from tests.support.alike import spread
from tests.support.helpers import NOISE, Session, make_data, make_plan, make_session, plain_weights
from tests.support.sessions import lffr_model_session

CLOSE = 1e-4
SKEWED = [300, 1, 200]


def logistic(update: str = "gd", rows: Any = SKEWED, **changes: Any) -> Session:
    """Of 64 rows to a group: five groups, one, and four; halves take three, one and two."""
    fields: dict[str, Any] = {"rounds": 4, "degree": 5, "ring_dim": 512, "batches": 2}
    fields |= {"features_per_ciphertext": 8, "features": 7, "parties": len(rows)}
    return make_session(**(fields | {"make": ModelPlan, "rows": rows, "update": update} | changes))


SESSIONS = {
    "logistic, gd": lambda: logistic(),
    "logistic, nag": lambda: logistic("nag"),
    "linear": lambda: session_of(
        [300, 90], 7, 2, {"kind": "nag", "rounds": 4, "learning_rate": 0.5}, 8, batches=3
    ),
    "lffr": lambda: session_of([300, 90], 7, 2, LFFR_RULE, 8, "lffr", batches=3),
}


@pytest.mark.parametrize("name", SESSIONS)
def test_encrypted_equals_plain(name: str) -> None:
    """From the same coins; a party that is restarted in the middle takes the same rows."""
    session = SESSIONS[name]()

    def deliver(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if step == "gradient/2":
            session.restart(next(iter(session.parties)))
        return session.deliver(step, outgoing)

    weights = session.run(deliver).weights
    plan = session.plan
    twin = twin_of(session) if plan.fitted.numeric else session.twin()
    assert plan.layout.rows_by_party != tuple(member.rows for member in plan.members)
    assert np.abs(weights - twin.reshape(weights.shape)).max() < CLOSE
    whole = replace(plan, batches=1)
    nothing = np.zeros((plan.rounds, *plan.fitted_shape))
    other = whole.decode(plain_weights(whole, session.shards, nothing))
    assert np.abs(weights - other.reshape(weights.shape)).max() > 10 * CLOSE


def test_noise_is_below_its_bound_and_not_far() -> None:
    """Rows that count more bring more noise. Eight coefficients have a wide margin.

    Of three runs 0.08 of the bound, with a standard error of 0.2 bits: the lower end is 1.5 away.
    """
    std, plan = spread(lambda: logistic(rows=[1000, 900], batches=8), runs=3)
    assert 0.03 < std / kinds.model_error_std(plan) < 1
    whole = replace(plan, batches=1)
    assert _errors(plan, quotient)[1] > _errors(whole, quotient)[1]


# -- rows of a round -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "batches", "taken"),
    [(300, 2, 192), (300, 1, 300), (1, 9, 1), (64, 9, 64), (65, 9, 64)],
)
def test_rows_fill_their_last_group(rows: int, batches: int, taken: int) -> None:
    assert minibatch.size(rows, batches, 64) == taken


class Drawn:
    """A source that is not seeded, hence never the same again."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(5)

    def words(self, count: int) -> Any:
        return self._rng.integers(0, 2**64, count, dtype=np.uint64)


def test_every_pair_of_rows_is_as_likely_and_rounds_are_independent() -> None:
    """2 of 6 rows, 15 pairs; weights are 3, so that they sum to 6."""
    counts, both, source = np.zeros((6, 6)), 0, Drawn()
    for _ in range(3000):
        first, later = (minibatch.weights(t, 6, 2, source) for t in (1, 2))
        assert sorted(first) == [0, 0, 0, 0, 3, 3]
        pair = np.flatnonzero(first)
        counts[pair[0], pair[1]] += 1
        both += int((first * later).sum() / 9)
    assert chisquare(counts[np.triu_indices(6, 1)]).pvalue > 1e-4
    assert abs(both - 2000) < 4 * math.sqrt(2000)  # 2/3 of a row in common on average


def test_a_seed_gives_every_round_its_rows() -> None:
    """Whatever was drawn before: a party that is restarted takes the same."""
    source = SeededRandomness(1, "hospital-1")
    first = minibatch.weights(3, 50, 20, source)
    source.words(7)
    assert (minibatch.weights(3, 50, 20, source) == first).all()
    assert (minibatch.weights(4, 50, 20, source) != first).any()


def test_it_reaches_the_optimum() -> None:
    """scikit-learn's, on labels that are no function of the rows."""
    shards = make_data([4096, 4096], 4, 3)
    x, y = (np.concatenate(part) for part in zip(*shards, strict=True))
    y = (np.random.default_rng(4).random(len(x)) < 1 / (1 + np.exp(-x @ [1, -1, 0.5, 0.3]))) * 1.0
    fit = LogisticRegression(C=1e8, fit_intercept=False, tol=1e-10).fit(x, y)
    plan: Any = make_plan(
        make=ModelPlan,
        rows=[4096, 4096],
        features=4,
        link=sigmoid_approximation(7, 4.0).polynomial,
        update={"kind": "gd", "rounds": 80, "learning_rate": 1.0},
        ring_dim=512,
        batches=8,
    )
    assert plan.layout.rows_by_party == (512, 512)
    sources = [SeededRandomness(1, name) for name in plan.names]
    found = plain_weights(plan, [(x, y)], np.zeros((80, 4)), sources)
    # A batch of 1,024 rows: 1 / sqrt(1024) a step on each side, less its average over steps.
    assert np.abs(found - fit.coef_[0]).max() < 0.1


# -- what it costs, and where it is refused --------------------------------------------------------


def test_a_round_costs_the_rows_that_it_takes() -> None:
    plan: Any = make_plan(
        make=ModelPlan, rows=[64 * 16] * 2, features=7, ring_dim=512, features_per_ciphertext=8,
        update="gd", rounds=5, batches=4,
    )  # fmt: skip
    whole = replace(plan, batches=1)
    assert (plan.layout.groups, whole.layout.groups) == (2, 8)
    assert counts.encoded_bytes(whole, 1024) == 4 * counts.encoded_bytes(plan, 1024)
    assert counts.encoded_again(plan, 1024) == 1.0 and not counts.encoded_again(whole, 1024)
    assert "other rows in every round" in counts.cache_words(plan)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"privacy": NOISE}, "larger than that of all rows"),
        ({"update": "barrier-1"}, "is about all rows"),
        ({"batches": 0}, "batches=0 is below 1"),
    ],
)
def test_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        make_plan(**({"make": ModelPlan, "update": "gd", "batches": 2} | changes))


def test_the_update_that_is_taken_if_none_is_named() -> None:
    """Without batches it is the barrier, whose theorem is about all rows."""
    figures = PublicFigures(rows_by_party=(4096, 4096), num_features=4, norm_bound=1.0)
    options: Any = {"protocol": "encrypted-model", "profile": "fast-insecure", "rounds": 3}
    wanted = Wanted(update="", batches=4, **options)
    assert calibrate(figures, wanted).wanted.update == "nag"


@pytest.mark.parametrize(("batches", "rounds", "stated"), [(8, 10, 1.01), (32, 10, 1.48)])
def test_secret_coins_need_more_noise_than_all_rows(
    batches: int, rounds: int, stated: float
) -> None:
    """By `dp_accounting`; of rows' gradients alone, their distance is below twice their bound."""
    z = poisson_noise_multiplier(epsilon=1.0, delta=1e-5, rate=1 / batches, rounds=rounds)
    ratio = z * batches * mu_for_epsilon(epsilon=1.0, delta=1e-5) / (2 * math.sqrt(rounds))
    assert ratio == pytest.approx(stated, abs=0.01)
    for radius, least in ((2.0, 1.27), (16.0, 1.06)):
        p = sigmoid_approximation(7, radius).polynomial
        h = max(map(abs, range_bound(p, -radius, radius)))
        assert 2 * h / diameter(p, norm_bound=1.0, radius=radius) > least


def test_batches_that_take_every_row_are_refused() -> None:
    """On the ring that the rows would train on; with more of them, they are taken."""
    wanted = Wanted(protocol="encrypted-model", update="nag", batches=4)
    small, large = (PublicFigures.even(rows=n, features=4, parties=3) for n in (3000, 600_000))
    with pytest.raises(ParameterError, match="batches=4.* fit one group of"):
        calibrate(small, wanted)
    plan: Any = calibrate(large, wanted).template
    whole: Any = calibrate(large, replace(wanted, batches=1)).template
    assert plan.batches == 4 and plan.layout.groups < whole.layout.groups
    assert iteration_cost(plan) < iteration_cost(whole)
    with pytest.raises(PrivacyError, match="larger than that of all rows"):
        calibrate(large, replace(wanted, epsilon=1.0))


def test_bounds_hold_for_any_rows_of_a_round() -> None:
    """The ball by steps and the walk; what is about one objective is not claimed."""
    rule = {"kind": "gd", "rounds": 6, "learning_rate": 0.2}
    plan: Any = make_plan(
        make=ModelPlan, rows=[300, 200], features=3, update=rule, ring_dim=512, batches=4,
        features_per_ciphertext=2, degree=5,
    )  # fmt: skip
    found = kinds.slot_bounds(plan, 3**0.5)
    assert found.largest is not None and "falls" not in found.proof
    # Batches of 256 and 200 rows, of 256 to a group.
    assert plan.column_weight == 300 / 256 + 1
    shards = make_data([300, 200], 3, 5)
    for seed in range(20):
        sources = [SeededRandomness(seed, name) for name in plan.names]
        last = plain_weights(plan, shards, np.zeros((6, 3)), sources)
        assert np.linalg.norm(last) <= found.release * plan.unit
    longer = replace(plan, update=rule | {"rounds": 40, "learning_rate": 0.5})
    assert "by steps" in kinds.slot_bounds(longer, 3**0.5).proof
    assert "by falls" in kinds.slot_bounds(replace(longer, batches=1), 3**0.5).proof
    linear = replace(plan, model="linear", link=LINK)
    assert "spectrum" not in kinds.slot_bounds(linear, 3**0.5).proof
    assert "spectrum" in kinds.slot_bounds(replace(linear, batches=1), 3**0.5).proof


def test_lffr_is_held_by_the_ball_by_steps() -> None:
    session = lffr_model_session(rows_each=300, batches=3)
    session.run()
    assert session.plan.is_stochastic and kinds.slot_bounds(session.plan, 1.0).largest is not None
