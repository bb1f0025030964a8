"""Blobs of residues: packed on one side, checked and summed on the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from protocols.ckks import residues as rns
from protocols.ckks.residues import Residues
from protocols.errors import MessageError, ProtocolError
from protocols.messages import Body


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


def sum_blobs(
    replies: Mapping[str, Body],
    senders: Sequence[str],
    position: int,
    primes: Sequence[int],
    ring_dim: int,
) -> Residues:
    """Sum over parties of one blob of their replies.

    Raises:
        ProtocolError: a reply is missing or malformed; names the party.
    """
    total = np.zeros((len(primes), ring_dim), np.uint64)
    modulus = np.array(primes, dtype=np.uint64)[:, None]
    for count, name in enumerate(senders, start=1):
        if name not in replies:
            raise ProtocolError(f"no reply from party {name!r}", culprit=name)
        total += unpack_from(replies[name], position, primes, ring_dim, name)
        # Residues are below 2^61: seven and a reduced sum stay below 2^64.
        if count % 7 == 0:
            total %= modulus
    total %= modulus
    return total
