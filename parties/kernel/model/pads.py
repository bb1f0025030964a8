"""What hides a party's replies in a run of an encrypted model: pads that cancel, and masks.

A pair's secret, of which its pads are made, is as good as both its replies.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.kernel.ephemeral_key import EphemeralKey
from protocols.ckks import REFRESH_TOWERS, subring
from protocols.ckks import residues as rns
from protocols.ckks.context import RingContext
from protocols.ckks.residues import Residues
from protocols.ckks.sampling import WORD, mask_bits
from protocols.ckks.subring import TraceMap
from protocols.errors import PolicyError
from protocols.exchange.signed_values import SignedValue, pad_key_text
from protocols.privacy.laws import ExpandedRandomness, SystemRandomness
from protocols.steps.locks import Lock, word


class Pads:
    """One party's half of `protocols.steps.pads`.

    Security: pairs agree once, and the ephemeral key is forgotten with that. A pad is a function of
    pair and label; the caller answers a label once.

    roster: verification keys (hexadecimal) by party, in the plan's order; name: this party; seed:
    gives the joint seed, once there is one; signing_key: this party's identity.
    """

    STATE = ("_ephemeral", "_secrets")

    def __init__(
        self,
        roster: Mapping[str, str],
        name: str,
        seed: Callable[[], bytes],
        signing_key: Ed25519PrivateKey,
    ) -> None:
        self._roster, self._name, self._seed = dict(roster), name, seed
        self._ephemeral = EphemeralKey("pad key", self._text, name, signing_key)
        self._secrets: dict[str, bytes] = {}

    def _text(self, name: str, key: str) -> bytes:
        return pad_key_text(self._seed(), name, key)

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
        self._ephemeral.check(self._roster, keys)
        for other in self._roster.keys() - {self._name}:
            # Both ends sort by place in the plan; keys have one size, names are quoted.
            ends = [name for name in self._roster if name in (other, self._name)]
            pair = b"".join(bytes.fromhex(keys[n].value) for n in ends) + repr(ends).encode()
            info = b"ciphercohort/pad/2\0" + pair
            shared = self._ephemeral.shared(other, keys[other], salt=self._seed(), info=info)
            self._secrets[other] = shared
        self._ephemeral.forget()

    def pad(
        self, label: str, primes: tuple[int, ...], count: int, missing: Collection[str] = ()
    ) -> Residues:
        """What this party adds under a label, shape (len(primes), count), uniform.

        A pair's is a stream under HMAC-SHA-256 of its secret and the label.

        missing: parties whose replies are not in the sum.

        Raises:
            PolicyError: nothing is agreed yet, or all is erased.
        """
        if not self._secrets:
            raise PolicyError("no pads are agreed yet, or they were erased")
        total, names = rns.zeros(len(primes), count), list(self._roster)
        for other in self._secrets.keys() - {*missing}:
            text = b"ciphercohort/pad/2\0" + label.encode()
            key = hmac.digest(self._secrets[other], text, "sha256")
            own = subring.drawn(primes, count, ExpandedRandomness(key))
            is_first = names.index(self._name) < names.index(other)
            total = (rns.add if is_first else rns.subtract)(total, own, primes)
        return total

    def lock(self, asked: bytes, missing: Collection[str]) -> tuple[Lock, dict[str, str]]:
        """Of this party's reply to what it was asked, and its words for the locks of all others.

        asked: see `protocols.steps.locks`; missing: who is covered for.

        Raises:
            PolicyError: see `pad`.
        """
        if not self._secrets:
            raise PolicyError("no pads are agreed yet, or they were erased")
        pairs = {n: self._secrets[n] for n in self._roster if n not in (self._name, *missing)}
        own = [word(secret, self._name, asked) for secret in pairs.values()]
        return Lock.of(own), {name: word(pairs[name], name, asked).hex() for name in pairs}


# -- masks of a refresh, and what its map of the subring makes of them ----------------------------


def draw_masks(
    context: RingContext, parties: int, maps: Sequence[TraceMap]
) -> list[tuple[Residues, Residues]]:
    """M_p modulo the refresh's primes, and T(M_p) at level 0.

    Uniform in the room of these primes on the subring's coefficients, modulo them on all others.
    """
    low, n = context.primes[:REFRESH_TOWERS], context.params.ring_dim
    bits = mask_bits(low, parties)

    def mask(trace_map: TraceMap) -> tuple[Residues, Residues]:
        count = 2 * trace_map.period
        words = SystemRandomness().words(-(-bits // WORD) * count).reshape(count, -1)
        drawn = (int.from_bytes(row.tobytes(), "little") for row in words)
        inner = [(value & (1 << bits) - 1) - (1 << bits - 1) for value in drawn]
        outer = subring.outside(low, n, trace_map.period, ExpandedRandomness())
        whole = rns.add(outer, subring.embed(inner, low, n), low)
        return whole, subring.embed(trace_map.apply(inner), context.primes, n)

    return rns.each(mask, maps)
