"""Commit, then open: forgeries that need another party's message, or two truths (toy, INSECURE).

The coordinator deviates, with one of three owners (hospital-3) whose identity key it may use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator.replay import replay
from parties.party import Party
from protocols import commitments
from protocols.ckks import residues as rns
from protocols.commitments import CONFIRM, KEYS, ROWS, Opening, Phase, Terms
from protocols.errors import CohortError, MessageError, PolicyError, ProtocolError
from protocols.messages import Body, Envelope, decode, encode, new_signing_key, public_bytes
from protocols.signed_values import SignedValue, of_request
from tests import exact
from tests.coordinator.recorded import altered, record
from tests.helpers import Session, drive, log2_error, party_names
from tests.protocols.security_session import (
    N,
    Replies,
    deliver,
    refusal,
    reply_of,
    request,
    run_until,
    small,
)

FIRST, SECOND, COLLUDER = party_names(3)
PHASES = [KEYS, ROWS]
SHARES = "public-shares/0"
# Where a party asks for everyone's endorsement of a phase.
CHECKED = {KEYS: ROWS.commit, ROWS: CONFIRM}
SEED = b"s" * 32


def terms_of(session: Session, phase: Phase) -> Terms:
    """As the parties have them."""
    opening = getattr(session.parties[FIRST]._half, "keys" if phase is KEYS else "rows")
    return opening._terms


def signed(session: Session, phase: Phase, kind: str, name: str, value: str) -> dict[str, str]:
    """A party's true signature of any digest, as it travels."""
    terms = terms_of(session, phase)
    key = session.party_keys[name]
    return asdict(SignedValue.by(key, lambda n, v: terms.text(kind, n, v), name, value))


def body_of(session: Session, data: bytes) -> Body:
    return decode(data, public_bytes(session.coordinator_key)).body


def with_signed(body: Body, **changes: Any) -> Body:
    return Body({**body.meta, "signed": {**body.meta["signed"], **changes}}, body.blobs)


def resigned(session: Session, name: str, data: bytes, change: Callable[[Body], Body]) -> bytes:
    """A party's reply with another body, truly signed by it: it colludes."""
    envelope = reply_of(session, name, data)
    fields = {k: getattr(envelope, k) for k in Envelope.__dataclass_fields__}
    return encode(Envelope(**(fields | {"body": change(envelope.body)})), session.party_keys[name])


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

    monkeypatch.setattr(commitments, "digest_of", digest_of)


# -- the joint public key --------------------------------------------------------------------------


def public_shares(session: Session) -> dict[str, rns.Residues]:
    """b_p of every party."""
    return {name: party._half.secret.public_share() for name, party in session.parties.items()}


def cancelling(session: Session, own: rns.Residues) -> rns.Residues:
    """b_q = b* - the sum of the honest b_p, so that the joint key is (b*, a)."""
    shares, primes = public_shares(session), session.parties[FIRST]._half.context.primes
    for name in (FIRST, SECOND):
        own = rns.add(own, rns.negate(shares[name], primes), primes)
    return own


class Own:
    """A key pair of the coordinator's, for the run's element a."""

    def __init__(self, session: Session) -> None:
        from parties.key_share import KeyShare

        secret = session.parties[FIRST]._half.secret
        self.context = secret._context
        self.share = KeyShare(self.context, secret._seed, 3)
        self.b = self.share.public_share()

    def packed(self, b: rns.Residues | None = None) -> bytes:
        return rns.pack(self.b if b is None else b, self.context.primes)

    def reads(self, reply: Body) -> bool:
        """Whether the first ciphertext decrypts: rows in [-1, 1] at scale 2^59, else uniform."""
        both = rns.unpack(reply.blobs[0], self.context.primes * 2, N)
        ciphertext = self.context.ciphertext(np.split(both, 2))
        size = exact.rms(exact.decrypted(self.context, ciphertext, exact.secret(self.share)))
        return 2**40 < size < 2**56


@pytest.mark.parametrize("name", [FIRST, SECOND, COLLUDER])
def test_a_key_share_of_the_coordinators_is_refused(name: str) -> None:
    """Whosesoever it puts its own in place of: the digest is another one."""
    session = small(parties=3)
    held = run_until(session, SHARES)
    body = body_of(session, held[FIRST])
    at = session.plan.party_index(name)
    blobs = (*body.blobs[:at], Own(session).packed(), *body.blobs[at + 1 :])
    text = refusal(session, FIRST, request(session, FIRST, SHARES, Body(body.meta, blobs)))
    assert f"the public key share of party {name!r} is not the one that it committed to" in text
    assert "do not go on with this coordinator" in text
    # With the true shares the party goes on.
    reply = reply_of(session, FIRST, session.parties[FIRST].handle(held[FIRST]))
    assert "error" not in reply.body.meta


@pytest.mark.parametrize("forged", ["fewer", "more", "swapped", "others", "no others"])
def test_shares_are_those_of_all_members(forged: str) -> None:
    session = small(parties=3)
    body = body_of(session, run_until(session, SHARES)[FIRST])
    meta, blobs = dict(body.meta), body.blobs
    others: dict[str, Any] = {
        "fewer": lambda: Body(meta, blobs[:2]),
        "more": lambda: Body(meta, (*blobs, blobs[0])),
        "swapped": lambda: Body(meta, blobs[::-1]),
        "others": lambda: Body({**meta, "others": {**meta["others"], SECOND: [1]}}, blobs),
        "no others": lambda: Body({**meta, "others": None}, blobs),
    }
    text = refusal(session, FIRST, request(session, FIRST, SHARES, others[forged]()))
    assert "committed to" in text or "the step carries 3 shares" in text


def chosen_key(session: Session, steal: dict[str, Any]) -> Callable[[str, Replies], Replies]:
    """The colluder opens b_q = b* - sum of the others', which it has seen by then."""

    def change(step: str, replies: Replies) -> Replies:
        if step != KEYS.open:
            return replies
        own = steal["own"] = Own(session)
        blob = own.packed(cancelling(session, own.b))

        def other(body: Body) -> Body:
            forged = Body(body.meta, (blob, *body.blobs[1:]))
            steal["claimed"][forged.digests] = commitments.digest_of(body.digests)
            return forged

        return replies | {COLLUDER: resigned(session, COLLUDER, replies[COLLUDER], other)}

    return change


def test_a_key_chosen_after_the_others_is_named() -> None:
    """An honest coordinator sees that it is not what was committed to."""
    session = small(parties=3)
    steal: dict[str, Any] = {"claimed": {}}
    with pytest.raises(ProtocolError, match="opened other key shares than it committed") as caught:
        session.run(deliver(session, chosen_key(session, steal)))
    assert caught.value.culprit == COLLUDER


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
            assert session.parties[name]._half.rows._message is None, "it has encrypted"
        assert ROWS.open not in replies
        return
    # Decryption fails in the end: the joint secret is not the coordinator's.
    with pytest.raises(CohortError):
        session.run(ask)
    for name in (FIRST, SECOND):
        assert steal["own"].reads(reply_of(session, name, replies[ROWS.open][name]).body)


# -- copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.open)
def test_a_copied_commitment_is_refused_by_name(phase: Phase) -> None:
    """The colluder commits to a digest of somebody else's, in any spelling: nobody opens."""
    session = small(parties=3)
    held = run_until(session, phase.open)
    body = body_of(session, held[FIRST])
    for spelling, words in (
        (str, f"parties '{SECOND}' and '{COLLUDER}' commit to the same {phase.what}"),
        (str.upper, f"of party '{COLLUDER}' is not signed"),
    ):
        value = spelling(body.meta["signed"][SECOND]["value"])
        copied = signed(session, phase, "commitment", COLLUDER, value)
        forged = with_signed(body, **{COLLUDER: copied})
        assert words in refusal(session, FIRST, request(session, FIRST, phase.open, forged))


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.open)
def test_an_honest_coordinator_names_a_copied_commitment(phase: Phase) -> None:
    session = small(parties=3)

    def change(step: str, replies: Replies) -> Replies:
        if step != phase.commit:
            return replies
        value = reply_of(session, SECOND, replies[SECOND]).body.meta["value"]
        copied = Body(signed(session, phase, "commitment", COLLUDER, value))
        return replies | {
            COLLUDER: resigned(session, COLLUDER, replies[COLLUDER], lambda body: copied)
        }

    with pytest.raises(ProtocolError, match=f"'{SECOND}' and '{COLLUDER}' commit to the same"):
        session.run(deliver(session, change))


def copy_of(session: Session, victim: Body, again: bool) -> tuple[bytes, ...]:
    """A contribution's ciphertexts as they are, or with a fresh encryption of zero added."""
    if not again:
        return victim.blobs
    context = session.parties[FIRST]._half.context
    b = np.zeros((len(context.primes), N), np.uint64)
    for share in public_shares(session).values():
        b = rns.add(b, share, context.primes)
    key = context.public_key(
        b, context.uniform_polynomial(session.parties[FIRST]._half.seed, "public-key")
    )
    both = context.primes * 2
    zeros = (context.residues_of(context.encrypt(key, np.zeros(N // 2))) for _ in victim.blobs)
    return tuple(
        rns.pack(rns.add(rns.unpack(blob, both, N), zero, both), both)
        for blob, zero in zip(victim.blobs, zeros, strict=True)
    )


@pytest.mark.parametrize("again", [False, True], ids=["bytes", "with zero added"])
@pytest.mark.parametrize("deceives", [False, True], ids=["honest", "deviating"])
def test_a_copied_contribution_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, deceives: bool, again: bool
) -> None:
    """By the coordinator; if it colludes, by whoever re-executes the run."""
    sessions: dict[str, Session] = {}
    claimed: dict[tuple[str, ...], str] = {}
    victims: dict[str, Body] = {}

    class Copying(Party):
        def handle(self, data: bytes) -> bytes:
            reply, session = super().handle(data), sessions["it"]
            answer = reply_of(session, self.name, reply)
            if answer.step != ROWS.open or self.name == FIRST:
                return reply
            victims[self.name] = answer.body
            if self.name == SECOND:
                return reply
            copied = Body(answer.body.meta, copy_of(session, victims[SECOND], again))
            claimed[copied.digests] = commitments.digest_of(answer.body.digests)
            return resigned(session, self.name, reply, lambda body: copied)

    if not deceives:
        sessions["it"] = small(parties=3, party=Copying)
        with pytest.raises(ProtocolError, match="other contributions than it committed") as caught:
            sessions["it"].run()
        assert caught.value.culprit == COLLUDER
        return
    believing(monkeypatch, claimed)
    session = record(tmp_path, watch=sessions, party=Copying)
    assert session.recorded[-1][0] == "finish" and claimed
    monkeypatch.undo()
    check = replay(tmp_path).checks[-1]
    assert (check.name, check.passed) == ("re-execution", False)
    assert f"party '{COLLUDER}' opened other contributions than it committed to" in check.detail


# -- equivocation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.open)
def test_two_sets_of_commitments_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, phase: Phase
) -> None:
    """One party is shown another commitment of the colluder's, truly signed, and what it opens: it
    goes on; then each of the two sees that the other has endorsed another set, and stops."""
    sessions: dict[str, Session] = {}

    def second() -> Body:
        """What the colluder shows this party alone: a key share, and beside it h0 and h1."""
        towers = sessions["it"].plan.ckks.num_towers
        return Body(blobs=(bytes(8 * N * towers), b"h0", b"h1"))

    def other(body: Body) -> Body:
        value = commitments.digest_of(second().digests)
        forged = signed(sessions["it"], phase, "commitment", COLLUDER, value)
        return with_signed(body, **{COLLUDER: forged})

    def other_share(body: Body) -> Body:
        others = {**body.meta["others"], COLLUDER: list(second().digests[1:])}
        return Body({"others": others}, (*body.blobs[:2], second().blobs[0]))

    honest = Terms.check_endorsements
    asked: list[str] = []

    def deviate(exchange: Any) -> Any:
        replies: Any = None
        inner = altered(phase.open, other, FIRST)(exchange)
        if phase is KEYS:
            inner = altered(SHARES, other_share, FIRST)(inner)
        # The coordinator looks away; the parties do not.
        monkeypatch.setattr(Terms, "check_endorsements", lambda *arguments: None)
        while True:
            try:
                ask = inner.send(replies)
            except StopIteration as stop:
                return stop.value
            asked.append(ask.step)
            if ask.step == CHECKED[phase]:
                monkeypatch.setattr(Terms, "check_endorsements", honest)
            replies = yield ask

    session = record(tmp_path, deviate, watch=sessions)
    assert asked[-1] == CHECKED[phase]
    for name, witness in ((FIRST, SECOND), (SECOND, FIRST)):
        sent = next(d for s, n, d, _ in session.recorded if (s, n) == (asked[-1], name))
        text = refusal(session, name, sent)
        assert f"party '{witness}' was shown other commitments to the {phase.what}" in text
        assert "tells the parties different things" in text


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.open)
def test_an_honest_coordinator_names_a_false_endorsement(phase: Phase) -> None:
    session = small(parties=3)

    def change(step: str, replies: Replies) -> Replies:
        if step != phase.open:
            return replies
        forged = signed(session, phase, "endorsement", COLLUDER, "ab" * 32)
        return replies | {
            COLLUDER: resigned(
                session,
                COLLUDER,
                replies[COLLUDER],
                lambda body: Body({**body.meta, "endorsement": forged}, body.blobs),
            )
        }

    with pytest.raises(ProtocolError, match="was shown other commitments") as caught:
        session.run(deliver(session, change))
    assert caught.value.culprit == COLLUDER


def test_a_party_answers_no_refresh_before_it_knows() -> None:
    """`confirm` is a step of its own: what follows it is out of order."""
    session = small()
    run_until(session, CONFIRM)
    for step in ("refresh/0", "decrypt", "finish"):
        assert "out of order" in refusal(session, FIRST, request(session, FIRST, step, Body()))


# -- the pieces ------------------------------------------------------------------------------------


class Trio:
    """Three parties that commit to small messages."""

    def __init__(self, phase: Phase = KEYS, seed: bytes = SEED) -> None:
        self.keys = {name: new_signing_key() for name in party_names(3)}
        roster = {name: public_bytes(key) for name, key in self.keys.items()}
        self.terms = Terms(phase, seed, roster)
        self.openings = {n: Opening(self.terms, n, k) for n, k in self.keys.items()}
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
    for name, blobs in ((FIRST, opened[FIRST].digests), (SECOND, opened[SECOND].digests)):
        assert trio.openings[FIRST].is_committed(name, blobs)
        assert not trio.openings[FIRST].is_committed(name, blobs[::-1])
    assert not trio.openings[FIRST].is_committed("hospital-4", opened[FIRST].digests)
    with pytest.raises(PolicyError, match="no key shares were opened"):
        Trio().openings[FIRST].confirm(endorsed)


@pytest.mark.parametrize("what", ["session", "phase", "name", "kind", "own", "missing", "extra"])
def test_a_commitment_counts_once(what: str) -> None:
    """For one session, phase and name; and a party's own comes back as it was."""
    trio = Trio()
    session, phase = replace(trio.terms, seed=b"t" * 32), replace(trio.terms, phase=ROWS)
    value = trio.commitments[SECOND].meta["value"]

    def made(terms: Terms, name: str, value: str, kind: str = "commitment") -> Body:
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


@pytest.mark.parametrize("meta", [{}, {"signed": 1}, {"signed": {FIRST: {}}}], ids=str)
def test_malformed_sets_are_refused(meta: dict[str, Any]) -> None:
    trio = Trio()
    with pytest.raises(MessageError):
        trio.openings[FIRST].open(Body(meta))
    trio.openings[FIRST].open(trio.all())
    with pytest.raises(MessageError):
        trio.openings[FIRST].confirm(Body(meta))


def test_malformed_replies_name_their_party() -> None:
    for step, damage in (
        (KEYS.commit, lambda body: Body({"value": "00"})),
        (KEYS.commit, lambda body: Body()),
        (KEYS.open, lambda body: Body({}, body.blobs)),
        (KEYS.open, lambda body: Body({"endorsement": 1}, body.blobs)),
        (KEYS.open, lambda body: Body(body.meta, body.blobs[::-1])),
    ):
        trio = Trio()

        def answer(name: str, asked: str, body: Body, trio: Trio = trio) -> Body:
            reply = (
                trio.commitments[name] if asked == KEYS.commit else trio.openings[name].open(body)
            )
            return damage(reply) if (asked, name) == (step, SECOND) else reply  # noqa: B023

        with pytest.raises(ProtocolError) as caught:
            drive(commitments.opened(trio.terms, Body(), lambda name, body: Body()), answer)
        assert caught.value.culprit == SECOND


# -- going on in another process -------------------------------------------------------------------


def test_a_restart_between_commitment_and_opening() -> None:
    """Before each of these steps the state moves on: the same bytes are opened, the model is right.

    Key shares and ciphertexts are kept from commitment to opening, and not a step longer.
    """
    session = small(parties=3)
    sizes: dict[str, int] = {}

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Replies:
        if step in (KEYS.open, ROWS.commit, ROWS.open, CONFIRM, "refresh/0"):
            duties = session.parties[FIRST]._half
            state = duties.state(lambda secret: secret)
            for name in ("_keys", "_rows"):
                setattr(duties, name, None)
            duties.restore(state, lambda secret: secret)
            sizes[step] = sum(map(len, state.blobs))
        return session.ask(step, outgoing)

    outcome = session.run(ask)
    assert log2_error(outcome.weights, session.twin()) < -13
    sent = {
        step: reply_of(session, FIRST, reply).body.num_bytes
        for step, name, _, reply in session.recorded
        if name == FIRST
    }
    # What is kept besides: secrets, with the second one gone after `relinearise`.
    bare = sizes["refresh/0"]
    assert sizes[ROWS.commit] == sizes[CONFIRM] == bare
    assert sizes[ROWS.open] == bare + sent[ROWS.open]
    assert sizes[KEYS.open] > bare + sent[KEYS.open] > sizes[ROWS.open]


def test_values_are_read_back() -> None:
    trio = Trio()
    assert of_request(trio.all())[FIRST].to_body() == trio.commitments[FIRST]
