"""A party's half of pads that cancel: what it shares with each other party.

A pair's secret is as good as both its replies: it leaves this file only sealed (`Pads.state`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from parties.ephemeral_key import EphemeralKey
from protocols import pads
from protocols.circuit_plan import CircuitPlan
from protocols.ckks import residues as rns
from protocols.ckks import subring
from protocols.ckks.residues import Residues
from protocols.errors import PolicyError
from protocols.messages import Body
from protocols.privacy.randomness import Words
from protocols.signed_values import SignedValue


class _Stream:
    """ChaCha20 under a key that a pair has for one label; nothing of it is kept."""

    def __init__(self, secret: bytes, label: str) -> None:
        key = HKDFExpand(hashes.SHA256(), 32, info=label.encode()).derive(secret)
        self._stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()

    def words(self, count: int) -> Words:
        """Uniform words, uint64 array, shape (count,)."""
        return np.frombuffer(self._stream.update(bytes(8 * count)), dtype="<u8")


class Pads:
    """One party's half of `protocols.pads`.

    Security: pairs agree once, and the ephemeral key is forgotten with that. A pad is a function of
    pair and label; the caller answers a label once.

    plan: of the run; name: this party; seed: the joint seed; signing_key: this party's identity.
    """

    def __init__(
        self, plan: CircuitPlan, name: str, seed: bytes, signing_key: Ed25519PrivateKey
    ) -> None:
        self._plan, self._name, self._seed = plan, name, seed
        self._ephemeral = EphemeralKey("pad key", partial(pads.key_text, seed), name, signing_key)
        self._secrets: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return "Pads(<secret>)"

    def erase(self) -> None:
        """Forget everything."""
        self._ephemeral.forget()
        self._secrets = {}

    def key(self) -> SignedValue:
        """This party's ephemeral X25519 key, signed with its identity."""
        return self._ephemeral.signed()

    def agree(self, keys: Mapping[str, SignedValue]) -> None:
        """Agree with every other party, and forget the key.

        Raises:
            ProtocolError: a key is not its owner's. PolicyError: already agreed.
        """
        self._ephemeral.check(self._plan.roster, keys)
        for other in self._plan.names:
            if other != self._name:
                self._secrets[other] = self._shared(other, keys)
        self._ephemeral.forget()

    def _shared(self, other: str, keys: Mapping[str, SignedValue]) -> bytes:
        # Both ends sort by place in the plan; keys have one size, names are quoted.
        ends = [n for n in self._plan.names if n in (self._name, other)]
        pair = b"".join(bytes.fromhex(keys[n].value) for n in ends) + repr(ends).encode()
        info = b"ciphercohort/pad/1\0" + pair
        return self._ephemeral.shared(other, keys[other], salt=self._seed, info=info)

    def pad(
        self, label: str, primes: tuple[int, ...], count: int, missing: Collection[str] = ()
    ) -> Residues:
        """What this party adds under a label, shape (len(primes), count), uniform.

        missing: parties whose replies are not in the sum.

        Raises:
            PolicyError: nothing is agreed yet, or all is erased.
        """
        if not self._secrets:
            raise PolicyError("no pads are agreed yet, or they were erased")
        total: Residues = np.zeros((len(primes), count), np.uint64)
        place = self._plan.party_index(self._name)
        for other, secret in self._secrets.items():
            if other in missing:
                continue
            own = subring.drawn(primes, count, _Stream(secret, label))
            if self._plan.party_index(other) < place:
                own = rns.negate(own, primes)
            total = rns.add(total, own, primes)
        return total

    # -- going on in another process --------------------------------------------------------------

    def state(self, seal: Callable[[bytes], bytes]) -> Body:
        """For `restore`; everything is sealed."""
        own = self._ephemeral.state(seal)
        return Body({"with": list(self._secrets)}, (own, *map(seal, self._secrets.values())))

    def restore(self, state: Body, unseal: Callable[[bytes], bytes]) -> None:
        """Inverse of `state`."""
        own, *secrets = state.blobs
        self._ephemeral.restore(own, unseal)
        self._secrets = dict(zip(state.meta["with"], map(unseal, secrets), strict=True))
