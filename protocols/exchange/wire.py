"""Blobs of residues: packed on one side, checked and summed on the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.residues import Residues
from protocols.ckks.shared_keys import once
from protocols.errors import MessageError, ProtocolError
from protocols.exchange.messages import Body

# Raises where a party's blob, by its place in the reply, must not be added.
Check = Callable[[str, int, Residues], None]


def unpack_from(
    body: Body, position: int, primes: Sequence[int], ring_dim: int, sender: str
) -> Residues:
    """Blob `position` of a party's message as residues below their primes.

    Raises:
        ProtocolError: the blob is missing or malformed; names the sender.
    """
    if position >= len(body.blobs):
        raise ProtocolError(f"party {sender!r} sent too few blobs", culprit=sender)
    try:
        return rns.unpack(body.blobs[position], primes, ring_dim)
    except MessageError as error:
        raise ProtocolError(f"party {sender!r}: {error}", culprit=sender) from None


def residues_of(request: Body, context: CkksContext, primes: Sequence[int]) -> list[Residues]:
    """Every blob of a request as residues below these primes; parties of one process read it once.

    Raises:
        MessageError: a blob is malformed.
    """

    def make() -> list[Residues]:
        return [rns.unpack(blob, primes, context.params.ring_dim) for blob in request.blobs]

    return once(context, "request", (request.digests, tuple(primes)), make)


class RunningSums:
    """Sums over parties of the blobs of their replies; each reply is folded in, then let go.

    senders: parties, each counted once; primes: of every blob, in order; check: of every blob that
    is added. Sums are exact modulo each prime, so they do not depend on the order of arrival.
    """

    def __init__(
        self,
        senders: Sequence[str],
        primes: Sequence[Sequence[int]],
        ring_dim: int,
        check: Check | None = None,
    ) -> None:
        self._check = check
        self._waiting = dict.fromkeys(senders)
        self._primes, self._ring_dim, self._folded = primes, ring_dim, 0
        self._totals: list[Residues] = [
            np.zeros((len(each), ring_dim), np.uint64) for each in primes
        ]

    def fold(self, name: str, body: Body) -> Body:
        """Add one party's blobs; returns the reply without them.

        Raises:
            ProtocolError: too few or too many blobs, a malformed one, or this party is not waited
                for; names the sender.
        """
        if name not in self._waiting:
            raise ProtocolError(f"party {name!r} was not asked, or has replied", culprit=name)
        if len(body.blobs) != len(self._primes):
            sent = f"party {name!r} sent {len(body.blobs)} blobs"
            raise ProtocolError(f"{sent}, {len(self._primes)} are due", culprit=name)
        del self._waiting[name]
        self._folded += 1
        for position, (total, primes) in enumerate(zip(self._totals, self._primes, strict=True)):
            part = unpack_from(body, position, primes, self._ring_dim, name)
            if self._check:
                self._check(name, position, part)
            total += part
            # Residues are below 2^61: seven and a reduced sum stay below 2^64.
            if self._folded % 7 == 0:
                total %= np.array(primes, dtype=np.uint64)[:, None]
        return Body(body.meta)

    def of(self, replies: Mapping[str, Body]) -> list[Residues]:
        """The sums, once all replies are there; folds those that the driver did not.

        Raises:
            ProtocolError: a reply is missing or malformed; names the party.
        """
        for name in tuple(self._waiting):
            self.fold(name, reply_of(replies, name))
        for total, primes in zip(self._totals, self._primes, strict=True):
            total %= np.array(primes, dtype=np.uint64)[:, None]
        return self._totals


def reply_of(replies: Mapping[str, Body], name: str) -> Body:
    """One party's reply.

    Raises:
        ProtocolError: there is none; names the party.
    """
    if name not in replies:
        raise ProtocolError(f"no reply from party {name!r}", culprit=name)
    return replies[name]


def sum_blobs(
    replies: Mapping[str, Body],
    senders: Sequence[str],
    position: int,
    primes: Sequence[int],
    ring_dim: int,
) -> Residues:
    """Sum over parties of one blob of their replies, all of which are there.

    Raises:
        ProtocolError: a reply is missing or malformed; names the party.
    """
    only = {name: Body(blobs=body.blobs[position : position + 1]) for name, body in replies.items()}
    return RunningSums(senders, [primes], ring_dim).of(only)[0]
