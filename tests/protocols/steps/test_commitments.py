"""Commit, then open: forgeries that need another party's message, or two truths (toy, INSECURE).

The coordinator deviates, with one of three owners (hospital-3) whose identity key it may use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator.replay import replay
from parties.agent.store import codec
from parties.kernel.keys import session as key_session
from parties.kernel.keys.key_share import KeyShare
from parties.verifier.party import Party
from protocols.ckks import objects
from protocols.ckks import residues as rns
from protocols.errors import CohortError, PolicyError, ProtocolError
from protocols.exchange.messages import Body, new_signing_key, public_bytes
from protocols.exchange.signed_values import SignedValue
from protocols.steps import commitments, endorsed
from protocols.steps.confirmed import CommitTerms
from protocols.steps.endorsed import CONFIRM, KEYS, ROWS, Endorsed, Phase
from tests.support import exact
from tests.support.helpers import Session, half_of, log2_error, party_names
from tests.support.sessions import (
    FIRST,
    N,
    Replies,
    altered,
    asked,
    deliver,
    driven,
    record,
    refusal,
    reply_of,
    request,
    resigned,
    run_until,
    small,
    with_meta,
)
from tests.support.sessions import THIRD as COLLUDER
from tests.support.sessions import VICTIM as SECOND

PHASES = pytest.mark.parametrize("phase", [KEYS, ROWS], ids=lambda phase: phase.open)
SHARES = "public-shares/0"
# Where a party asks for everyone's endorsement of a phase.
CHECKED = {KEYS: "relinearise", ROWS: CONFIRM}
TOLD = {
    KEYS: "the commitment to the replies to 'relinearise' of party {witness!r} is not signed",
    ROWS: "party {witness!r} was shown other commitments to the contributions",
}
SEED = b"s" * 32
FIRST_REFRESH = ("commit-refresh/0", "refresh/0")


def signed(session: Session, phase: Phase, kind: str, name: str, value: str) -> dict[str, str]:
    """A party's true signature of any digest, as it travels."""
    half = half_of(session.parties[FIRST])
    terms = (half.keys if phase is KEYS else half.rows)._terms
    key = session.party_keys[name]
    return asdict(SignedValue.by(key, lambda n, v: terms.text(kind, n, v), name, value))


def with_signed(body: Body, **changes: Any) -> Body:
    return with_meta(signed={**body.meta["signed"], **changes})(body)


class Either(str):
    """A digest that passes for another one as well."""

    claimed = ""

    def __eq__(self, other: object) -> bool:
        return other in (str(self), self.claimed)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def believing(monkeypatch: pytest.MonkeyPatch, claimed: Mapping[tuple[str, ...], str]) -> None:
    """A coordinator, in the process of the parties, that takes other blobs for committed ones."""
    honest = commitments.digest_of

    def digest_of(blobs: tuple[str, ...]) -> str:
        found = Either(honest(blobs))
        found.claimed = claimed.get(tuple(blobs), "")
        return found

    for module in (commitments, key_session):
        monkeypatch.setattr(module, "digest_of", digest_of)


# -- the joint public key --------------------------------------------------------------------------


def public_shares(session: Session) -> dict[str, rns.Residues]:
    """b_p of every party."""
    return {n: half_of(party).secret.public_share() for n, party in session.parties.items()}


def cancelling(session: Session, own: rns.Residues) -> rns.Residues:
    """b_q = b* - the sum of the honest b_p, so that the joint key is (b*, a)."""
    shares, primes = public_shares(session), half_of(session.parties[FIRST]).context.primes
    for name in (FIRST, SECOND):
        own = rns.subtract(own, shares[name], primes)
    return own


class Own:
    """A key pair of the coordinator's, for the run's element a."""

    def __init__(self, session: Session) -> None:
        secret = half_of(session.parties[FIRST]).secret
        self.context = secret.context
        self.share = KeyShare(self.context, secret.seed, 3)
        self.b = self.share.public_share()

    def packed(self, b: rns.Residues | None = None) -> bytes:
        return rns.pack(self.b if b is None else b, self.context.primes)

    def reads(self, reply: Body) -> bool:
        """Whether the first ciphertext decrypts: rows in [-1, 1] at scale 2^59, else uniform."""
        both = rns.unpack(reply.blobs[0], self.context.primes * 2, N)
        ciphertext = self.context.ciphertext(np.split(both, 2))
        size = exact.rms(exact.decrypted(self.context, ciphertext, exact.secret(self.share)))
        return 2**40 < size < 2**56


def test_key_shares_that_were_not_committed_to_are_refused() -> None:
    """The coordinator's own in anybody's place; too few, in another order, with other digests."""
    session = small(parties=3)
    held = run_until(session, SHARES)
    body = asked(session, held[FIRST])
    own, others = Own(session).packed(), {**body.meta["others"], SECOND: [1]}

    def refused(meta: Any, *blobs: bytes) -> str:
        return refusal(session, FIRST, request(session, FIRST, SHARES, Body(meta, blobs)))

    for at, name in enumerate(session.plan.names):
        text = refused(body.meta, *body.blobs[:at], own, *body.blobs[at + 1 :])
        assert f"the public key share of party {name!r} is not the one that it committed" in text
        assert "do not go on with this coordinator" in text
    assert "the step carries 3 shares" in refused(body.meta, *body.blobs[:2])
    assert "committed to" in refused(body.meta, *body.blobs[::-1])
    assert "committed to" in refused({**body.meta, "others": others}, *body.blobs)
    # With the true shares the party goes on.
    reply = reply_of(session, FIRST, session.parties[FIRST].handle(held[FIRST]))
    assert "error" not in reply.body.meta


def test_what_another_party_added_up_is_checked_by_each() -> None:
    """Parties of one process share the sum, not the check."""
    session = small(parties=3)
    held = run_until(session, SHARES)
    first, second = (half_of(session.parties[name]) for name in (FIRST, SECOND))
    session.parties[FIRST].handle(held[FIRST])
    true = second.keys._commitments
    second.keys._commitments = {**true, COLLUDER: true[FIRST]}
    assert "is not the one that it committed to" in refusal(session, SECOND, held[SECOND])
    second.keys._commitments = true
    assert second.secret.joint_key is None
    session.parties[SECOND].handle(held[SECOND])
    assert second.secret.joint_key is first.secret.joint_key is not None


def chosen_key(session: Session, steal: dict[str, Any]) -> Callable[[str, Replies], Replies]:
    """The colluder opens b_q = b* - sum of the others', which it has seen by then."""

    def change(step: str, replies: Replies) -> Replies:
        if step != KEYS.open:
            return replies
        own = steal["own"] = Own(session)
        blob = own.packed(cancelling(session, own.b))
        # Its own software lets it.
        half_of(session.parties[COLLUDER]).secret._own = hashlib.sha256(blob).hexdigest()

        def other(body: Body) -> Body:
            forged = Body(body.meta, (blob, *body.blobs[1:]))
            steal["claimed"][forged.digests] = commitments.digest_of(body.digests)
            return forged

        return replies | {COLLUDER: resigned(session, replies[COLLUDER], body=other)}

    return change


@pytest.mark.parametrize("checked", [True, False], ids=["with the check", "without it"])
def test_a_joint_key_of_the_coordinators_is_refused(
    monkeypatch: pytest.MonkeyPatch, checked: bool
) -> None:
    """Coordinator and colluder together: refused by every other party before it encrypts.

    Without the parties' check the joint key is (b*, a), and every row is read.
    """
    session = small(parties=3)
    steal: dict[str, Any] = {"claimed": {}}
    change = chosen_key(session, steal)
    believing(monkeypatch, steal["claimed"])
    replies: dict[str, Replies] = {}

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Replies:
        if step == SHARES and checked:
            monkeypatch.undo()  # the parties' machines are their own
        replies[step] = session.ask(step, outgoing)
        return change(step, replies[step])

    if checked:
        with pytest.raises(ProtocolError, match=f"share of party '{COLLUDER}' is not the one"):
            session.run(ask)
        for name in (FIRST, SECOND):
            assert half_of(session.parties[name]).rows._message is None, "it has encrypted"
        assert ROWS.open not in replies
        return
    # Decryption fails in the end: the joint secret is not the coordinator's.
    with pytest.raises(CohortError):
        session.run(ask)
    for name in (FIRST, SECOND):
        assert steal["own"].reads(reply_of(session, name, replies[ROWS.open][name]).body)


# -- copies ----------------------------------------------------------------------------------------


@PHASES
def test_a_copied_commitment_is_refused_by_name(phase: Phase) -> None:
    """The colluder commits to a digest of somebody else's, in any spelling: nobody opens."""
    session = small(parties=3)
    held = run_until(session, phase.open)
    body = asked(session, held[FIRST])
    for spelling, words in (
        (str, f"parties '{SECOND}' and '{COLLUDER}' commit to the same {phase.what}"),
        (str.upper, f"of party '{COLLUDER}' is not signed"),
    ):
        value = spelling(body.meta["signed"][SECOND]["value"])
        copied = signed(session, phase, "commitment", COLLUDER, value)
        forged = with_signed(body, **{COLLUDER: copied})
        assert words in refusal(session, FIRST, request(session, FIRST, phase.open, forged))


@PHASES
@pytest.mark.parametrize("lie", ["copied commitment", "false endorsement"])
def test_an_honest_coordinator_names_it(phase: Phase, lie: str) -> None:
    session = small(parties=3)

    def change(step: str, replies: Replies) -> Replies:
        if lie == "copied commitment" and step == phase.commit:
            value = reply_of(session, SECOND, replies[SECOND]).body.meta["value"]
            other: Any = Body(signed(session, phase, "commitment", COLLUDER, value))
        elif lie == "false endorsement" and step == phase.open:
            forged = signed(session, phase, "endorsement", COLLUDER, "ab" * 32)
            other = with_meta(endorsement=forged)
        else:
            return replies
        return replies | {COLLUDER: resigned(session, replies[COLLUDER], body=other)}

    words = f"'{SECOND}' and '{COLLUDER}' commit to the same"
    if lie == "false endorsement":
        words = f"'{COLLUDER}' was shown other commitments"
    with pytest.raises(ProtocolError, match=words):
        session.run(deliver(session, change))


def copy_of(session: Session, victim: Body, again: bool) -> tuple[bytes, ...]:
    """A contribution's ciphertexts as they are, or with a fresh encryption of zero added."""
    if not again:
        return victim.blobs
    context = half_of(session.parties[FIRST]).context
    b = np.zeros((len(context.primes), N), np.uint64)
    for share in public_shares(session).values():
        b = rns.add(b, share, context.primes)
    key = objects.public_key(
        context, b, context.uniform_polynomial(half_of(session.parties[FIRST]).seed, "public-key")
    )
    both = context.primes * 2
    zeros = (
        context.residues_of(objects.encrypt(context, key, np.zeros(N // 2))) for _ in victim.blobs
    )
    return tuple(
        rns.pack(rns.add(rns.unpack(blob, both, N), zero, both), both)
        for blob, zero in zip(victim.blobs, zeros, strict=True)
    )


@pytest.mark.parametrize(
    ("deceives", "again"), [(False, False), (True, True)], ids=["honest, bytes", "deviating, zero"]
)
def test_a_copied_contribution_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, deceives: bool, again: bool
) -> None:
    """By the coordinator; if it colludes, by whoever re-executes the run."""
    claimed: dict[tuple[str, ...], str] = {}
    victims: dict[str, Body] = {}

    class Copying(Party):
        def handle(self, data: bytes) -> bytes:
            reply = super().handle(data)
            answer = reply_of(session, self.name, reply)
            if answer.step != ROWS.open or self.name == FIRST:
                return reply
            victims[self.name] = answer.body
            if self.name == SECOND:
                return reply
            copied = Body(answer.body.meta, copy_of(session, victims[SECOND], again))
            claimed[copied.digests] = commitments.digest_of(answer.body.digests)
            return resigned(session, reply, body=copied)

    session = small(parties=3, party=Copying)
    if not deceives:
        with pytest.raises(ProtocolError, match="other contributions than it committed") as caught:
            session.run()
        assert caught.value.culprit == COLLUDER
        return
    believing(monkeypatch, claimed)
    record(tmp_path, session)
    assert session.recorded[-1][0] == "finish" and claimed
    monkeypatch.undo()
    check = replay(tmp_path).checks[-1]
    assert (check.name, check.passed) == ("re-execution", False)
    assert f"party '{COLLUDER}' opened other contributions than it committed to" in check.detail


# -- equivocation ----------------------------------------------------------------------------------


@PHASES
def test_two_sets_of_commitments_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, phase: Phase
) -> None:
    """One party is shown another commitment of the colluder's, truly signed, and what it opens: it
    goes on; then each of the two sees that the other has signed for another set, and stops."""
    session = small(parties=3)

    def second() -> Body:
        """What the colluder shows this party alone: a key share, and beside it h0 and h1."""
        return Body(blobs=(bytes(8 * N * session.plan.ckks.num_towers), b"h0", b"h1"))

    def other(body: Body) -> Body:
        value = commitments.digest_of(second().digests)
        forged = signed(session, phase, "commitment", COLLUDER, value)
        return with_signed(body, **{COLLUDER: forged})

    def other_share(body: Body) -> Body:
        others = {**body.meta["others"], COLLUDER: list(second().digests[1:])}
        return Body({"others": others}, (*body.blobs[:2], second().blobs[0]))

    looked: list[tuple[Any, str]] = [(CommitTerms, "check")]
    looked += [(module, "check_endorsements") for module in (commitments, endorsed)]
    honest = [(owner, name, getattr(owner, name)) for owner, name in looked]
    steps: list[str] = []

    def meet(ask: Any) -> Any:
        # The coordinator looks away; the parties do not.
        steps.append(ask.step)
        for owner, name, check in honest:
            if ask.step == CHECKED[phase]:
                monkeypatch.setattr(owner, name, check)
        replies = yield ask
        for owner, name, _ in honest:
            monkeypatch.setattr(owner, name, lambda *arguments: None)
        return replies

    def deviate(exchange: Any) -> Any:
        inner = altered(phase.open, other, FIRST)(exchange)
        inner = altered(SHARES, other_share, FIRST)(inner) if phase is KEYS else inner
        return driven(inner, meet)

    record(tmp_path, session, deviate)
    assert steps[-1] == CHECKED[phase]
    for name, witness in ((FIRST, SECOND), (SECOND, FIRST)):
        sent = next(d for s, n, d, _ in session.recorded if (s, n) == (steps[-1], name))
        text = refusal(session, name, sent)
        assert TOLD[phase].format(witness=witness) in text


# -- the pieces ------------------------------------------------------------------------------------


class Trio:
    """Three parties that commit to small messages."""

    def __init__(self, phase: Phase = KEYS, seed: bytes = SEED) -> None:
        self.keys = {name: new_signing_key() for name in party_names(3)}
        roster = {name: public_bytes(key) for name, key in self.keys.items()}
        self.terms = phase.terms(seed, roster)
        self.openings = {n: Endorsed(self.terms, n, k) for n, k in self.keys.items()}
        self.commitments = {
            name: opening.commit(Body({"own": name}, (name.encode(), b"same")))
            for name, opening in self.openings.items()
        }

    def all(self, **changes: Body) -> Body:
        found = {**self.commitments, **changes}
        return Body({"signed": {name: dict(body.meta) for name, body in found.items()}})


def test_each_message_is_opened_once() -> None:
    """As it was made, with an endorsement; then it is forgotten."""
    trio = Trio()
    opened = {name: each.open(trio.all()) for name, each in trio.openings.items()}
    assert opened[FIRST].blobs == (FIRST.encode(), b"same")
    assert opened[FIRST].meta["own"] == FIRST
    assert all(each._message is None for each in trio.openings.values())
    with pytest.raises(PolicyError, match="committed to and unopened"):
        trio.openings[FIRST].open(trio.all())
    endorsed = Body({"signed": {n: body.meta["endorsement"] for n, body in opened.items()}})
    trio.openings[SECOND].confirm(endorsed)
    with pytest.raises(PolicyError, match="no key shares were opened"):
        Trio().openings[FIRST].confirm(endorsed)


@pytest.mark.parametrize("what", ["session", "phase", "name", "kind", "own", "missing", "extra"])
def test_a_commitment_counts_once(what: str) -> None:
    """For one session, phase and name; and a party's own comes back as it was."""
    trio = Trio()
    session, phase = replace(trio.terms, seed=b"t" * 32), replace(trio.terms, step=ROWS.open)
    value = trio.commitments[SECOND].meta["value"]

    def made(terms: CommitTerms, name: str, value: str, kind: str = "commitment") -> Body:
        text = SignedValue.by(trio.keys[SECOND], lambda n, v: terms.text(kind, n, v), name, value)
        return text.to_body()

    changed = {
        "session": {SECOND: made(session, SECOND, value)},
        "phase": {SECOND: made(phase, SECOND, value)},
        "name": {SECOND: made(trio.terms, FIRST, value)},
        "kind": {SECOND: made(trio.terms, SECOND, value, "endorsement")},
        "own": {SECOND: made(trio.terms, SECOND, "ab" * 32)},
        "missing": {},
        "extra": {"hospital-4": trio.commitments[SECOND]},
    }[what]
    asked = trio.all(**changed)
    if what == "missing":
        asked = Body({"signed": {FIRST: dict(trio.commitments[FIRST].meta)}})
    words = {"own": "not the one that it sent", "missing": "not exactly", "extra": "not exactly"}
    with pytest.raises(ProtocolError, match=words.get(what, f"'{SECOND}' is not signed")):
        trio.openings[SECOND].open(asked)
    # Nothing was opened, and the true set still is.
    assert trio.openings[SECOND].open(trio.all()).blobs


def test_a_digest_holds_every_blob_in_its_place() -> None:
    one, two = "aa" * 32, "bb" * 32
    found = {commitments.digest_of(d) for d in ([one], [two], [one, two], [two, one], [one + two])}
    assert len(found) == 5


# -- going on in another process -------------------------------------------------------------------


def test_what_is_committed_to_is_kept_until_it_is_opened() -> None:
    """Key shares and ciphertexts, and not a step longer: the state of a party that restarts."""
    session = small(parties=3)
    sizes: dict[str, int] = {}

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Replies:
        if step in (KEYS.open, ROWS.commit, ROWS.open, CONFIRM, *FIRST_REFRESH):
            kept = {**session.parties[FIRST].state(), "last": None}
            sizes[step] = sum(map(len, codec().encode(kept)[1]))
            session.restart(FIRST)
        return session.ask(step, outgoing)

    outcome = session.run(ask)
    assert log2_error(outcome.weights, session.twin()) < -13
    sent = {
        step: sum(map(len, reply_of(session, FIRST, reply).body.blobs))
        for step, name, _, reply in session.recorded
        if name == FIRST
    }
    # What is kept besides: secrets, with the second one gone after `relinearise`.
    commit, refresh = FIRST_REFRESH
    bare = sizes[commit]
    assert sizes[refresh] == bare + sent[refresh]
    assert sizes[ROWS.commit] == sizes[CONFIRM] == bare
    assert sizes[ROWS.open] == bare + sent[ROWS.open]
    assert sizes[KEYS.open] > bare + sent[KEYS.open] > sizes[ROWS.open]
