"""Elements that an owner would choose, after it has seen what the others sent (toy, INSECURE).

THIRD deviates, and the coordinator is curious: it follows the protocol, and shows THIRD everything.
c1 = floor(Q3 / 3) X^t for the sum of all would show the key shares s: h0 = c1 s - M, |M| <= Q3 / 2P
on 2k coefficients, so that eight rounds show n of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from protocols.ckks import REFRESH_TOWERS
from protocols.ckks import residues as rns
from protocols.ckks.circuits.side_by_side import SideBySide
from protocols.errors import CohortError, ProtocolError
from protocols.exchange import commit_of
from protocols.exchange.messages import Body
from protocols.exchange.signed_values import SignedValue
from protocols.plan.protocol import protocol_of
from tests.support import exact
from tests.support.helpers import Session, half_of, party_names
from tests.support.sessions import (
    FIRST,
    NAG,
    THIRD,
    VICTIM,
    N,
    Replies,
    asked,
    gram_session,
    lffr_model_session,
    lffr_session,
    model_session,
    question,
    refusal,
    reply_of,
    request,
    resigned,
    run_until,
    small,
)

HONEST = (FIRST, VICTIM)
A, B, C, D = party_names(4)
WIDTH = 64
ROUNDS = N // WIDTH


def session() -> Session:
    """One part, 2k = 64."""
    return model_session(features=40, features_per_ciphertext=WIDTH, rounds=ROUNDS)


class Watched:
    """A run whose owners answer in turn, THIRD last.

    sent: polynomials, by step and party; own: what the coordinator adds to the replies of this
    round, which follows from what is public.
    """

    def __init__(self, run: Session) -> None:
        self.run = run
        self.sent: dict[str, dict[str, list[rns.Residues]]] = {}
        self.low: tuple[int, ...] = ()
        self.own: Any = None

    def ask(self, step: str, outgoing: Mapping[str, bytes]) -> Replies:
        replies: Replies = {}
        for name in (FIRST, VICTIM, THIRD):
            if name in outgoing:
                replies |= self.run.ask(step, {name: outgoing[name]})
                self.note(step, name, replies[name])
        return replies

    def note(self, step: str, name: str, reply: bytes) -> None:
        """Of the steps under attack."""
        kind = step.partition("/")[0]
        body = reply_of(self.run, name, reply).body
        if kind not in ("gradient", "refresh") or "error" in body.meta:
            return
        context = half_of(self.run.parties[name]).context
        self.low = context.primes[:REFRESH_TOWERS]
        primes = [self.low, self.low if kind == "gradient" else context.primes]
        self.sent.setdefault(step, {})[name] = [
            rns.unpack(blob, primes[k % 2], N) for k, blob in enumerate(body.blobs)
        ]


def chosen(low: tuple[int, ...], place: int) -> rns.Residues:
    """floor(Q3 / 3) X^place."""
    value = np.zeros(N, object)
    value[place] = math.prod(low) // 3
    return np.array([exact.evaluations(value % q, q) for q in low], np.uint64)


def deviating(watched: Watched, change: Callable[[str, list[Any]], list[Any]]) -> None:
    """From the keys on THIRD sends other gradients; change(step, parts) -> parts."""
    party: Any = watched.run.parties[THIRD]
    opened = party._open_half

    def open_half(*args: Any, **more: Any) -> Any:
        half = opened(*args, **more)
        gradient = half.gradient

        def other(t: int, label: str, point: Any) -> Any:
            parts = gradient(t, label, point)
            watched.low = half.context.primes[:REFRESH_TOWERS]
            return change(f"gradient/{t}", parts)

        half.gradient = other
        return half

    party._open_half = open_half


def steered(watched: Watched, step: str, parts: list[Any]) -> list[Any]:
    """c1 of all is floor(Q3 / 3) X^t, as far as this owner can bring it about."""
    c1 = chosen(watched.low, int(step.partition("/")[2]))
    if watched.own is not None:
        c1 = rns.subtract(c1, watched.own[0][1], watched.low)
    for replies in watched.sent.get(step, {}).values():
        c1 = rns.subtract(c1, replies[1], watched.low)
    return [[parts[0][0], c1]]


def attacked(watched: Watched) -> tuple[dict[str, Any], Exception | None]:
    """Run; the honest key shares, which are erased at its end, and how it ended."""
    keys: dict[str, Any] = {}

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Replies:
        if step == "agree-pads":
            halves = ((name, half_of(watched.run.parties[name])) for name in HONEST)
            keys.update({name: exact.secret(half.secret) for name, half in halves})
        return watched.ask(step, outgoing)

    own_share = SideBySide.own_share

    def noting(self: SideBySide, total: Any) -> Any:
        watched.own = own_share(self, total)
        return watched.own

    try:
        with patch.object(SideBySide, "own_share", noting):
            watched.run.run(ask)
    except CohortError as error:
        return keys, error
    return keys, None


def share_read(watched: Watched, name: str, key: Any) -> float:
    """Of the key share's coefficients, how many h0 = floor(Q3 / 3) X^t s - M shows."""
    right = 0
    third = math.prod(watched.low) // 3
    for t in range(ROUNDS):
        step = f"refresh/{t}"
        if step not in watched.sent:
            continue
        shown = exact.whole(watched.sent[step][name][0], watched.low)
        for place in range(0, N, N // WIDTH):
            sign, index = (1, place - t) if place >= t else (-1, place - t + N)
            right += sign * ((2 * int(shown[place]) + third) // (2 * third)) == key[index]
    return right / N


# -- a chosen element ------------------------------------------------------------------------------


def test_an_owner_that_answers_last_reads_no_key_share() -> None:
    """Before, all 512 coefficients of both; what it commits to blindly is covered by a v."""
    watched = Watched(session())
    deviating(watched, lambda step, parts: steered(watched, step, parts))
    keys, _ = attacked(watched)
    for name in HONEST:
        right = share_read(watched, name, keys[name])
        assert right < 0.45, f"{right:.0%} of the key share of {name} are read"


def test_who_opens_another_reply_than_it_fixed_is_named() -> None:
    """The same at the opening, when it has seen the others': no share of a refresh is given."""
    watched = Watched(session())

    def last(step: str, replies: Replies) -> Replies:
        if step != "gradient/1":
            return replies
        own = watched.sent[step].pop(THIRD)
        (parts,) = steered(watched, step, [[own[0], None]])
        blobs = tuple(rns.pack(each, watched.low) for each in parts)
        body = reply_of(watched.run, THIRD, replies[THIRD]).body
        return replies | {THIRD: resigned(watched.run, replies[THIRD], body=Body(body.meta, blobs))}

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Replies:
        return last(step, watched.ask(step, outgoing))

    with pytest.raises(ProtocolError, match="opened other .* than it committed to") as caught:
        watched.run.run(ask)
    assert caught.value.culprit == THIRD
    assert "refresh/1" not in watched.sent


# -- two truths ------------------------------------------------------------------------------------


def opening(run: Session, step: str, replies: Mapping[str, bytes]) -> Body:
    """The request to open what these replies fix."""
    fixed = {name: reply_of(run, name, data).body.meta for name, data in replies.items()}
    return Body({"signed": {name: dict(meta) for name, meta in fixed.items()}})


def last_bit(body: Body) -> Body:
    """The last blob, changed in its lowest bit."""
    *others, last = body.blobs
    return Body(body.meta, (*others, bytes([last[0] ^ 1]) + last[1:]))


ALIKE = [
    *((lambda: small(**NAG), step) for step in ("refresh/0", "refresh/2", "decrypt")),
    *((gram_session, step) for step in ("refresh/0", "refresh/1", "decrypt")),
    *((lffr_session, step) for step in ("refresh/1", "decrypt")),
    *((model_session, step) for step in ("gradient/1", "decrypt")),
    (lambda: lffr_model_session(), "gradient/1"),
]


@pytest.mark.parametrize(("make", "step"), ALIKE)
def test_nobody_opens_where_one_was_asked_something_else(
    make: Callable[[], Session], step: str
) -> None:
    """One bit of one party's request: no reply to it leaves, whoever adds the digests up."""
    run = make()
    outgoing = run_until(run, commit_of(step))
    other = resigned(run, outgoing[VICTIM], body=last_bit)
    replies = run.ask(commit_of(step), {**outgoing, VICTIM: other})
    body = opening(run, step, replies)
    for name in (FIRST, VICTIM, THIRD):
        words = refusal(run, name, request(run, name, step, body))
        assert "is not signed by its identity key for this session" in words


def test_a_share_for_another_ciphertext_ends_the_run_of_a_model() -> None:
    """Its refresh is not committed to: who was asked for what is confirmed with the next reply."""
    run = model_session()
    outgoing = run_until(run, "refresh/0")
    other = resigned(run, outgoing[VICTIM], body=last_bit)
    run.ask("refresh/0", {**outgoing, VICTIM: other})
    point = Body(blobs=tuple(rns.pack(_nothing(run), _context(run).primes) for _ in range(2)))
    sent = {name: request(run, name, "commit-gradient/1", point) for name in outgoing}
    body = opening(run, "gradient/1", run.ask("commit-gradient/1", sent))
    for name in outgoing:
        words = refusal(run, name, request(run, name, "gradient/1", body))
        assert "is not signed by its identity key for this session" in words


def _context(run: Session) -> Any:
    return half_of(run.parties[FIRST]).context


def _nothing(run: Session) -> rns.Residues:
    return np.zeros((len(_context(run).primes), N), np.uint64)


@pytest.mark.parametrize(
    ("make", "step"), [(lambda: small(**NAG), "refresh/0"), (model_session, "gradient/0")]
)
def test_an_owner_that_signs_two_replies_gets_no_share(
    make: Callable[[], Session], step: str
) -> None:
    """FIRST is shown one of its digests, VICTIM the other: the next share of both is refused."""
    run = make()
    outgoing = run_until(run, step)
    half = half_of(run.parties[THIRD])
    terms = half.rounds._last._terms
    text = lambda name, value: terms.text("commitment", name, value)  # noqa: E731
    second = asdict(SignedValue.by(run.party_keys[THIRD], text, THIRD, "ab" * 32))
    signed = {**asked(run, outgoing[VICTIM]).meta["signed"], THIRD: second}
    other = resigned(run, outgoing[VICTIM], body=Body({"signed": signed}))
    replies = run.ask(step, {**outgoing, VICTIM: other})
    endorsed = {n: reply_of(run, n, data).body.meta["endorsement"] for n, data in replies.items()}
    (after,) = [
        later
        for before, later in pairwise(protocol_of(run.plan).sequence(run.plan))
        if before == step
    ]
    body = Body({"signed": endorsed}, question(run, step, FIRST).blobs or (b"",))
    for name in HONEST:
        words = refusal(run, name, request(run, name, after, body))
        assert "was shown other commitments" in words
        without = request(run, name, after, Body(blobs=body.blobs))
        assert "signed values" in refusal(run, name, without)


LOST_SETS: list[tuple[Callable[..., Session], str]] = [
    (small, "refresh/1"),
    (small, "commit-refresh/1"),
    (small, "decrypt"),
    *((model_session, step) for step in ("gradient/1", "refresh/0", "decrypt")),
]


@pytest.mark.parametrize(("make", "step"), LOST_SETS)
@pytest.mark.parametrize(
    "others",
    [{"missing": [C, D]}, {"missing": [C], "stand_ins": [A, B]}, {"stand_ins": [B, C]}],
    ids=str,
)
def test_who_is_lost_is_the_same_for_all_before_anybody_stands_in(
    make: Callable[..., Session], step: str, others: dict[str, Any]
) -> None:
    """B is told something else than A and C: none of them sends what it has fixed."""
    run = make(rounds=2, parties=4, cover=2)
    outgoing = run_until(run, step)
    run.ask(step, outgoing)
    covering = {"missing": [D], "stand_ins": [A, B]}
    opened = step.removeprefix("commit-")
    about = question(run, opened, A).blobs
    commit, again = f"cover-commit-{opened}", f"cover-{opened}"
    told = {A: covering, B: {**covering, **others}, C: covering}
    sent = {name: request(run, name, commit, Body(told[name], about)) for name in (A, B, C)}
    replies = {name: run.parties[name].handle(data) for name, data in sent.items()}
    for name in (A, B, C):
        present = [n for n in (A, B, C, D) if n not in told[name]["missing"]]
        known = {n: replies[n] for n in present if n in replies}
        words = refusal(run, name, request(run, name, again, opening(run, again, known)))
        assert "is not signed" in words or "not exactly one" in words or "out of order" in words


# -- what remains ----------------------------------------------------------------------------------


def scaled(watched: Watched, parts: list[Any], factor: int, own: bool) -> list[Any]:
    """factor times the sum of all replies of round 0, beside this owner's reply or alone."""
    low = watched.low
    total = [np.zeros((len(low), N), np.uint64)] * 2
    for polynomials in watched.sent["gradient/0"].values():
        total = [rns.add(a, b, low) for a, b in zip(total, polynomials, strict=True)]
    more = [rns.scale(each, [factor % q for q in low], low) for each in total]
    if not own:
        return [more]
    return [[rns.add(a, b, low) for a, b in zip(parts[0], more, strict=True)]]


def multiplying(factor: int, own: bool) -> Watched:
    """THIRD adds a multiple of the first round's sum to its last reply."""
    watched = Watched(model_session(features=5, features_per_ciphertext=8, rounds=2))

    def change(step: str, parts: list[Any]) -> list[Any]:
        return scaled(watched, parts, factor, own) if step == "gradient/1" else parts

    deviating(watched, change)
    return watched


@pytest.mark.parametrize("factor", [1, -1, 2000])
def test_an_owners_plain_multiple_of_an_older_sum_is_named(factor: int) -> None:
    watched = multiplying(factor, own=False)
    with pytest.raises(ProtocolError, match="a multiple of what was public before") as caught:
        watched.run.run(watched.ask)
    assert caught.value.culprit == THIRD
    assert "refresh/1" not in watched.sent


def test_what_remains_a_combination_of_rounds_is_opened() -> None:
    """NOT prevented, NOT detected: beside a fresh encryption a multiple looks like any reply. Of a
    promise it is epsilon of all rounds composed that holds against such an owner.
    """
    factor = 50
    watched = multiplying(factor, own=True)
    weights = watched.run.run(watched.ask).weights
    plan, shards = watched.run.plan, watched.run.shards
    x, y = (np.concatenate(part) for part in zip(*shards, strict=True))
    first = plan.rule.rates[0] * x.T @ (0.5 - y) / plan.num_rows
    assert np.abs(weights - (watched.run.twin() - factor * first)).max() < 1e-3
