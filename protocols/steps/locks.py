"""Replies that open where everybody was asked for the same: shares of a model's refresh.

What a secret makes of a request is hidden by a stream, whose key is made of one word of each other
party's kernel, and each gives its words for the request that it was asked with itself:

    word_j(i) = HMAC-SHA-256(pair secret of i and j, i | what j was asked)
    key_i     = SHA-256(word_j(i) of all j but i)

So the share of a kernel that alone was asked for another ciphertext stays hidden, whoever asked it
and whoever reads all replies: no other kernel gives its word for that. It takes no trip more.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from protocols.ckks import subring
from protocols.ckks.residues import Residues
from protocols.exchange import Body
from protocols.privacy.laws import ExpandedRandomness

WORDS, CHECK = "words", "locked"


def word(secret: bytes, owner: str, asked: bytes) -> bytes:
    """Of a pair of parties, for the reply of its member `owner`; asked: see `asked_for`."""
    text = b"ciphercohort/lock/1\0" + repr(owner).encode() + asked
    return hmac.digest(secret, text, "sha256")


def asked_for(step: str, request: Body, covering: Sequence[Collection[str]]) -> bytes:
    """Digest of a request's blobs and step, 32 bytes; covering: who is missing, who stands in."""
    text = repr((step, [sorted(names) for names in covering], list(request.digests)))
    return hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True, slots=True)
class Lock:
    """Of one party's reply; key: 32 bytes, secret until everybody has given its word."""

    key: bytes

    @classmethod
    def of(cls, words: Sequence[bytes]) -> Lock:
        """words: of all others, in the plan's order."""
        return cls(hashlib.sha256(b"".join(words)).digest())

    @property
    def check(self) -> str:
        """By which a coordinator sees that it has the key, hexadecimal."""
        return hashlib.sha256(b"ciphercohort/lock-check/1\0" + self.key).hexdigest()

    def streams(self, count: int, primes: Sequence[int], ring_dim: int) -> list[Residues]:
        """What hides so many polynomials, each of shape (len(primes), ring_dim), uniform."""
        source = ExpandedRandomness(self.key)
        return [subring.drawn(primes, ring_dim, source) for _ in range(count)]
