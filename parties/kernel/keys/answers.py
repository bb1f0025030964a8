"""What leaves of operations on what others chose: residues in, the message of a reply out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from protocols.ckks import residues as rns
from protocols.ckks.context import RingContext
from protocols.ckks.parameters import DECRYPTION_TOWERS, REFRESH_TOWERS
from protocols.errors import MessageError, PolicyError
from protocols.exchange.body import Body

# Shares that are made together: one reading for all, 7 MB each at ring 2^15.
_TOGETHER = 16
# Of an operation on residues, such as `KeyShare.refresh_shares`.
Operation = Callable[..., Any]


def refresh(
    context: RingContext,
    shares: Operation,
    maps: Sequence[Any],
    step: str,
    request: Body,
) -> Body:
    """Reply to `refresh/k`, or to the step that repeats it; maps: the plan's.

    Raises:
        MessageError: malformed residues. PolicyError: more ciphertexts than the plan has, or a
            share was already given.
    """
    if not request.blobs:
        raise MessageError("the step `refresh` carries at least one blob")
    if len(request.blobs) > len(maps):
        raise PolicyError("more ciphertexts to refresh than the plan has")
    low = context.primes[:REFRESH_TOWERS]
    asked = [
        (rns.unpack(blob, low, context.params.ring_dim), f"{step}/{k}", column_map)
        for k, (blob, column_map) in enumerate(zip(request.blobs, maps, strict=False))
    ]
    blobs: list[bytes] = []
    for start in range(0, len(asked), _TOGETHER):
        for h0, h1 in shares(asked[start : start + _TOGETHER]):
            blobs += [rns.pack(h0, low), rns.pack(h1, context.primes)]
    return Body(blobs=tuple(blobs))


def decryption(context: RingContext, share: Operation, step: str, request: Body) -> Body:
    """Reply to `decrypt`, or to the step that repeats it.

    Raises:
        MessageError: malformed residues. PolicyError: a share was already given.
    """
    if len(request.blobs) != 1:
        raise MessageError("the step `decrypt` carries exactly one blob")
    low = context.primes[:DECRYPTION_TOWERS]
    c1 = rns.unpack(request.blobs[0], low, context.params.ring_dim)
    return Body(blobs=(rns.pack(share(c1, step), low),))


def relinearisation(context: RingContext, second: Operation, request: Body, once: Any) -> Body:
    """Reply to `relinearise`; once: makes what is public once for all parties of a process.

    Raises:
        MessageError: the request holds no two well-formed sums.
    """
    if len(request.blobs) != 2:
        raise MessageError("the step `relinearise` carries exactly two blobs")
    primes, n = context.key_primes, context.params.ring_dim

    def make() -> list[rns.Residues]:
        return [rns.unpack(blob, primes, n) for blob in request.blobs]

    h0, h1 = once(context, "request", (request.digests, tuple(primes)), make)
    return Body(blobs=(rns.pack(second(h0, h1), primes),))
