"""A kernel that alone is asked for another c1 shows nothing of its key; toy ring, INSECURE.

The attack: for c1 = floor(Q3 / 3), a constant, h0 = c1 s - M shows a trit of s wherever the mask M
is below Q3 / 6: on the 2k coefficients of the subring, and by c1 X^t on all others. The driver of
one owner asks that, and reads every reply of the step.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from parties.kernel import serving
from parties.kernel.keys.key_share import KeyShare
from parties.kernel.keys.session import KeySession
from parties.kernel.model import session as model_session
from protocols.ckks import REFRESH_TOWERS
from protocols.ckks import residues as rns
from protocols.errors import ProtocolError
from protocols.exchange.messages import Body
from protocols.model.refresh import streams_of
from protocols.steps.locks import CHECK, WORDS, Lock, asked_for, word
from tests.support import exact, sessions
from tests.support.helpers import half_of
from tests.support.sessions import FIRST, VICTIM, N

STEP, PERIOD = "refresh/0", 16


def replies_where_one_is_asked_for_another() -> tuple[Any, dict[str, Body]]:
    """The run, and everybody's replies."""
    run = sessions.model_session(rows=40, features=20, features_per_ciphertext=2 * PERIOD)
    outgoing = sessions.run_until(run, STEP)
    low = half_of(run.parties[VICTIM]).context.primes[:REFRESH_TOWERS]
    third = math.prod(low) // 3
    c1 = np.array([[third % prime] * N for prime in low], np.uint64)
    asked = sessions.asked(run, outgoing[VICTIM])
    other = Body(asked.meta, (rns.pack(c1, low), *asked.blobs[1:]))
    outgoing[VICTIM] = sessions.request(run, VICTIM, STEP, other)
    sent = run.ask(STEP, outgoing)
    return run, {name: sessions.reply_of(run, name, sent[name]).body for name in run.parties}


def trits(run: Any, h0: rns.Residues) -> float:
    """Share of the victim's trits that an h0 shows: one third by chance."""
    half = half_of(run.parties[VICTIM])
    low = half.context.primes[:REFRESH_TOWERS]
    bare = slice(None, None, N // (2 * PERIOD))
    seen = [round(3 * value / math.prod(low)) for value in exact.whole(h0, low)[bare]]
    return float(np.mean(np.array(seen) == exact.secret(half.secret)[bare]))


def test_another_c1_shows_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    run, replies = replies_where_one_is_asked_for_another()
    low = half_of(run.parties[VICTIM]).context.primes[:REFRESH_TOWERS]
    h0 = rns.unpack(replies[VICTIM].blobs[0], low, N)
    assert trits(run, h0) < 0.8
    with pytest.raises(ProtocolError, match="was asked for another ciphertext"):
        streams_of(replies, 1, low, N)
    # Nor do the words that were given open it, whoever's they are taken to be.
    given = [bytes.fromhex(w) for r in replies.values() for w in r.meta[WORDS].values()]
    locks = [Lock.of([a, b]) for a in given for b in given]
    assert replies[VICTIM].meta[CHECK] not in {lock.check for lock in locks}

    # The attack works where words do not hold what was asked.
    monkeypatch.setattr(model_session, "asked_for", lambda *_: bytes(32))
    run, replies = replies_where_one_is_asked_for_another()
    names = [name for name in run.parties if name != VICTIM]
    key = Lock.of([bytes.fromhex(replies[name].meta[WORDS][VICTIM]) for name in names])
    (hidden,) = key.streams(1, low, N)
    h0 = rns.unpack(replies[VICTIM].blobs[0], low, N)
    assert trits(run, rns.subtract(h0, hidden, low)) == 1.0


def test_words_differ_by_all_that_was_asked() -> None:
    body = Body(blobs=(b"a", b"b"))
    asked = [
        asked_for(STEP, body, ()),
        asked_for("cover-refresh/0", body, ()),
        asked_for(STEP, Body(blobs=(b"b", b"a")), ()),
        asked_for(STEP, Body(blobs=(b"ab",)), ()),
        asked_for(STEP, body, (("c",), ("a", "b"))),
        asked_for(STEP, body, (("c",), ("a", "d"))),
    ]
    found = {word(s, n, a) for s in (b"1" * 32, b"2" * 32) for n in (FIRST, VICTIM) for a in asked}
    assert len(found) == 2 * 2 * len(asked)
    assert asked_for(STEP, body, (("c", "d"),)) == asked_for(STEP, body, (("d", "c"),))


@pytest.mark.parametrize("words", [None, {}, {VICTIM: "no"}, {VICTIM: 1}, []])
def test_words_that_are_none(words: Any) -> None:
    replies = {
        VICTIM: Body({WORDS: {FIRST: "00"}, CHECK: ""}),
        FIRST: Body({WORDS: words, CHECK: ""}),
    }
    with pytest.raises(ProtocolError):
        streams_of(replies, 1, (97,), 8)


def test_no_driver_has_a_share_that_is_neither_kept_nor_locked() -> None:
    """Of what a secret makes of others' numbers, a session's methods give none away at once."""
    bare = {"shares", "decryption_share", "relinearisation_second"}
    assert all(hasattr(KeySession, name) or hasattr(KeyShare, name) for name in bare)
    assert not bare & {name for methods in serving.METHODS.values() for name in methods}
