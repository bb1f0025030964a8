"""Sums of replies that are folded one at a time. INSECURE toy ring in the runs."""

from __future__ import annotations

from itertools import islice, permutations
from typing import Any

import numpy as np
import pytest

from protocols.ckks import CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.errors import MessageError, ProtocolError
from protocols.exchange.messages import Body
from protocols.exchange.wire import RunningSums, residues_of

PRIMES, N = (97, (1 << 61) - 1), 8
NAMES = tuple("abcdefghij")


def body_of(name: str) -> Body:
    """Two blobs near the largest residues, where sums overflow 64 bits if they are not reduced."""
    rng = np.random.default_rng(NAMES.index(name))
    rows = np.array([[p - 1 - rng.integers(0, 5) for _ in range(N)] for p in PRIMES], np.uint64)
    return Body({"of": name}, (rns.pack(rows, PRIMES), rns.pack(rows[:1], PRIMES[:1])))


def expected() -> list[list[list[int]]]:
    rows = [rns.unpack(body_of(name).blobs[0], PRIMES, N).astype(object) for name in NAMES]
    total = (sum(rows) % np.array(PRIMES, dtype=object)[:, None]).tolist()
    return [total, total[:1]]


def sums() -> RunningSums:
    return RunningSums(NAMES, [PRIMES, PRIMES[:1]], N)


@pytest.mark.parametrize("folded", [0, 4, 10])
@pytest.mark.parametrize("order", [NAMES, NAMES[::-1], *islice(permutations(NAMES), 1, 3)])
def test_any_order_and_any_driver_give_the_exact_sum(order: Any, folded: int) -> None:
    """Replies folded as they arrive, or handed over whole at the end, or some of each."""
    running, replies = sums(), {name: body_of(name) for name in order}
    for name in order[:folded]:
        replies[name] = running.fold(name, replies[name])
        assert replies[name] == Body({"of": name})  # what is kept holds no blob
    assert [total.tolist() for total in running.of(replies)] == expected()


def test_nobody_is_counted_twice_or_not_at_all() -> None:
    running = sums()
    running.fold("a", body_of("a"))
    for name in ("a", "stranger"):
        with pytest.raises(ProtocolError, match="was not asked, or has replied") as caught:
            running.fold(name, body_of("a"))
        assert caught.value.culprit == name
    with pytest.raises(ProtocolError, match="no reply from party 'b'") as caught:
        running.of({"c": body_of("c")})
    assert caught.value.culprit == "b"


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_or_too_many_blobs_name_the_sender(count: int) -> None:
    blobs = (*body_of("a").blobs, b"")[:count]
    with pytest.raises(ProtocolError, match=f"sent {count} blobs, 2 are due") as caught:
        sums().fold("a", Body(blobs=blobs))
    assert caught.value.culprit == "a"


def test_parties_of_one_process_read_a_request_once() -> None:
    """The same bytes are the same arrays; other bytes, and other primes, are read anew."""
    params = CkksParameters(ring_dim=512, depth=4, security_bits=0)
    mine, other = CkksContext(params, "mine"), CkksContext(params, "other")
    low = mine.primes[:2]
    rows = np.array([[prime - 1] * 512 for prime in low], np.uint64)
    request = Body(blobs=(rns.pack(rows, low),))
    copy = Body({"to": "another"}, (bytes(bytearray(request.blobs[0])),))
    (found,) = residues_of(request, mine, low)
    assert (found == rows).all()
    assert residues_of(copy, mine, low)[0] is found
    assert residues_of(copy, other, low)[0] is not found
    changed = Body(blobs=(rns.pack(rows - np.uint64(1), low),))
    assert (residues_of(changed, mine, low)[0] == rows - 1).all()
    with pytest.raises(MessageError):
        residues_of(request, mine, mine.primes[:3])
    with pytest.raises(MessageError, match="not below its prime"):
        residues_of(request, mine, tuple(sorted(prime - 1 for prime in low)))
