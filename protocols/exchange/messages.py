"""Messages: one frame, one signature, and what a protocol step yields to be sent.

Frame: magic | header length (4 bytes) | header (JSON) | Ed25519 signature (64 bytes) | blobs.
The header holds length and SHA-256 of each blob, so the signature covers everything, and a blob
for many parties is hashed once. Order of checks on arrival: size cap, signature, header, hashes of
the blobs; what they hold is checked by the step that reads them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from protocols.errors import MessageError
from protocols.exchange import Body as Body
from protocols.exchange.serialise import parse
from protocols.exchange.signed_values import SIGNATURE_BYTES as SIGNATURE_BYTES

MAGIC = b"CPHC\x02"
# A plan with the tables of a Cox model of 100,000 values: a megabyte of text.
MAX_HEADER_BYTES = 1 << 21
_PREFIX = len(MAGIC) + 4
_DOMAIN = b"ciphercohort/message/1\0"
# Largest message of a run at 128 bits: a few evaluation keys.
DEFAULT_SIZE_CAP = 1 << 29
# Head of a party that was asked nothing.
UNHEARD = "00" * 32

T = TypeVar("T")


# Takes one party's reply, in whatever order they arrive; returns what is kept until all are there.
Fold = Callable[[str, Body], Body]


@dataclass(frozen=True, slots=True)
class Ask:
    """What a coordinator step yields: one step, one body for each party that it needs.

    fold: takes each reply as it arrives, so that a driver need not hold them all; one that does not
    call it sends the replies back whole (see `wire.RunningSums`). lossy: where parties are lost,
    the driver sends back the replies that it has; otherwise it raises. meanwhile: work that needs
    no reply, for a driver to do while parties are at theirs; one that does not leaves it for later.
    """

    step: str
    bodies: Mapping[str, Body]
    fold: Fold | None = None
    lossy: bool = False
    meanwhile: Callable[[], object] | None = None


# A coordinator step: yields requests, receives the replies by party, returns its result.
Exchange = Generator[Ask, Mapping[str, Body], T]


@dataclass(frozen=True, slots=True)
class Envelope:
    """A body with its address.

    session: identifies the run; step: e.g. "refresh/3"; answers: SHA-256 (hex) of the request that
    this message answers, empty in a request; seen: the head (`heard`) of all requests that its
    sender has processed, this one included, empty in a request and outside a session.
    """

    session: str
    step: str
    sender: str
    recipient: str
    body: Body
    answers: str = ""
    seen: str = ""


def to_everyone(step: str, parties: tuple[str, ...], body: Body, fold: Fold | None = None) -> Ask:
    """The same body for every party; fold: see `Ask`."""
    return Ask(step, dict.fromkeys(parties, body), fold)


def new_signing_key() -> Ed25519PrivateKey:
    """A fresh identity key from the operating system's generator."""
    return Ed25519PrivateKey.generate()


def public_bytes(key: Ed25519PrivateKey | Ed25519PublicKey) -> str:
    """Verification key as 64 hexadecimal digits."""
    public = key if isinstance(key, Ed25519PublicKey) else key.public_key()
    return public.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def encode(envelope: Envelope, key: Ed25519PrivateKey) -> bytes:
    """Signed wire form."""
    return whole(signed_head(envelope, key), envelope.body)


def whole(head: bytes, body: Body) -> bytes:
    """A message of its signed part and signature, and of the blobs that follow."""
    return b"".join([head, *body.blobs])


def signed_head(envelope: Envelope, key: Ed25519PrivateKey) -> bytes:
    """All of a message but its blobs."""
    signed = signed_part(envelope)
    return signed + key.sign(_DOMAIN + signed)


def signed_part(envelope: Envelope) -> bytes:
    """What its sender signs, of which `digest` is: what a message is, whoever has the key."""
    header = json.dumps(
        {
            "session": envelope.session,
            "step": envelope.step,
            "sender": envelope.sender,
            "recipient": envelope.recipient,
            "answers": envelope.answers,
            "seen": envelope.seen,
            "meta": dict(envelope.body.meta),
            "blobs": list(zip(map(len, envelope.body.blobs), envelope.body.digests, strict=True)),
        },
        separators=(",", ":"),
        allow_nan=False,
    ).encode()
    return MAGIC + len(header).to_bytes(4, "little") + header


def decode(data: bytes, verify_key: str, *, size_cap: int = DEFAULT_SIZE_CAP) -> Envelope:
    """Check and read a message.

    verify_key: the expected sender's key, 64 hexadecimal digits.

    Raises:
        MessageError: oversize, wrong magic or version, forged, or malformed.
    """
    if len(data) > size_cap:
        raise MessageError(f"message of {len(data)} bytes exceeds the cap of {size_cap}")
    if len(data) < _PREFIX + SIGNATURE_BYTES or not data.startswith(MAGIC):
        raise MessageError("not a ciphercohort message of this version")
    end = _header_end(data)
    if end > min(_PREFIX + MAX_HEADER_BYTES, len(data) - SIGNATURE_BYTES):
        raise MessageError(f"header of {end - _PREFIX} bytes does not fit the message")
    signature = data[end : end + SIGNATURE_BYTES]
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(verify_key))
        key.verify(signature, _DOMAIN + data[:end])
    except InvalidSignature:
        raise MessageError("the signature is not the expected sender's") from None
    return _parse(data[_PREFIX:end], data, end + SIGNATURE_BYTES)


def digest(data: bytes) -> str:
    """SHA-256 of the signed part, hexadecimal: names a message in replies and transcripts.

    Only of messages that `decode` accepted or `encode` made, or of their head.
    """
    return hashlib.sha256(data[: _header_end(data)]).hexdigest()


def heard(head: str, message: str) -> str:
    """SHA-256(head | message): a party's head after one more request, all three hexadecimal.

    head: `UNHEARD` before the first; message: the request's `digest`.
    """
    return hashlib.sha256(bytes.fromhex(head) + bytes.fromhex(message)).hexdigest()


def address_of(head: bytes) -> tuple[str, str, str]:
    """Step, sender and recipient that a message names, unverified.

    head: its first _PREFIX + MAX_HEADER_BYTES bytes, or all.

    Raises:
        MessageError: it names none.
    """
    found = _unverified(head, "step", "sender", "recipient")
    return str(found[0]), str(found[1]), str(found[2])


def meta_of(head: bytes) -> Mapping[str, Any]:
    """Public fields of a message, unverified; head: as of `address_of`.

    Raises:
        MessageError: it has none.
    """
    (found,) = _unverified(head, "meta")
    return found if isinstance(found, dict) else {}


def _unverified(head: bytes, *names: str) -> list[Any]:
    try:
        fields = parse(head[_PREFIX : _header_end(head)], "header", most=MAX_HEADER_BYTES)
        return [fields[name] for name in names]
    except (LookupError, TypeError, MessageError):
        raise MessageError("the message has no readable header") from None


def _header_end(data: bytes) -> int:
    return _PREFIX + int.from_bytes(data[len(MAGIC) : _PREFIX], "little")


def _parse(header: bytes, data: bytes, position: int) -> Envelope:
    try:
        fields = parse(header, "header", most=MAX_HEADER_BYTES)
        listed = [(int(size), str(content)) for size, content in fields["blobs"]]
        names = ("session", "step", "sender", "recipient", "answers", "seen")
        session, step, sender, recipient, answers, seen = (str(fields[k]) for k in names)
        meta = dict(fields["meta"])
    except (ValueError, KeyError, TypeError) as error:
        raise MessageError(f"malformed header ({type(error).__name__})") from None
    sizes = [size for size, _ in listed]
    if min(sizes, default=0) < 0 or position + sum(sizes) != len(data):
        raise MessageError("the blobs do not add up to the message")
    blobs = []
    for size in sizes:
        blobs.append(data[position : position + size])
        position += size
    body = Body(meta, tuple(blobs))
    if body.digests != tuple(content for _, content in listed):
        raise MessageError("a blob does not match its hash")
    return Envelope(session, step, sender, recipient, body, answers, seen)
