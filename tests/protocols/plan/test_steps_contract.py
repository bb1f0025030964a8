"""The contract of every step of every protocol, on INSECURE toy rings.

A party answers a request once, in its turn, if it is whole; resends the same bytes; and goes on
from its state in another process. The coordinator takes whole replies of the asked party alone, and
names whoever sent another one, or none. One run of each protocol meets everything that a party must
refuse; its replies are then fed to coordinators that know nothing, one of them changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

from protocols.ckks.residues import Residues
from protocols.errors import ProtocolError
from protocols.exchange.messages import Body, new_signing_key
from protocols.plan.protocol import may_repeat, protocol_of
from tests.provenance.published import Shape, unpacked
from tests.support.helpers import Session, half_of, log2_error, party_names
from tests.support.sessions import (
    COORDINATOR,
    FIRST,
    VICTIM,
    Replies,
    StopHere,
    asked,
    gram_session,
    lffr_session,
    model_session,
    refusal,
    reply_of,
    request,
    resigned,
    small,
    sums_session,
    whitened_session,
    with_meta,
)

AGREE = "enrol agree reveal"
KEYS = "commit-keys keys public-shares/0 rotations/0 commit-relinearise relinearise"
ROWS = "commit-rows contribute confirm"
MODEL = "pad-keys agree-pads evaluation-keys/0 evaluation-keys/1"


def fixed(*steps: str) -> str:
    """Steps whose replies are fixed before they are sent."""
    return " ".join(f"commit-{step} {step}" for step in steps)


def refreshed(count: int) -> str:
    """So many refreshes, and what comes after."""
    return f"{fixed(*(f'refresh/{k}' for k in range(count)), 'decrypt')} finish"


ROUNDS = f"{fixed('gradient/0')} refresh/0 {fixed('gradient/1')} refresh/1"
SEQUENCES = {
    "rows": f"{AGREE} {KEYS} {ROWS} {refreshed(2)}",
    "cover": f"{AGREE} {KEYS} cover-keys cover-deal cover-hold {ROWS} {refreshed(2)}",
    "gram": f"{AGREE} {KEYS} {ROWS} {refreshed(3)}".replace(
        "rotations/0", "rotations/0 rotations/1 rotations/2"
    ),
    "lffr": f"{AGREE} {KEYS} {ROWS} {refreshed(4)}",
    "whitened": f"{AGREE} second-moment {KEYS} {ROWS} {refreshed(2)}",
    "model": f"{AGREE} {KEYS} {MODEL} {ROUNDS} {refreshed(0)}",
    "model-cover": f"{AGREE} {KEYS} cover-keys cover-deal cover-hold {MODEL} {ROUNDS} "
    f"{refreshed(0)}",
    "sums": f"{AGREE} mask-keys opening-key round/0 round/1 finish",
}
SESSIONS: dict[str, Callable[[], Session]] = {
    "rows": lambda: small(update="nag", rounds=2, parties=3),
    "cover": lambda: small(rounds=2, parties=3, cover=2),
    "gram": lambda: gram_session(rounds=2),
    "lffr": lambda: lffr_session(rounds=2),
    "whitened": whitened_session,
    "model": lambda: model_session(update="nag"),
    "model-cover": lambda: model_session(cover=2),
    "sums": lambda: sums_session(rounds=2),
}
EVERY_STEP = [
    pytest.param(protocol, step, id=f"{protocol}-{step}")
    for protocol, steps in SEQUENCES.items()
    for step in steps.split()
]
# Gram, lffr and whitened rows share all but these with rows. The weights that `finish` tells differ
# in their last bits from one decoding to the next: recorded replies do not fit another one's.
OWN = ("contribute", "commit-refresh/0", "refresh/0", "second-moment", "gradient/1")
PARTLY = ("gram", "lffr", "whitened", "model-cover")
# Of protocols under CKKS the coordinator's half of these is the same.
ALIKE = ("cover", "model")
FED_STEPS = [
    case
    for case in EVERY_STEP
    if case.values[1] != "finish"
    and (case.values[0] not in PARTLY or case.values[1] in OWN)
    and (case.values[0] not in ALIKE or case.values[1] not in f"{AGREE} {KEYS}".split())
]
NOT_READ = ("enrol", "rotations", "finish")  # a rotation's index is the plan's
COVERED = (
    *("confirm", "commit-gradient", "gradient", "commit-refresh", "refresh"),
    *("commit-decrypt", "decrypt"),
)
FEW, LATE = 2, 8  # parties that cover=2 of 3 needs; steps that cost a coordinator nothing
INVENTED = ("decrypt/1", "refresh/7", "rotations/99", "cover-refresh/9", "nonsense", "")


def test_steps_that_others_may_repeat() -> None:
    """Transports wait for every reply of these though one is lost already."""
    steps = {case.values[1] for case in EVERY_STEP}
    assert {step.partition("/")[0] for step in steps if may_repeat(step)} == set(COVERED)
    assert not any(map(may_repeat, INVENTED[-2:]))


@dataclass
class Ran:
    """A finished run. replies: by (step, party); answered: what should have been refused, by step;
    words: refusals of what was out of turn; resent: steps whose replies came back as they were.
    """

    session: Session
    weights: Any = None
    context: Any = None
    requests: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    replies: dict[tuple[str, str], bytes] = field(default_factory=dict)
    answered: dict[str, list[str]] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)
    resent: set[str] = field(default_factory=set)

    def feed(self, step: str, change: Callable[[Replies], Replies]) -> Any:
        """What another coordinator makes of changed replies: an error, or (next step, of whom)."""
        found: list[Any] = []

        def ask(current: str, outgoing: Mapping[str, bytes]) -> Replies:
            if found:
                found.append((current, tuple(outgoing)))
                raise StopHere
            replies = {name: self.replies[current, name] for name in outgoing}
            if current == step:
                found.append(None)
                return change(replies)
            return replies

        try:
            self.session.successor().run(ask)
        except StopHere:
            pass
        except ProtocolError as error:
            return error
        return found[-1]


@cache
def ran(protocol: str) -> Ran:
    """Run it, with everything hostile before each step, and a restart after."""
    session, found = SESSIONS[protocol](), None
    found, steps = Ran(session), SEQUENCES[protocol].split()

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Replies:
        party, data = session.parties[VICTIM], outgoing[VICTIM]
        for other in {*steps, *INVENTED} - {step}:
            body = Body({"other": 1}, asked(session, data).blobs)
            text = refusal(session, VICTIM, request(session, VICTIM, other, body))
            found.words.setdefault(step, []).append(text)
        answered = found.answered.setdefault(step, [])
        for words, bad in hostile(session, step, data):
            if "error" not in reply_of(session, VICTIM, party.handle(bad)).body.meta:
                answered.append(words)
        replies = session.ask(step, outgoing)
        if {n: session.parties[n].handle(outgoing[n]) for n in outgoing} == replies:
            found.resent.add(step)
        again = resigned(session, data, body=with_meta(again=1))
        found.words[step].append(refusal(session, VICTIM, again))
        found.replies |= {(step, name): reply for name, reply in replies.items()}
        found.requests[step] = outgoing
        found.context = getattr(half_of(party), "context", None)
        if protocol != "sums" and step != "finish":
            session.restart(VICTIM)
            assert session.parties[VICTIM].handle(data) == replies[VICTIM]
        return replies

    found.weights = session.run(ask).weights
    return found


def hostile(session: Session, step: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """Requests of the step that nobody answers."""
    body, kind = asked(session, data), step.partition("/")[0]
    for change in ({"sender": VICTIM}, {"recipient": FIRST}, {"session": "other"}):
        if step != "enrol" or "session" not in change:
            yield f"another {next(iter(change))}", resigned(session, data, **change)
    if kind in NOT_READ:
        return
    for name in body.meta:
        without = {k: v for k, v in body.meta.items() if k != name}
        yield f"no {name}", resigned(session, data, body=Body(without, body.blobs))
        for value in (None, 1, [1], "x"):
            other = with_meta(**{name: value})
            yield f"{name}={value!r}", resigned(session, data, body=other)
    # A refresh whose second ciphertext is malformed costs the first one's share: nobody is sent it.
    last = 0 if kind.endswith("refresh") else -1
    for words, blobs in malformed(body.blobs, last):
        yield words, resigned(session, data, body=Body(body.meta, blobs))


def malformed(blobs: tuple[bytes, ...], last: int) -> Iterator[tuple[str, tuple[bytes, ...]]]:
    """Wrong counts, wrong sizes, residues not below their primes, first blob and last."""
    if not blobs:
        return
    yield from (("no blobs", ()), ("too many blobs", blobs * 3))
    for k in {0, last % len(blobs)}:
        before, blob, after = blobs[:k], blobs[k], blobs[k + 1 :]
        for words, other in (
            ("a byte short", blob[:-1]),
            ("a word too long", blob + blob[:8]),
            ("above its primes", b"\xff" * len(blob)),
        ):
            yield f"blob {k} {words}", (*before, other, *after)


# -- parties -------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", SEQUENCES)
def test_steps_come_once_in_their_order(protocol: str) -> None:
    """And the model is the twin's, whatever else was asked."""
    found = ran(protocol)
    for name in party_names(3):
        steps = [step for step, party, *_ in found.session.recorded if party == name]
        assert steps == SEQUENCES[protocol].split()
    assert np.abs(found.weights).max() > 1e-3
    if protocol in ("rows", "cover", "model", "model-cover"):
        assert log2_error(found.weights, found.session.twin()) < -17


@pytest.mark.parametrize(("protocol", "step"), EVERY_STEP)
def test_a_party_answers_a_step_once_and_in_turn(protocol: str, step: str) -> None:
    """Every other step is refused, and the same one with other bytes; a resend is byte-identical,
    also from a restarted party."""
    found = ran(protocol)
    assert step in found.resent
    *before, again = found.words[step]
    assert len(before) > 12 and all("out of order" in words for words in before)
    assert ("over" if step == "finish" else "out of order") in again


@pytest.mark.parametrize(("protocol", "step"), EVERY_STEP)
def test_a_party_refuses_what_is_not_whole(protocol: str, step: str) -> None:
    """With a signed reply; the true request is answered all the same."""
    assert ran(protocol).answered[step] == []


@pytest.mark.parametrize(("protocol", "step"), EVERY_STEP)
def test_a_share_is_as_specified(protocol: str, step: str) -> None:
    """Polynomials of the stated moduli and no byte else; no two parties send the same."""
    found, seen = ran(protocol), set[bytes]()
    for name in party_names(3):
        body = reply_of(found.session, name, found.replies[step, name]).body
        if protocol == "sums" or step == "cover-deal":
            assert len({len(blob) for blob in body.blobs}) <= 1
        else:
            polynomials: list[tuple[Shape, Residues]] = list(
                unpacked(found.session.plan, found.context, step, body.blobs)
            )
            assert bool(polynomials) == bool(body.blobs)
            for (_, primes), rows in polynomials:
                assert (rows < np.array(primes, np.uint64)[:, None]).all()
        assert not seen & set(body.blobs)
        seen |= set(body.blobs)


def test_sums_are_as_long_as_their_values() -> None:
    found = ran("sums")
    plan = found.session.plan
    sizes = {
        step: [len(b) for b in reply_of(found.session, n, reply).body.blobs]
        for (step, n), reply in found.replies.items()
    }
    assert sizes["opening-key"] == [2 * plan.cipher.ring_dim]
    assert len(sizes["round/0"]) == 1 and sizes["round/0"] == sizes["round/1"]
    assert sizes["mask-keys"] == sizes["finish"] == []


# -- the coordinator -----------------------------------------------------------------------------


def damaged(found: Ran, step: str) -> Iterator[tuple[str, bytes]]:
    """Replies of VICTIM that no coordinator takes."""
    session, data = found.session, found.replies[step, VICTIM]
    steps = list(found.requests)
    envelopes = [
        ("flipped", data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]),
        *(("cut", data[:-1]), ("empty", b""), ("a byte more", data + b"\0")),
        ("another key's", resigned(session, data, new_signing_key())),
        ("the coordinator's", resigned(session, data, session.coordinator_key)),
        *(
            (f"another {name}", resigned(session, data, **{name: "another"}))
            for name in ("session", "sender", "recipient", "step", "answers")
        ),
    ]
    # They are read alike at every step, and late steps cost a training: two of them there.
    at = steps.index(step)
    yield from envelopes if at < LATE else (envelopes * 2)[2 * at % len(envelopes) :][:2]
    yield "another party's", found.replies[step, FIRST]
    if at:
        yield "the step before's", found.replies[steps[at - 1], VICTIM]
    yield "a refusal", resigned(session, data, body=Body({"error": "no"}))
    body = reply_of(session, VICTIM, data).body
    for name in body.meta:
        without = {k: v for k, v in body.meta.items() if k != name}
        yield f"no {name}", resigned(session, data, body=Body(without, body.blobs))
        if at:  # an enrolment's texts are whatever they are: they do not open later
            yield f"{name}=[1]", resigned(session, data, body=with_meta(**{name: [1]}))
    for words, blobs in malformed(body.blobs, 0):
        # Masked secrets are any words.
        if (step, words) != ("opening-key", "blob 0 above its primes"):
            yield words, resigned(session, data, body=Body(body.meta, blobs))


@pytest.mark.parametrize(("protocol", "step"), FED_STEPS)
def test_a_false_reply_names_its_party(protocol: str, step: str) -> None:
    found = ran(protocol)
    for words, bad in damaged(found, step):
        error = found.feed(step, lambda replies, bad=bad: replies | {VICTIM: bad})
        assert isinstance(error, ProtocolError), words
        assert error.culprit == VICTIM, (words, error)
        if words == "the step before's":
            before = list(found.requests)[list(found.requests).index(step) - 1]
            assert repr(step) in str(error) and repr(before) in str(error)


@pytest.mark.parametrize(("protocol", "step"), FED_STEPS)
def test_nobody_is_summed_over_silently(protocol: str, step: str) -> None:
    """A missing party ends the run by its name; where there is cover, the others repeat the step,
    unless they are too few."""
    found, kind = ran(protocol), step.partition("/")[0]
    end = found.feed(step, lambda replies: {n: r for n, r in replies.items() if n != VICTIM})
    left = tuple(name for name in party_names(3) if name != VICTIM)
    if protocol.endswith("cover") and kind in COVERED:
        again = protocol_of(found.session.plan).repetition(found.session.plan, step)
        assert end == (again[0], left)
        end = found.feed(step, lambda replies: {COORDINATOR: b""})
        assert isinstance(end, ProtocolError) and f"{FEW} are needed" in str(end)
    else:
        assert isinstance(end, ProtocolError) and end.culprit == VICTIM
        assert f"no reply from party {VICTIM!r}" in str(end)
