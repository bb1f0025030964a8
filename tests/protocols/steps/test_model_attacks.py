"""Attacks on an encrypted model: what one reply, or a reply that is not its party's, shows.

Each attack is tried on the protocol, where it fails, and on a mutant without the part that stops
it, where it works. Toy rings (INSECURE); whoever attacks here holds all key shares.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from scipy.stats import kstest

from parties.kernel.model.clear_rows import ClearRows
from parties.kernel.model.pads import Pads
from parties.kernel.model.session import ModelSession
from parties.kernel.private import closed
from protocols.ckks import REFRESH_TOWERS, subring
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.factored import Link
from protocols.ckks.sampling import mask_bits
from protocols.ckks.subring import TraceMap
from protocols.errors import PolicyError, ProtocolError
from protocols.exchange.messages import Body
from protocols.model.counts import columns_of
from protocols.steps.commitments import Gathering
from tests.support import exact
from tests.support.helpers import Floats, Session, half_of, party_names
from tests.support.joint import joint_keys
from tests.support.masked import trace_shares
from tests.support.sessions import (
    FIRST,
    THIRD,
    VICTIM,
    N,
    Replies,
    asked,
    deliver,
    model_session,
    question,
    refusal,
    reply_of,
    request,
    resigned,
    run_until,
)

Patch = pytest.MonkeyPatch
UNLIKELY = 1e-7
PERIOD = 4  # 2k = 8 coefficients of the subring


def constant_rows(value: float = 0.5) -> list[tuple[Floats, Floats]]:
    """All rows of a party the same: nothing but what hides them is random."""
    x = np.full((40, 5), value)
    x[:, -1] = 1.0
    return [(x, np.ones(40)) for _ in range(3)]


def session(value: float = 0.5) -> Session:
    """One part of eight features; rows of one party in a single group."""
    made = model_session(rows=40, features=5, features_per_ciphertext=2 * PERIOD)
    for party, (x, y) in zip(made.parties.values(), constant_rows(value), strict=True):
        party.run.rows = closed(replace(party.run.rows._value, x=x, y=y))
    made.shards[:] = constant_rows(value)
    return made


@dataclass
class Opened:
    """Replies to `gradient/1`, opened by all key holders, and what they were asked.

    replies: (c0, c1) by party; values: coefficients modulo the refresh's primes, centred.
    """

    session: Session
    primes: tuple[int, ...]
    secret: Any
    point: list[rns.Residues]
    elements: list[rns.Residues]
    replies: dict[str, list[rns.Residues]]
    guesses: dict[float, rns.Residues]

    def of(self, *names: str) -> Any:
        """Coefficients of the sum of some parties' replies."""
        low, key = self.primes, self.secret
        total = [np.zeros((len(low), N), np.uint64)] * 2
        for name in names:
            total = [rns.add(a, b, low) for a, b in zip(total, self.replies[name], strict=True)]
        return exact.whole(rns.add(total[0], rns.product(total[1], key, low), low), low)

    @property
    def modulus(self) -> int:
        return math.prod(self.primes)


def known_zeros(session: Any) -> Any:
    """The encryptions of zero that a party adds to its groups of rows, as if all knew them."""
    context = session._loaded
    nothing = np.zeros((context.params.num_towers, N), np.uint64)
    return tuple(context.products([[nothing] * 2] * 2))


@patch.object(ModelSession, "_zeros", known_zeros)
def opened() -> Opened:
    """Stop a run after `gradient/1`, with every party's secret at hand."""
    run = session()
    outgoing = run_until(run, "gradient/1")
    half = half_of(run.parties[VICTIM])
    context: CkksContext = half.context
    low = context.primes[:REFRESH_TOWERS]
    blobs = question(run, "gradient/1", VICTIM).blobs
    point = [rns.unpack(blob, context.primes, N) for blob in blobs]
    elements = [context.uniform_polynomial(half.seed, name) for name in half.elements]
    secret = sum(exact.secret(half_of(p).secret) for p in run.parties.values())
    replies = {
        name: [rns.unpack(b, low, N) for b in reply_of(run, name, data).body.blobs]
        for name, data in run.ask("gradient/1", outgoing).items()
    }
    pair = [[point[0], elements[0]]]
    guesses = {}
    for value in (0.5, 0.25):
        ((x, y), *_) = constant_rows(value)
        units, (x, _) = half.plan.units, half.plan.encode(x, y)
        columns, link = columns_of(half.plan.layout), Link.of(units.link.coefficients)
        own = half.session
        args = (own._loaded, columns, link, x, known_zeros(own), 0)
        rows = ClearRows(*args, scale=units.row_scale)
        guesses[value] = rows.gradient(rows.rotated(pair))[0][1]
    key = np.array([exact.evaluations(secret, q) for q in low], np.uint64)
    return Opened(run, low, key, point, elements, replies, guesses)


def is_uniform(values: Any, modulus: int) -> bool:
    """Whether centred values look it."""
    shares = np.array([float(v / modulus) for v in values])
    return bool(kstest(shares, "uniform", (-0.5, 1)).pvalue > UNLIKELY)


def inner(values: Any) -> Any:
    """Coefficients of the subring."""
    return values[:: N // (2 * PERIOD)]


def outer(values: Any) -> Any:
    """All others."""
    return np.delete(values, np.arange(0, N, N // (2 * PERIOD)))


# -- what one reply shows --------------------------------------------------------------------------


def rows_are_hidden() -> bool:
    """Outside of the subring: of one reply, and of the sum of all."""
    found = opened()
    return all(
        is_uniform(outer(found.of(*names)), found.modulus) for names in ((VICTIM,), party_names(3))
    )


def sums_are_hidden() -> bool:
    """Pads: sums over columns of one reply, and of two."""
    found = opened()
    seen = [v for names in ((VICTIM,), (FIRST, VICTIM)) for v in inner(found.of(*names))]
    return is_uniform(seen, found.modulus) and max(map(abs, seen)) > found.modulus >> 5


def rows_are_not_in_c1() -> bool:
    """The fresh encryption: c1 alone, against what guessed rows would make of the point."""
    found = opened()
    low = found.primes
    for guess in found.guesses.values():
        left = rns.subtract(found.replies[VICTIM][1], guess[: len(low)], low)
        if not is_uniform(exact.whole(left, low), found.modulus):
            return False
    return True


def nothing_outside(patch: Patch) -> None:
    def outside(primes: Any, ring_dim: int, period: int, stream: Any) -> rns.Residues:
        return np.zeros((len(primes), ring_dim), np.uint64)

    patch.setattr(subring, "outside", outside)


def no_pads(patch: Patch) -> None:
    def pad(self: Any, label: str, primes: Any, count: int, missing: Any = ()) -> rns.Residues:
        return np.zeros((len(primes), count), np.uint64)

    patch.setattr(Pads, "pad", pad)


def no_fresh_encryption(patch: Patch) -> None:
    """Sums as they are computed, with zeros for nothing."""
    from parties.kernel.keys.key_share import KeyShare

    def onto(self: Any, key: Any, sums: Any, *_: Any) -> list[list[rns.Residues]]:
        return [list(total) for total in sums]

    patch.setattr(KeyShare, "encrypt_onto", onto)


CHECKS = (
    (rows_are_hidden, nothing_outside),
    (sums_are_hidden, no_pads),
    (rows_are_not_in_c1, no_fresh_encryption),
)


@pytest.mark.parametrize(("check", "mutant"), CHECKS, ids=lambda each: each.__name__)
def test_a_reply_shows_nothing(
    check: Callable[[], bool], mutant: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    """To all key holders together; without the part that hides it, it does."""
    assert check()
    mutant(monkeypatch)
    assert not check(), f"{check.__name__} does not notice {mutant.__name__}"


def test_pads_cancel_in_the_sum_of_all_alone() -> None:
    """The coordinator that leaves out a reply has noise; with all it has small sums."""
    found = opened()
    assert max(map(abs, inner(found.of(*party_names(3))))) < 1 << 70
    for two in ((FIRST, VICTIM), (FIRST, THIRD), (VICTIM, THIRD)):
        assert max(map(abs, inner(found.of(*two)))) > found.modulus >> 8


def test_every_label_has_pads_of_its_own_that_cancel() -> None:
    """Under one pad, the difference of two replies would be that of their sums."""
    run = model_session()
    run_until(run, "gradient/0")
    halves = [half_of(party) for party in run.parties.values()]
    low = halves[0].context.primes[:REFRESH_TOWERS]
    labels = [f"gradient/{t}/{part}" for t in range(2) for part in range(2)]
    drawn = np.array(
        [[half.session._pads.pad(label, low, 8) for label in labels] for half in halves]
    )
    assert len(np.unique(drawn)) == drawn.size
    assert not (drawn.astype(object).sum(axis=0) % np.array(low, object)[:, None]).any()


# -- an owner that deviates ------------------------------------------------------------------------


def multiple(run: Session, body: Body, factor: int) -> tuple[bytes, ...]:
    """Blobs of a reply, times a factor."""
    primes = half_of(run.parties[VICTIM]).context.primes[:REFRESH_TOWERS]
    factors = [factor % q for q in primes]
    rows = (rns.unpack(blob, primes, N) for blob in body.blobs)
    return tuple(rns.pack(rns.scale(each, factors, primes), primes) for each in rows)


@pytest.mark.parametrize("factor", [1, -1, 1 << 90])
def test_a_copy_or_a_multiple_of_anothers_reply_is_named(factor: int) -> None:
    """It was to be fixed before FIRST's was seen."""
    run = session()

    def swapped(step: str, replies: Replies) -> Replies:
        if step != "gradient/1":
            return replies
        blobs = multiple(run, reply_of(run, FIRST, replies[FIRST]).body, factor)
        own = reply_of(run, VICTIM, replies[VICTIM]).body
        return replies | {VICTIM: resigned(run, replies[VICTIM], body=Body(own.meta, blobs))}

    with pytest.raises(ProtocolError, match="opened other .* than it committed to") as caught:
        run.run(deliver(run, swapped))
    assert caught.value.culprit == VICTIM


def added_twice(monkeypatch: Patch, run: Session, factor: int) -> None:
    """A coordinator that adds a multiple of FIRST's gradient in the place of VICTIM's."""
    honest, stolen = Gathering.take, list[Body]()

    def take(self: Gathering, name: str, body: Body) -> Body:
        fold = self._fold

        def other(name: str, body: Body) -> Body:
            if name == FIRST:
                stolen[:] = [body]
            elif name == VICTIM:
                body = Body(body.meta, multiple(run, stolen[0], factor))
            return fold(name, body)

        if self._terms.step.startswith("gradient"):
            self._fold = other
        try:
            return honest(self, name, body)
        finally:
            self._fold = fold

    monkeypatch.setattr(Gathering, "take", take)


@pytest.mark.parametrize("factor", [1, -1, 1 << 90])
def test_a_coordinator_that_adds_a_multiple_opens_nothing(factor: int, monkeypatch: Patch) -> None:
    """FIRST's pads are in the sum twice: what is decrypted is uniform."""
    run = session()
    added_twice(monkeypatch, run, factor)
    with pytest.raises(ProtocolError, match="do not fit together"):
        run.run()


def test_without_pads_a_multiple_is_read(monkeypatch: Patch) -> None:
    """The mutant: a copy goes through, and the model has FIRST's gradient twice."""
    no_pads(monkeypatch)
    run = session()
    added_twice(monkeypatch, run, 1)
    found = run.run()
    assert np.isfinite(found.weights).all() and np.abs(found.weights).max() > 1e-3


# -- a coordinator that deviates -------------------------------------------------------------------


@pytest.mark.parametrize("swap", ["another's", "own", "changed", "left out"])
def test_exchanged_pad_keys_are_refused(swap: str) -> None:
    """Each is signed by its party for this session."""
    run = model_session()
    outgoing = run_until(run, "agree-pads")
    sent = dict(asked(run, outgoing[VICTIM]).meta)
    (field,) = [name for name, value in sent.items() if isinstance(value, Mapping)]
    keys = {name: copy.copy(value) for name, value in sent[field].items()}
    if swap == "another's":
        keys[FIRST] = keys[THIRD]
    elif swap == "own":
        keys[VICTIM] = keys[FIRST]
    elif swap == "left out":
        del keys[FIRST]
    else:
        first = keys[FIRST]
        at: Any = 0 if isinstance(first, list) else next(iter(first))
        old = first[at]
        first[at] = ("00" if old[:2] != "00" else "01") + old[2:]
    body = Body({**sent, field: keys})
    assert "pad key" in refusal(run, VICTIM, request(run, VICTIM, "agree-pads", body))
    with pytest.raises(PolicyError, match="no pads are agreed yet"):
        half_of(run.parties[VICTIM]).session._pads.pad("gradient/0/0", (97,), 2)


def test_a_round_is_asked_once() -> None:
    """Another point for the same round, and an earlier round's: refused."""
    run = session()
    outgoing = run_until(run, "gradient/1")
    run.ask("gradient/1", outgoing)
    sent = question(run, "gradient/1", VICTIM)
    shifted = bytes([sent.blobs[0][0] ^ 1]) + sent.blobs[0][1:]
    for step, blobs in (
        ("commit-gradient/1", (shifted, *sent.blobs[1:])),
        ("commit-gradient/0", ()),
        ("commit-gradient/2", sent.blobs),
        ("cover-commit-gradient/1", sent.blobs),
    ):
        words = refusal(run, VICTIM, request(run, VICTIM, step, Body(blobs=blobs)))
        assert "out of order" in words


def test_replies_to_another_point_and_under_other_keys_are_as_uniform() -> None:
    """A party cannot tell; what it fixes opens no more than a true reply does."""
    for step, at in (("commit-gradient/1", 0), ("evaluation-keys/0", 1)):
        run = session()
        for name, data in run_until(run, step).items():
            body = asked(run, data)
            context = half_of(run.parties[name]).context
            primes = context.key_primes if at else context.primes
            chosen = rns.uniform(b"chosen", step, primes, N)
            blobs = (*body.blobs[:at], rns.pack(chosen, primes), *body.blobs[at + 1 :])
            other = request(run, name, step, Body(body.meta, blobs))
            if name == VICTIM:
                other_reply = run.parties[name].handle(other)
                assert "error" not in reply_of(run, name, other_reply).body.meta
        if not at:
            half = half_of(run.parties[VICTIM])
            low = half.context.primes[:REFRESH_TOWERS]
            rows = [rns.unpack(b, low, N) for b in half.rounds._last._message.blobs]
            secret = sum(exact.secret(half_of(p).secret) for p in run.parties.values())
            key = np.array([exact.evaluations(secret, q) for q in low], np.uint64)
            values = exact.whole(rns.add(rows[0], rns.product(rows[1], key, low), low), low)
            assert is_uniform(values, math.prod(low))


# -- a refresh of more than there is room for ------------------------------------------------------


def columns_are_hidden(bits: int) -> bool:
    """What all shares but one mask show of a message of so many bits."""
    keys = joint_keys(3, 6, N)
    keys.forget()
    context = keys.context
    low, rng = context.primes[:REFRESH_TOWERS], np.random.default_rng(bits)
    c1 = context.uniform_polynomial(keys.seed, f"c1 {bits}")[: len(low)]
    message = np.full(N, (1 << bits) + int(rng.integers(1 << 20)), object)
    c0 = np.array([exact.evaluations(message % q, q) for q in low], np.uint64)
    for share in keys.secrets.values():
        c0 = rns.subtract(c0, rns.product(c1, share[: len(low)], low), low)
    # m - M of one honest party: the others' shares are opened by themselves.
    seen = c0
    for name, share in keys.shares.items():
        if name == VICTIM:
            ((h0, _),) = trace_shares(share, [(c1, "refresh/0/0", TraceMap(N // 8, PERIOD, 1.0))])
        else:
            h0 = rns.product(c1, keys.secrets[name][: len(low)], low)
        seen = rns.add(seen, h0, low)
    values = exact.whole(seen, low)
    assert max(map(abs, values)) < math.prod(low)
    return is_uniform(outer(values), math.prod(low))


@pytest.mark.parametrize("bits", [20, 120, 170])
def test_rows_are_not_seen_through_a_mask_that_overflows(bits: int, monkeypatch: Patch) -> None:
    """Coefficients beyond a sum over columns are masked modulo the primes, whatever they are."""
    assert columns_are_hidden(bits)
    nothing_outside(monkeypatch)
    assert not columns_are_hidden(bits)


def test_sums_are_masked_in_the_whole_room() -> None:
    """Of the 2k others, one refresh shows log2(2P) bits at most: masks take 2^k of Q3 values."""
    keys = joint_keys(3, 6, N)
    low = keys.context.primes[:REFRESH_TOWERS]
    assert math.prod(low) >> mask_bits(low, 3) < 2 * 3
