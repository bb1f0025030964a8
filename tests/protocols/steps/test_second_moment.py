"""The second moment that rows are whitened by: everyone opens it again, and refuses another one.

INSECURE toy rings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parties.account import Account
from parties.kernel.integers.symmetric import flat, square
from parties.kernel.private import closed
from parties.kernel.run import row_seal as seal
from parties.policy import REFUSED, Policy
from protocols.errors import (
    CohortError,
    MessageError,
    ParameterError,
    PolicyError,
    ProtocolError,
)
from protocols.exchange.messages import Body, decode, encode, public_bytes
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.loss.ledger import Ledger
from protocols.rows import slots as row_slots
from protocols.steps.second_moment import SEAL, SHOWN, STEP, Evidence, check
from tests.support.helpers import Session
from tests.support.sessions import (
    FIRST,
    VICTIM,
    evidence_of,
    moment_session,
    refusal,
    request,
    run_until,
    whitened_session,
)


@cache
def before() -> Session:
    """A finished run of the second moment; nobody changes it."""
    session = moment_session()
    session.run()
    return session


@cache
def another() -> Session:
    """The same parties' data, other keys and other noise."""
    session = moment_session(seed=2)
    session.run()
    return session


# -- what is summed --------------------------------------------------------------------------------


@given(st.integers(1, 9), st.integers(0, 99))
def test_flat_keeps_distances(size: int, seed: int) -> None:
    a = np.random.default_rng(seed).normal(size=(size, size))
    a = a + a.T
    np.testing.assert_allclose(square(flat(a)), a, rtol=1e-15)
    assert np.linalg.norm(flat(a)) == pytest.approx(np.linalg.norm(a))


def test_the_sum_is_the_second_moment_with_the_parties_noise() -> None:
    session = before()
    moment, seals = evidence_of(session).opened()
    x = np.concatenate([rows for rows, _ in session.shards])
    plan, noise = session.plan, np.zeros(session.plan.length)
    for party in session.parties.values():
        noise += plan.draw_noise(0, plan.randomness(SeededRandomness(session.rng_seed, party.name)))
    # One step of rate 1 from zero subtracts what is summed.
    expected = x.T @ x / len(x) - square(noise)
    np.testing.assert_allclose(moment, expected, atol=2 * plan.cipher.error_bound)
    assert len(set(seals.values())) == len(session.parties)


def test_the_noise_is_what_the_sensitivity_asks_for() -> None:
    """Worst rows: orthogonal, of full length; their distance over N and sigma is mu."""
    plan = before().plan
    bound = plan.task.row_norm
    far = np.diag([bound**2, -(bound**2), 0.0])
    moved = np.linalg.norm(flat(far)) / plan.num_rows
    assert moved == pytest.approx(math.sqrt(2) * bound**2 / plan.num_rows)
    assert moved == pytest.approx(plan.sensitivity("second-moment"))
    (event,) = Mechanism.from_plan(plan, bound).require().events
    assert moved / plan.noise_scales[0] == pytest.approx(event.mu, rel=1e-4)  # type: ignore[attr-defined]


# -- what a party refuses --------------------------------------------------------------------------


def shown(session: Session, evidence: Evidence) -> str:
    """What the victim says to it."""
    run_until(session, STEP)
    return refusal(session, VICTIM, request(session, VICTIM, STEP, evidence.to_body()))


def with_frame(evidence: Evidence, key: tuple[str, str], frame: bytes) -> Evidence:
    return replace(evidence, frames={**evidence.frames, key: frame})


def resigned(evidence: Evidence, name: str, by: Any) -> Evidence:
    """The reply of one party to the round, changed by one unit, signed by another."""
    frame = evidence.frames[SHOWN[1], name]
    envelope = decode(frame, public_bytes(before().party_keys[name]))
    blob = bytearray(envelope.body.blobs[0])
    blob[0] ^= 1
    changed = replace(envelope, body=Body(envelope.body.meta, (bytes(blob),)))
    return with_frame(evidence, (SHOWN[1], name), encode(changed, by))


FORGED: dict[str, tuple[Callable[[Evidence], Evidence], str]] = {
    "another run of the same plan": (
        lambda e: replace(e, frames=evidence_of(another()).frames),
        "signature",
    ),
    "a reply in another's place": (
        lambda e: with_frame(e, (SHOWN[1], FIRST), e.frames[SHOWN[1], VICTIM]),
        "signature|is not to",
    ),
    "a reply to another step": (
        lambda e: with_frame(e, (SHOWN[1], FIRST), e.frames[SHOWN[0], FIRST]),
        "is not to 'round/0'",
    ),
    "a reply that the coordinator signed": (
        lambda e: resigned(e, FIRST, before().coordinator_key),
        "signature",
    ),
    "a reply that its party changed afterwards": (
        lambda e: resigned(e, FIRST, before().party_keys[FIRST]),
        "moment of the plan is not",
    ),
    "other seeds": (
        lambda e: replace(e, seeds={**e.seeds, FIRST: "00" * 32}),
        "does not open its commitment",
    ),
    "another plan": (
        lambda e: replace(e, plan=replace(e.plan, session="another")),
        "moment_plan of the plan is not that",
    ),
    "a round in the place of an agreement": (
        lambda e: with_frame(e, (SHOWN[2], FIRST), e.frames[SHOWN[1], FIRST]),
        "is not to 'agree'",
    ),
}


@pytest.mark.parametrize("case", FORGED)
def test_evidence_that_is_forged_is_refused(case: str) -> None:
    forge, words = FORGED[case]
    session = whitened_session(before())
    found = shown(session, forge(evidence_of(before())))
    assert re.search(words, found), found


CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "one entry, the last digit": (
        {"moment": lambda m: (math.nextafter(m[0], 9.0), *m[1:])},
        "moment of the plan",
    ),
    "less noise claimed": ({"sigma": lambda s: 0.5 * s}, "sigma of the plan"),
    "more noise claimed, mu counted too low": ({"sigma": lambda s: 2 * s}, "sigma of the plan"),
    "a tail that never fails": ({"failure": lambda f: 1e-300}, "counts delta="),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_plan_about_another_second_moment_is_refused(case: str) -> None:
    fields, words = CHANGED[case]
    honest = agreed(whitened_session(before()))
    changed = replace(
        honest.whitening,
        **{k: change(getattr(honest.whitening, k)) for k, change in fields.items()},
    )
    with pytest.raises(PolicyError, match=words):
        check(replace(honest, whitening=changed), evidence_of(before()))


def agreed(session: Session) -> Any:
    run_until(session, STEP)
    return session.plan


def flattered(plan: Any, **changes: Any) -> Any:
    """A summing plan of which the coordinator changes a figure afterwards."""
    return replace(plan, privacy=replace(plan.privacy, **changes))


def test_a_plan_that_nobody_has_agreed_to_is_refused() -> None:
    """Its joint seed is another: true replies would open to noise, of any spectrum."""
    evidence = evidence_of(before())
    other = flattered(evidence.plan, epsilon=evidence.plan.privacy.epsilon * (1 + 1e-4))
    told = replace(agreed(whitened_session(before())), moment_plan=other.digest())
    with pytest.raises(ProtocolError, match="agreed to a different plan"):
        check(told, replace(evidence, plan=other))


def test_more_than_was_announced_is_refused() -> None:
    plan = agreed(whitened_session(before()))
    more = replace(plan, privacy=replace(plan.privacy, epsilon=2.1))
    with pytest.raises(PolicyError, match="exceeds 2.0, which its second moment announced"):
        check(more, evidence_of(before()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mechanism": "laplace"}, "mechanism='laplace'"),
        ({"weights": (1 / 3,) * 3}, "weights="),
        ({"length": 7}, "length=7"),
        ({"objective": {"epsilon_in_all": 0.01}}, "epsilon_in_all=0.01"),
    ],
)
def test_a_sum_that_is_none_is_no_plan(change: dict[str, Any], words: str) -> None:
    """Distances are Euclidean, and N counts every row once."""
    plan = before().plan
    if "objective" in change:
        change = {"objective": {**plan.objective, **change["objective"]}}
    with pytest.raises(ParameterError, match=words):
        replace(plan, **change)


def test_a_policy_looks_at_both_runs() -> None:
    plan = before().plan
    own = plan.privacy.epsilon
    assert own < plan.epsilon_in_all == 2.0
    Policy(max_epsilon=2.0, allow_insecure=True).check(plan)
    with pytest.raises(PolicyError, match="exceeds"):
        Policy(max_epsilon=1.9, allow_insecure=True).check(plan)


def test_a_ledger_that_has_not_seen_the_sum_refuses(tmp_path: Path) -> None:
    ledger = Ledger(path=tmp_path / "ledger", epsilon=9.0, delta=1e-4)
    account = Account(ledger, "wards")
    plan = before().plan
    with pytest.raises(PolicyError, match="no entry of plan"):
        account.require(plan.digest())
    cost = Mechanism.from_plan(plan, plan.task.row_norm)
    account.reserve(cost, plan.digest())
    account.require(plan.digest())
    with pytest.raises(PolicyError, match="no entry of plan"):
        Account(ledger, "others").require(plan.digest())


def test_slots_believe_no_lambda() -> None:
    plan = agreed(whitened_session(before()))
    low = replace(plan, whitening=replace(plan.whitening, spectrum=1e-6))
    blind = row_slots._course(low, 1.0)
    assert blind.spectrum is None and row_slots._course(plan, 1.0).spectrum == pytest.approx(
        min(plan.whitening.spectrum, 1.0)
    )


def test_other_rows_than_those_that_were_summed_are_refused() -> None:
    """An owner's table has changed in between."""
    session = whitened_session(before())
    party = session.parties[VICTIM]
    shard = party.run.rows._value
    party.run.rows = closed(replace(shard, x=shard.x * 0.5))
    assert shown(session, evidence_of(before())) == REFUSED
    assert not party.answered


def test_a_seal_is_its_partys_own() -> None:
    """Nobody without the key can tell rows by it, not even from one run to the next."""
    key, other = before().party_keys[FIRST], before().party_keys[VICTIM]
    assert len({seal(key, "a", "00"), seal(key, "b", "00"), seal(other, "a", "00")}) == 3
    reply = decode(evidence_of(before()).frames[SHOWN[1], FIRST], public_bytes(key))
    fingerprint = before().parties[FIRST].fingerprint()
    assert reply.body.meta == {SEAL: seal(key, before().plan.digest(), fingerprint)}


@pytest.mark.parametrize(
    "body",
    [
        Body(),
        Body({"plan": {}, "seeds": {}}),
        Body({"plan": 1, "seeds": {}}),
        Body({"plan": {"version": 8, "kind": "rows"}, "seeds": {}}),
    ],
)
def test_evidence_that_is_none(body: Body) -> None:
    with pytest.raises(CohortError):
        Evidence.from_body(body)
    with pytest.raises(MessageError, match="replies"):
        whole = evidence_of(before()).to_body()
        Evidence.from_body(Body(whole.meta, whole.blobs[1:]))


# -- what comes out --------------------------------------------------------------------------------


def test_whitened_rows_give_the_model_of_the_twin() -> None:
    session = whitened_session(before())
    outcome = session.run()
    plan = session.plan
    assert np.abs(outcome.weights - plan.decode(session.twin())).max() < 1e-4
