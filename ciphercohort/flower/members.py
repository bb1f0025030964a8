"""Who takes part: identities, signed keys for one session, and whom a client knows.

A member's entry: {name, identity, key, signature}, hexadecimal; identity is an Ed25519 key that
lives as long as the client's home folder (or its Flower run, without one), key an X25519 key for
one session. A roster is all entries, by identity; members are numbered in that order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from protocols.errors import MessageError, PolicyError, ProtocolError
from protocols.exchange.serialise import parse
from protocols.names import spoken

KEY_BYTES = 32
# Characters of one field of an entry, of an entry, and of a roster of 1024.
_LONGEST_FIELD, LONGEST_ENTRY, _LONGEST_ROSTER = 256, 1 << 12, 1 << 21


@dataclass(frozen=True, slots=True)
class Entry:
    """One member; see the module."""

    name: str
    identity: str
    key: str
    signature: str

    @classmethod
    def by(
        cls, identity: Ed25519PrivateKey, name: str, key: X25519PrivateKey, session: str
    ) -> Entry:
        """A client's own."""
        public = key.public_key().public_bytes_raw().hex()
        signature = identity.sign(_signed_text(session, name, public)).hex()
        return cls(name, identity.public_key().public_bytes_raw().hex(), public, signature)

    @classmethod
    def of_json(cls, text: str) -> Entry:
        """Of the text of its four fields. Raises MessageError: it is none."""
        return cls.of(parse(text, "entry", most=LONGEST_ENTRY))

    @classmethod
    def of(cls, row: Any) -> Entry:
        """Of a list of four. Raises MessageError: an entry of other than short, printable texts."""
        if not isinstance(row, list) or len(row) != 4:
            raise MessageError("an entry is a list of four texts")
        if not all(
            type(each) is str and len(each) <= _LONGEST_FIELD and each.isprintable() for each in row
        ):
            raise MessageError("an entry of other than short, printable texts")
        return cls(*row)

    def check(self, session: str) -> None:
        """Refuse what its identity did not sign for this session.

        Raises:
            ProtocolError: names the member.
        """
        if not _is_signed(self, session):
            raise ProtocolError(
                f"the key of client {self.name!r} is not signed by its identity for this session",
                culprit=self.name,
            )


# In a simulation all clients are in few processes, and look at the same entries and rosters.
@lru_cache(maxsize=4096)
def _is_signed(entry: Entry, session: str) -> bool:
    try:
        identity = Ed25519PublicKey.from_public_bytes(bytes.fromhex(entry.identity))
        text = _signed_text(session, entry.name, entry.key)
        identity.verify(bytes.fromhex(entry.signature), text)
    except (InvalidSignature, ValueError):
        return False
    return True


def _signed_text(session: str, name: str, key: str) -> bytes:
    return b"ciphercohort/flower/member/1\0" + json.dumps([session, name, key]).encode()


@dataclass(frozen=True, slots=True)
class Roster:
    """All members of a session, by identity; epoch: rises whenever it changes."""

    session: str
    epoch: int
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        identities = [entry.identity for entry in self.entries]
        if identities != sorted(set(identities)):
            raise MessageError("a roster's identities are not distinct and in their order")
        if len({entry.name for entry in self.entries}) != len(self.entries):
            raise MessageError("two members of a roster have the same name")

    @classmethod
    def of(cls, session: str, epoch: int, entries: Sequence[Entry]) -> Roster:
        """In the right order."""
        return cls(session, epoch, tuple(sorted(entries, key=lambda entry: entry.identity)))

    def to_json(self) -> str:
        """For the wire, and for its digest."""
        rows = [[e.name, e.identity, e.key, e.signature] for e in self.entries]
        return json.dumps([self.session, self.epoch, rows])

    @classmethod
    @lru_cache(maxsize=2)
    def of_json(cls, text: str) -> Roster:
        """Inverse of `to_json`. Raises MessageError: it is no roster."""
        try:
            session, epoch, rows = parse(text, "roster", most=_LONGEST_ROSTER)
            if type(session) is not str or type(epoch) is not int:
                raise ValueError("no session, or no epoch")
            return cls(session, epoch, tuple(Entry.of(row) for row in rows))
        except (ValueError, TypeError) as error:
            raise MessageError(f"the request holds no roster: {error}") from None

    def digest(self) -> bytes:
        """32 bytes."""
        return _digest(self)


@lru_cache(maxsize=2)
def _digest(roster: Roster) -> bytes:
    return hashlib.sha256(roster.to_json().encode()).digest()


def refused(
    roster: Roster, known: Mapping[str, str], pins: frozenset[str] | None, admit: bool
) -> dict[str, str]:
    """Members that this client does not take part with, and why, by identity.

    known: identities by name, empty on first use; pins: the only identities that may take part,
    None for trust on first use; admit: whether new names may join later.
    """
    names = {identity: name for name, identity in known.items()}
    found: dict[str, str] = {}
    for entry in roster.entries:
        who, reason = f"client {entry.name!r}", ""
        if pins is not None:
            if entry.identity not in pins:
                reason = f"{who} with identity {spoken(entry.identity)} is not pinned here"
        elif entry.name in known:
            if known[entry.name] != entry.identity:
                reason = (
                    f"{who} has another identity than before: if it was set up again, remove it "
                    "from known.json in the home folder"
                )
        elif entry.identity in names:
            reason = f"{who} was known under another name"
        elif known and not admit:
            reason = (
                f"{who} is new since the first round: set secure-sum-admit=true in the node's "
                "configuration to let clients join later"
            )
        if reason:
            found[entry.identity] = reason
    return found


def trusted(roster: Roster, known: Mapping[str, str], pinned: bool) -> str:
    """A line for the log: why this client takes the others' identities for theirs.

    known: before this roster.
    """
    count = len(roster.entries)
    if pinned:
        return f"keys of {count} clients: all identities are pinned"
    new = [entry for entry in roster.entries if entry.name not in known]
    names = ", ".join(f"{entry.name} ({entry.identity[:8]}…)" for entry in new[:3])
    more = ", …" if len(new) > 3 else ""
    seen = f"{len(new)} seen for the first time and trusted: {names}{more}" if new else "all known"
    return f"keys of {count} clients: {seen}; no pins (secure-sum-pins would name them beforehand)"


def pair_keys(roster: Roster, private: X25519PrivateKey) -> tuple[int, bytes]:
    """This client's number, and the 32 bytes that it shares with each member, one after the other.

    Raises:
        PolicyError: it is not a member. ProtocolError: a member's key is unusable; names it.
    """
    own = private.public_key().public_bytes_raw().hex()
    index = [k for k, entry in enumerate(roster.entries) if entry.key == own]
    if len(index) != 1:
        raise PolicyError("this client is not in the roster, or not with the key that it sent")
    salt, found = roster.digest(), []
    for entry in roster.entries:
        if entry.key == own:
            shared = private.private_bytes_raw()
        else:
            try:
                other = X25519PublicKey.from_public_bytes(bytes.fromhex(entry.key))
                shared = private.exchange(other)
            except ValueError:
                raise ProtocolError(
                    f"unusable key of client {entry.name!r}", culprit=entry.name
                ) from None
        ends = "".join(sorted((own, entry.key)))
        info = b"ciphercohort/flower/pair/1\0" + ends.encode()
        found.append(HKDF(hashes.SHA256(), KEY_BYTES, salt=salt, info=info).derive(shared))
    return index[0], b"".join(found)
