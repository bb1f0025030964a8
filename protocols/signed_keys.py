"""Ephemeral X25519 keys that parties exchange through the coordinator, signed for one session.

Security: each party signs its key with its identity key, over a text that names the purpose, the
session and the party. A coordinator that puts in its own key, or an old one, is detected by
everyone who checks before it uses a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from protocols.errors import MessageError, ProtocolError
from protocols.fields import from_fields
from protocols.messages import Body

KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class SignedKey:
    """key: ephemeral X25519 public key; signature: of its party, Ed25519; both hexadecimal."""

    key: str
    signature: str

    def to_body(self) -> Body:
        """A party's reply."""
        return Body(asdict(self))


def replied(replies: Mapping[str, Body]) -> dict[str, SignedKey]:
    """The keys of all replies, by party.

    Raises:
        ProtocolError: a reply holds no key; names its party.
    """
    keys = {}
    for name, reply in replies.items():
        try:
            keys[name] = from_fields(SignedKey, dict(reply.meta))
        except MessageError as error:
            raise ProtocolError(f"party {name!r}: {error}", culprit=name) from None
    return keys


def to_request(keys: Mapping[str, SignedKey]) -> Body:
    """Everyone's keys, for everyone."""
    return Body({"keys": {name: asdict(key) for name, key in keys.items()}})


def of_request(request: Body) -> dict[str, SignedKey]:
    """Inverse of `to_request`.

    Raises:
        MessageError: no keys, or malformed ones.
    """
    listed = request.meta.get("keys")
    if not isinstance(listed, dict):
        raise MessageError("the step carries no keys")
    return {str(name): from_fields(SignedKey, entry) for name, entry in listed.items()}


def check(
    kind: str,
    text: Callable[[str, str], bytes],
    roster: Mapping[str, str],
    keys: Mapping[str, SignedKey],
) -> None:
    """Refuse keys that are not those of exactly this roster.

    kind: of key, for the words of errors; text: what a party signs, by its name and key; roster:
    Ed25519 verification keys (hexadecimal) by party, from the plan.

    Raises:
        ProtocolError: a key is missing, left over or not signed by its owner's identity
            key for this session.
    """
    if keys.keys() != roster.keys():
        raise ProtocolError(f"{kind} keys: not exactly one for each party of the plan")
    for name, entry in keys.items():
        try:
            if len(bytes.fromhex(entry.key)) != KEY_BYTES:
                raise ValueError(entry.key)
            identity = Ed25519PublicKey.from_public_bytes(bytes.fromhex(roster[name]))
            identity.verify(bytes.fromhex(entry.signature), text(name, entry.key))
        except (InvalidSignature, ValueError):
            raise ProtocolError(
                f"the {kind} key of party {name!r} is not signed by its identity key for this "
                "session: it was exchanged on the way; do not go on with this coordinator",
                culprit=name,
            ) from None
