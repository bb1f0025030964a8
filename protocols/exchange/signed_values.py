"""Short values that parties exchange through the coordinator, each signed by its party.

Ephemeral X25519 keys, digests of messages that are opened later, what all agree on before any seed
is shown.

Security: each party signs its value with its identity key, over a text that names the purpose, the
session and the party. A coordinator that puts in its own value, or an old one, is detected by
everyone who checks before it uses a value.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from protocols.errors import MessageError, ProtocolError
from protocols.exchange import Body

VALUE_BYTES = 32
SIGNATURE_BYTES = 64
SEED_BYTES = 32
SIGNED = b"ciphercohort/sheets/1\0"
"""How a text begins that a party signs to agree: it signs no other one that does."""
# What a party signs, by its name and value.
SignedText = Callable[[str, str], bytes]


@dataclass(frozen=True, slots=True)
class SignedValue:
    """value: 32 bytes; signature: of its party, Ed25519; both in lower-case hexadecimal."""

    value: str
    signature: str

    @classmethod
    def by(cls, key: Ed25519PrivateKey, text: SignedText, name: str, value: str) -> SignedValue:
        """A party's value with its signature."""
        return cls(value, key.sign(text(name, value)).hex())

    @classmethod
    def of(cls, fields: Any) -> SignedValue:
        """From JSON. Raises MessageError: it is no signed value."""
        if not isinstance(fields, dict) or fields.keys() != {"value", "signature"}:
            raise MessageError("not a value with its signature")
        if not all(isinstance(text, str) for text in fields.values()):
            raise MessageError("a value and its signature are texts")
        return cls(**fields)

    def to_body(self) -> Body:
        """A party's reply."""
        return Body(asdict(self))


def check(
    kind: str, text: SignedText, roster: Mapping[str, str], values: Mapping[str, SignedValue]
) -> None:
    """Refuse values that are not those of exactly this roster.

    kind: of value, for the words of errors; roster: Ed25519 verification keys (hexadecimal) by
    party, from the plan.

    Raises:
        ProtocolError: a value is missing, left over or not signed by its owner's identity
            key for this session.
    """
    if values.keys() != roster.keys():
        raise ProtocolError(f"{kind}s: not exactly one for each party of the plan")
    for name, entry in values.items():
        try:
            # One spelling only, so that equal values and signatures are equal texts.
            for told, size in ((entry.value, VALUE_BYTES), (entry.signature, SIGNATURE_BYTES)):
                found = bytes.fromhex(told)
                if len(found) != size or found.hex() != told:
                    raise ValueError(told)
            _verify(roster[name], entry.signature, text(name, entry.value))
        except (InvalidSignature, ValueError):
            raise ProtocolError(
                f"the {kind} of party {name!r} is not signed by its identity key for this "
                "session: it was exchanged on the way; do not go on with this coordinator",
                culprit=name,
            ) from None


def of_request(request: Body) -> dict[str, SignedValue]:
    """Of everyone, as a request hands them out (`signed_messages.to_request`).

    Raises:
        MessageError: no values, or malformed ones.
    """
    signed = request.meta.get("signed")
    if not isinstance(signed, dict):
        raise MessageError("the step hands out no signed values")
    return {str(name): SignedValue.of(fields) for name, fields in signed.items()}


# -- of ephemeral keys ----------------------------------------------------------------------------


def pad_key_text(seed: bytes, name: str, key: str) -> bytes:
    """What a party signs of the key of its pads; seed: the joint one, which holds the plan."""
    return b"ciphercohort/pad-key/1\0" + seed + bytes.fromhex(key) + name.encode()


# -- of messages that are committed to ------------------------------------------------------------


def digest_of(blobs: Sequence[str]) -> str:
    """Digest of a message from the digests of its blobs; all hexadecimal."""
    text = b"ciphercohort/message-digest/1\0" + json.dumps(list(blobs)).encode()
    return hashlib.sha256(text).hexdigest()


def committed_text(kind: str, step: str, bound: bytes, name: str, value: str) -> bytes:
    """What a party signs of a digest; step: in which the message opens; bound: joint seed, view."""
    purpose = f"ciphercohort/{kind}/1\0{step}\0".encode()
    return purpose + bound + bytes.fromhex(value) + name.encode()


# Parties of one process check the same values, one after the other.
@lru_cache(maxsize=1024)
def _verify(key: str, signature: str, text: bytes) -> None:
    """Raises InvalidSignature, ValueError: which are not remembered."""
    Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), text)


# -- what all parties of a run sign, and the seed that nobody chose alone -------------------------


def new_seed() -> bytes:
    """A party's part of the joint seed, from the operating system's generator."""
    return secrets.token_bytes(SEED_BYTES)


def commitment(seed: bytes) -> str:
    """Binding and hiding for a uniform 32-byte seed (SHA-256, hexadecimal)."""
    return hashlib.sha256(b"ciphercohort/seed/1\0" + seed).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Of one run, signed before any seed is shown.

    Security: what is signed holds the plan, the sheets that each party derived from it (what a run
    asks for, in numbers), with session and keys of all in them, and everybody's commitment to a
    seed. A party shows its seed once all have signed the same. So the joint seed, and with it every
    public random element of the run, is uniform if one party is honest, and the sheets are the
    plan's if one party derived them truly.

    session: its name; plan: digest; sheets: digests; roster: Ed25519 verification keys by party, in
    the plan's order; commitments: to seeds, by party; all but the first in hexadecimal.
    """

    session: str
    plan: str
    sheets: Sequence[str]
    roster: Mapping[str, str]
    commitments: Mapping[str, str]

    @property
    def digest(self) -> str:
        """SHA-256 of all of it, hexadecimal; sheets hold the keys."""
        committed = [[name, self.commitments[name]] for name in self.roster]
        told = json.dumps([self.session, self.plan, [*self.sheets], committed])
        return hashlib.sha256(b"ciphercohort/agreement/1\0" + told.encode()).hexdigest()

    @staticmethod
    def text(name: str, digest: str) -> bytes:
        """What a party signs."""
        return SIGNED + bytes.fromhex(digest) + name.encode()

    def check(self, signatures: Mapping[str, str]) -> None:
        """Refuse signatures, in hexadecimal, that are not one of each party, of exactly this.

        Raises:
            ProtocolError: names the party whose is not.
        """
        values = {name: SignedValue(self.digest, each) for name, each in signatures.items()}
        try:
            check("agreement", self.text, self.roster, values)
        except ProtocolError as error:
            if error.culprit is None:
                raise
            raise ProtocolError(
                f"party {error.culprit!r} has not signed this plan, these sheets and these "
                "commitments: the parties were told different things, or have different versions; "
                "do not go on with this coordinator before you know which",
                error.culprit,
            ) from None

    def joint_seed(self, seeds: Mapping[str, str]) -> bytes:
        """SHA-256 over the agreement and all seeds in the roster's order, 32 bytes.

        seeds: by party, hexadecimal.

        Raises:
            ProtocolError: a seed is missing or does not open its commitment; names the party.
        """
        parts = [b"ciphercohort/joint-seed/2\0", bytes.fromhex(self.digest)]
        for name in self.roster:
            try:
                seed = bytes.fromhex(seeds[name])
            except (KeyError, ValueError, TypeError):
                raise ProtocolError(f"no valid seed from party {name!r}", culprit=name) from None
            if len(seed) != SEED_BYTES or commitment(seed) != self.commitments[name]:
                raise ProtocolError(
                    f"the seed of party {name!r} does not open its commitment", culprit=name
                )
            parts.append(seed)
        return hashlib.sha256(b"".join(parts)).digest()
