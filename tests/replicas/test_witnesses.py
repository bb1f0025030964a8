"""An owner without a replica answers what its witnesses confirm. INSECURE toy rings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ciphercohort.results.plan_figures import plan_figures
from coordinator.log import FOLDER, recorded
from coordinator.relay import relaying
from parties.agent.manifest import describe_plan
from parties.policy import Policy
from protocols.errors import ParameterError, ProtocolError
from protocols.exchange.messages import Body, digest, heard, public_bytes
from protocols.exchange.relayed import beside, parted
from protocols.plan.kinds import plan_from_dict
from tests.replicas.deviations import past_of, ran, refusals, relayed, with_replicas
from tests.replicas.test_replica import ALL, ATTACKS, MAKE, Dying, Meddling
from tests.support.helpers import Session, log2_error
from tests.support.sessions import (
    FIRST,
    THIRD,
    VICTIM,
    StopHere,
    altered,
    resigned,
)
from tests.support.sessions import with_meta as meta

BOTH = (FIRST, THIRD)
watched = partial(ran, witnesses=BOTH)


def with_witnesses(session: Session) -> Session:
    """The victim follows both others."""
    return with_replicas(session, BOTH)


@pytest.mark.parametrize("kind", ["whitened", "model", "sums"])
def test_an_honest_run_ends_as_without(kind: str) -> None:
    session, again = MAKE[kind](), MAKE[kind]()
    assert watched(session) == "" and session.parties[VICTIM]._replica is None
    again.run()
    # Noise of a whitened run is another one each time.
    assert kind == "whitened" or log2_error(session.outcome.weights, again.outcome.weights) < -13
    asked = {n: len(parted(d)[1] or ()) for s, n, d, _ in session.recorded if s == "finish"}
    assert asked[VICTIM] == 2  # two words, and no reply
    plan = session.outcome.plan
    said = f"{VICTIM}: what {FIRST} and {THIRD} confirm"
    assert plan.members[1].follows == BOTH and said in describe_plan(plan, FIRST, 2.0)
    assert f"your word, signed, on what {VICTIM} may be asked" in describe_plan(plan, FIRST, 2.0)
    mine = describe_plan(plan, VICTIM, 2.0)
    assert "your word, signed" not in mine
    assert f"all your messages, by the coordinator, to the replicas of {', '.join(BOTH)}" in mine
    assert said in plan_figures(plan)["replicas"] and plan_from_dict(plan.to_dict()) == plan


SHORT = ("another point of public sums", "a forged sum H1", "another joint key", "other seeds")


@pytest.mark.parametrize("attack", [*SHORT, "other weights"])
def test_what_does_not_follow_is_refused(attack: str) -> None:
    """All others: `python -m tests.replicas --witnesses`."""
    kind, step, change, _ = ATTACKS[attack]
    session = MAKE["sums" if step == "finish" else kind]()
    if step == "finish":

        def change(body: Body) -> Body:
            return Body(body.meta, (b"\0" * len(body.blobs[0]),))

    assert "refuses" in watched(session, altered(step, change, VICTIM))
    found = refusals(session)
    assert session.recorded[-1][0] == step and session.parties[VICTIM].answered == 0
    assert "follow" in found[VICTIM] or "decrypted" in found[VICTIM], found
    assert not any(found[name] for name in (FIRST, THIRD))


FAULTS: dict[str, Any] = {
    "left out": lambda by, session, words: words[1:],
    "forged": lambda by, session, words: [words[0][:-1] + bytes([words[0][-1] ^ 1]), words[1]],
    "of the step before": lambda by, session, words: [by.first, words[1]],
    "another's": lambda by, session, words: [words[1], words[1]],
    "of another session": lambda by, session, words: [
        resigned(session, words[0], session="another"),
        words[1],
    ],
    "a reply": lambda by, session, words: [
        next(r for s, n, _, r in session.recorded if (s, n) == ("reveal", FIRST)),
        words[1],
    ],
    "no message": lambda by, session, words: [b"", words[1]],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_word_that_is_none_is_found(fault: str) -> None:
    session = MAKE["sums"]()
    assert watched(session, ask=Meddling(session, "round/1", FAULTS[fault]))
    found = refusals(session)
    assert session.recorded[-1][0] == "round/1" and session.parties[VICTIM].answered == 0
    assert found[VICTIM] and not found[FIRST] and not found[THIRD]


class Lying:
    """A transport on which owners confirm to the victim whatever it is asked, in every step."""

    def __init__(self, session: Session, *liars: str) -> None:
        self._session, self._liars = session, liars

    def __call__(self, step: str, outgoing: Any) -> Any:
        """Deliver a step."""
        sent, victim = dict(outgoing), self._session.parties[VICTIM]
        own, words = parted(sent.get(VICTIM, b""))
        if words and step != "finish":
            head = heard(victim.seen, digest(own))
            said = Body({"step": step, "heads": {VICTIM: head}})
            lies = [
                resigned(self._session, word, body=lambda _, said=said: said)
                if signer in self._liars
                else word
                for signer, word in zip((FIRST, THIRD), words, strict=False)
            ]
            sent[VICTIM] = beside(own, lies)
        return self._session.ask(step, sent)


@pytest.mark.parametrize("liars", [(FIRST,), (FIRST, THIRD)])
def test_one_honest_witness_is_enough(liars: tuple[str, ...]) -> None:
    """And none is not: so an owner names one more than it fears."""
    kind, step, change, _ = ATTACKS["another point of public sums"]
    session = MAKE[kind]()
    assert watched(session, altered(step, change, VICTIM), Lying(session, *liars))
    assert (session.parties[VICTIM].answered == 0) == (len(liars) == 1)
    assert session.recorded[-1][0] == ("round/1" if len(liars) == 1 else "round/2")


def test_a_coordinator_that_died_goes_on(tmp_path: Path) -> None:
    """Witnesses confirm once more."""
    session = with_witnesses(MAKE["rows"]())
    folder, key = tmp_path / FOLDER, public_bytes(session.coordinator_key)

    def keep(ask: Any) -> Any:
        return recorded(ask, folder, key, session.verify_keys)

    def dying(step: str, outgoing: Any) -> Any:
        if step != "commit-refresh/1":
            return session.ask(step, outgoing)
        session.ask(step, {FIRST: outgoing[FIRST]})
        raise StopHere

    with pytest.raises(StopHere):
        session.run(relayed(session, dying, keep))
    found = session.successor().run(relayed(session, keep=keep))
    assert found.weights.shape == (3,)


def test_an_owner_with_witnesses_may_be_restarted() -> None:
    session = MAKE["model"](rounds=1)

    def ask(step: str, outgoing: Any) -> Any:
        session.restart(VICTIM)
        return session.ask(step, outgoing)

    assert watched(session, ask=ask) == ""


def test_a_witness_may_be_restarted_as_well() -> None:
    """It follows the session once more, and then confirms."""
    session = MAKE["model"](rounds=1)
    ask = Dying(session, "agree", "commit-keys", "commit-gradient/0", "decrypt", who=FIRST)
    assert watched(session, ask=ask, past=partial(past_of, session)) == ""
    assert len(ask.died) == 4


REFUSED: dict[str, tuple[str, Callable[[], Session], dict[str, Any], str]] = {
    "a witness without a replica": ("enrol", MAKE["sums"], {FIRST: "none"}, "who has none"),
    "one that is no member": ("enrol", MAKE["sums"], {VICTIM: ("elsewhere",)}, "who has none"),
    "nothing is relayed": ("agree", MAKE["sums"], {}, "relay = true"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_nobody_can_confirm_is_refused_before_anybody_agrees(case: str) -> None:
    step, make, changes, words = REFUSED[case]
    session = with_witnesses(make())
    for name, replica in changes.items():
        party = session.parties[name]
        party._policy = replace(party._policy, replica=replica)
    if case == "nothing is relayed":
        with pytest.raises(ProtocolError, match=words):
            session.run()
    else:
        with pytest.raises((ProtocolError, ParameterError), match=words):
            session.run(relaying(session.ask))
    assert session.recorded[-1][0] == step


def test_a_plan_that_says_otherwise_is_refused() -> None:
    """Whom an owner follows is what it enrolled with, in what all others sign as well."""
    session = MAKE["sums"]()

    def alone(body: Body) -> Body:
        plan = {**body.meta["plan"]}
        plan["members"] = [{**m, "follows": [m["name"]]} for m in plan["members"]]
        return Body({**body.meta, "plan": plan})

    watched(session, altered("agree", alone, *ALL))
    assert "follows=" in refusals(session)[VICTIM]


def test_a_plan_is_confirmed_before_a_seed_is_shown() -> None:
    """Where all have agreed: nobody waits for another owner's consent."""
    session = MAKE["sums"]()
    watched(session, altered("agree", meta(more=1), VICTIM))
    found = refusals(session)
    assert session.recorded[-1][0] == "reveal" and all(found[name] for name in BOTH)


@pytest.mark.parametrize("replica", [(), (FIRST,), (FIRST, FIRST)])
def test_fewer_witnesses_than_owners_whom_one_fears(replica: tuple[str, ...]) -> None:
    with pytest.raises(ParameterError, match="2 or more"):
        Policy(replica=replica, min_colluders=1)
    assert Policy(replica=(FIRST, THIRD), min_colluders=1).follows(VICTIM) == (FIRST, THIRD)


@pytest.mark.parametrize("replica", ["owm", FIRST, "", True, None])
def test_whoever_names_something_else_is_told(replica: Any) -> None:
    """And is not taken for an owner who follows nobody."""
    with pytest.raises(ParameterError, match=r"replica=.* is none of"):
        Policy(replica=replica)
