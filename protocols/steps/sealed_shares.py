"""Shares of a secret that parties deal one another, and who stands in for whom; see `cover`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from protocols.errors import MessageError, PolicyError
from protocols.exchange import Body
from protocols.exchange.signed_values import SIGNATURE_BYTES


@dataclass(frozen=True, slots=True)
class StandIn:
    """Who is missing, and which t parties stand in for them; both in the plan's order."""

    missing: tuple[str, ...]
    stand_ins: tuple[str, ...]

    def to_body(self, blobs: tuple[bytes, ...]) -> Body:
        """The request of a repeated step."""
        return Body({"missing": list(self.missing), "stand_ins": list(self.stand_ins)}, blobs)

    @classmethod
    def of(cls, names: Sequence[str], threshold: int, request: Body) -> StandIn:
        """Inverse of `to_body`; names: of all parties, in the plan's order.

        Raises:
            MessageError: no lists of members in the plan's order. PolicyError: not t stand-ins, or
                one of them is missing.
        """
        found = []
        for name in ("missing", "stand_ins"):
            listed = request.meta.get(name)
            if not isinstance(listed, list) or listed != [n for n in names if n in listed]:
                raise MessageError(f"{name}={listed!r} is no list of members in the plan's order")
            found.append(tuple(listed))
        missing, stand_ins = found
        if not missing or len(stand_ins) != threshold or set(missing) & set(stand_ins):
            raise PolicyError(
                f"{len(stand_ins)} parties stand in for {len(missing)}: the plan has cover="
                f"{threshold}, and nobody stands in for itself"
            )
        return cls(missing, stand_ins)


def binding(seed: bytes) -> bytes:
    """What keys and shares are bound to: the joint seed, which holds the plan, 32 bytes."""
    return hashlib.sha256(b"ciphercohort/cover/1\0" + seed).digest()


def others(names: Sequence[str], name: str) -> tuple[str, ...]:
    """All but one, in their order."""
    return tuple(other for other in names if other != name)


# -- what is signed -------------------------------------------------------------------------------


def cover_key_text(bound: bytes, name: str, key: str) -> bytes:
    """What a party signs of the key that seals its shares; bound: see `binding`."""
    return b"ciphercohort/cover-key/1\0" + bound + bytes.fromhex(key) + name.encode()


def address(bound: bytes, dealer: str, receiver: str) -> bytes:
    """What a sealed share is bound to: session, dealer, receiver."""
    return b"ciphercohort/cover-share/1\0" + bound + repr((dealer, receiver)).encode()


def sign_share(key: Ed25519PrivateKey, where: bytes, sealed: bytes) -> bytes:
    """A sealed share with its dealer's signature before it."""
    return key.sign(where + hashlib.sha256(sealed).digest()) + sealed


def signed_share(verify_key: str, where: bytes, data: bytes) -> bytes | None:
    """The sealed share, None if its dealer did not sign it for this address."""
    signature, sealed = data[:SIGNATURE_BYTES], data[SIGNATURE_BYTES:]
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(verify_key))
    try:
        key.verify(signature, where + hashlib.sha256(sealed).digest())
    except InvalidSignature:
        return None
    return sealed
