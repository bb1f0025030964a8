"""What parties sign of what they were asked: a log without one of the requests does not pass.

INSECURE toy rings. A coordinator reads every key in a run with cover: two answers of T parties,
`commit-decrypt` of a chosen ciphertext and `cover-decrypt` of the same as stand-ins for all others,
who are here and never told: what they open adds up to c1 s. In its log they never answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator.errors import LostError
from coordinator.replay import CHECKS, replay
from parties.kernel.cover import shamir
from protocols.ckks import residues as rns
from protocols.errors import MessageError
from protocols.exchange.messages import Body, decode, digest, new_signing_key
from protocols.exchange.signed_messages import to_request
from protocols.exchange.signed_values import SignedValue
from protocols.plan.statement import STATEMENT, make_statement, read_statement
from protocols.steps import endorsed
from protocols.steps.sealed_shares import StandIn
from tests.support import exact
from tests.support.helpers import Session, half_of, party_names
from tests.support.sessions import NAG, question, record, reply_of, request, small, sums_session

A, B, C, D = party_names(4)
OMITTED = "was asked something that this log does not hold"
CHOSEN = 1 << 90


def send(session: Session, name: str, step: str, body: Body) -> Body:
    """Ask one party, and keep no record."""
    sent = request(session, name, step, body)
    return reply_of(session, name, session.parties[name].handle(sent)).body


def stated(session: Session, *names: str) -> list[bytes]:
    """What these parties sign once the session is over for them."""
    run = session.coordinator.session
    return [make_statement(run, n, session.parties[n].seen, session.party_keys[n]) for n in names]


def failure(folder: Path, statements: list[bytes] | None = None) -> tuple[str, str]:
    checks = replay(folder, statements=statements or ()).checks
    assert [check.passed for check in checks] == [True] * (len(checks) - 1) + [False], checks
    return checks[-1].name, checks[-1].detail


# -- lost on paper ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("names", "victims"), [((A, B, C, D), (A, B)), ((A, B, C), (A,))])
def test_parties_that_are_lost_on_paper_are_named(
    tmp_path: Path, names: tuple[str, ...], victims: tuple[str, ...]
) -> None:
    """T victims, or T - 1 with a colluder, C: the joint key is read, and the run ends well."""
    session = small(update="nag", parties=len(names), cover=2)
    stand_ins = victims if len(victims) == 2 else (A, C)
    rest = tuple(name for name in names if name not in stand_ins)
    found: dict[str, Any] = {}

    def read_the_key() -> None:
        halves = {name: half_of(session.parties[name]) for name in names}
        primes, n = halves[A].context.primes, halves[A].context.params.ring_dim
        low = primes[:2]
        c1 = np.stack([np.full(n, CHOSEN % p, np.uint64) for p in low])
        total = np.zeros_like(c1)
        again, fixed = StandIn(rest, stand_ins).to_body((rns.pack(c1, low),)), {}
        for name in victims:
            body = Body(question(session, "decrypt", rest[0]).meta, (rns.pack(c1, low),))
            send(session, name, "commit-decrypt", body)
            fixed[name] = SignedValue(**send(session, name, "cover-commit-decrypt", again).meta)
        rounds = halves[A].rounds
        terms = endorsed.of_round(
            session.plan.roster, "cover-decrypt", rounds._seed, rest, rounds.view.digest
        )
        for name in set(stand_ins) - set(victims):
            text = partial(terms.text, "commitment")
            fixed[name] = SignedValue.by(session.party_keys[name], text, name, "ab" * 32)
        for name in victims:
            blob = send(session, name, "cover-decrypt", to_request(fixed)).blobs[0]
            total = rns.add(total, rns.unpack(blob, low, n), low)
        for name in set(stand_ins) - set(victims):
            factor = shamir.weights(names.index(name) + 1, [1, 3], primes)
            held = rns.scale(halves[name].secret._cover._held[B], factor, primes)
            own = rns.add(exact.secret_rows(halves[name].secret), held, primes)
            total = rns.add(total, exact.product(c1, own[:2], low), low)
        found["read"] = [round(int(v) / CHOSEN) for v in exact.whole(total, low)]
        found["secret"] = sum(np.array(exact.secret(halves[name].secret)) for name in names)

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        lost = victims if step == "commit-decrypt" else ()
        for name, data in outgoing.items():
            if name not in lost:
                reply = session.parties[name].handle(data)
                session.recorded.append((step, name, data, reply))
                yield name, reply
        if lost:
            read_the_key()
            raise LostError("no reply", lost)

    record(tmp_path, session, ask=ask)
    assert found["read"] == list(found["secret"])
    check, words = failure(tmp_path)
    assert check == CHECKS[-1]
    for name in victims:
        assert f"{name} from step 'commit-decrypt' on" in words
    assert failure(tmp_path, stated(session, *victims)) == (
        "records",
        f"party {A!r} {OMITTED}: its statement says so",
    )


@pytest.mark.parametrize("arrives", [False, True], ids=["request lost", "reply lost"])
def test_an_honest_loss_passes_with_the_owners_word(tmp_path: Path, arrives: bool) -> None:
    session = small(update="nag", parties=4, cover=2)

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        lost = {"refresh/1": D, "decrypt": C}.get(step)
        for name, data in outgoing.items():
            if name != lost:
                yield name, session.parties[name].handle(data)
            elif arrives:
                session.parties[name].handle(data)
        if lost:
            raise LostError("no reply", (lost,))

    record(tmp_path, session, ask=ask)
    assert failure(tmp_path)[1].startswith(
        "not verified for hospital-4 from step 'refresh/1' on, hospital-3 from step 'decrypt' on:"
    )
    assert "hospital-4 from" not in failure(tmp_path, stated(session, D))[1]
    assert "hospital-3 from" in failure(tmp_path, stated(session, D))[1]
    assert replay(tmp_path, statements=stated(session, A, C, D)).passed
    # Asked once more, a party that was not lost does not get away with less either.
    send(session, A, "decrypt", Body())
    assert OMITTED in failure(tmp_path, stated(session, A, C, D))[1]


# -- left out --------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["agree", "finish"])
def test_a_refused_request_that_is_left_out_is_found(tmp_path: Path, step: str) -> None:
    """Where the next reply of its party stands."""
    session = small(**NAG)

    def ask(current: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        if current == step:
            assert "error" in send(session, B, "refresh/1", Body(blobs=(b"x",) * 9)).meta
        yield from session.ask(current, outgoing).items()

    record(tmp_path, session, ask=ask)
    name, words = failure(tmp_path)
    assert name == "re-execution" and words.startswith(f"step {step!r}: party {B!r} {OMITTED}")


def test_copies_of_requests_do_not_count(tmp_path: Path) -> None:
    """A relay sends each twice, and the first one again at every later step; or another party's."""
    session, first = small(**NAG), dict[str, bytes]()

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        for name, data in outgoing.items():
            party = session.parties[name]
            reply = party.handle(data)
            assert party.handle(data) == reply
            party.handle(first.setdefault(name, data))
            party.handle(first[A])
            yield name, reply

    record(tmp_path, session, ask=ask)
    assert replay(tmp_path).passed


# -- statements ------------------------------------------------------------------------------------


def test_what_is_no_statement_is_refused() -> None:
    """A refusal may have any step; nor is one of another session, or of somebody else."""
    session = small(update="nag")
    run, keys = session.coordinator.session, session.verify_keys
    party, key = session.parties[A], session.party_keys[A]
    (good,) = stated(session, A)
    assert read_statement(good, run, keys) == (A, party.seen)
    asked = request(session, A, STATEMENT, Body())
    refused = party.handle(asked)
    assert decode(refused, keys[A]).answers == digest(asked)
    for data, words in (
        (refused, "no statement"),
        (make_statement("another", A, party.seen, key), "no statement"),
        (make_statement(run, A, party.seen, new_signing_key()), "signature"),
        (make_statement(run, "hospital-9", party.seen, key), "whom the plan does not have"),
        (b"x", "header"),
    ):
        with pytest.raises(MessageError, match=words):
            read_statement(data, run, keys)


def test_honest_sums_pass(tmp_path: Path) -> None:
    """Their opening key is bound to the session: the re-execution keeps its name."""
    record(tmp_path, sums_session(rounds=2))
    found = replay(tmp_path)
    assert found.passed, found.checks[-1].detail
