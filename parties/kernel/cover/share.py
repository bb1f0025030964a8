"""What a party holds to stand in for others: their shares, and whom it stands in for.

A share of a secret is half a secret: it leaves this file only sealed, or in a sealed state.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from parties.kernel.cover import shamir
from parties.kernel.cover.covered_share import CoveredShare
from parties.kernel.ephemeral_key import EphemeralKey
from protocols.ckks import residues as rns
from protocols.ckks.residues import Residues
from protocols.errors import MessageError, PolicyError, ProtocolError
from protocols.exchange import Body
from protocols.exchange.signed_values import SignedValue
from protocols.steps import restore, state_of
from protocols.steps import sealed_shares as sealing
from protocols.steps.sealed_shares import StandIn, cover_key_text

NONCE_BYTES = 12


class CoverShare:
    """One party's half of `protocols.steps.cover`.

    Security: its polynomial is dealt once, and the ephemeral key is forgotten with the last use;
    whom it stands in for, and with whom, follows the rules of `protocols.steps.cover`.

    roster: verification keys (hexadecimal) by party, in the plan's order; threshold: how many stand
    in for others; name: this party; seed: the joint seed; signing_key: this party's identity;
    secret: its key share.
    """

    def __init__(
        self,
        roster: Mapping[str, str],
        threshold: int,
        name: str,
        seed: bytes,
        signing_key: Ed25519PrivateKey,
        secret: CoveredShare,
    ) -> None:
        self._roster, self._threshold, self._name = dict(roster), threshold, name
        self._secret = secret
        self._bound, self._signing_key = sealing.binding(seed), signing_key
        self._primes = secret.context.primes
        self._points = {other: k + 1 for k, other in enumerate(roster)}
        text = partial(cover_key_text, self._bound)
        self._ephemeral = EphemeralKey("cover key", text, name, signing_key)
        self._keys: dict[str, SignedValue] = {}
        self._held: dict[str, Residues] = {}
        self._covering: StandIn | None = None

    def __repr__(self) -> str:
        return "CoverShare(<secret>)"

    def erase(self) -> None:
        """Forget everything."""
        self._ephemeral.forget()
        self._held = {}

    # -- set-up -----------------------------------------------------------------------------------

    def key(self) -> SignedValue:
        """This party's ephemeral X25519 key, signed with its identity."""
        return self._ephemeral.signed()

    def deal(self, keys: Mapping[str, SignedValue]) -> tuple[bytes, ...]:
        """Sealed shares for all others, in the plan's order.

        Raises:
            ProtocolError: a key is not its owner's. PolicyError: already dealt.
        """
        if self._keys:
            raise PolicyError("shares were already dealt; resend the first ones, never new ones")
        self._ephemeral.check(self._roster, keys)
        self._keys = dict(keys)
        receivers = sealing.others(list(self._roster), self._name)
        points = [self._points[receiver] for receiver in receivers]
        shares = self._secret.split(self._threshold, points)
        return tuple(
            self._seal(receiver, rns.pack(shares[self._points[receiver]], self._primes))
            for receiver in receivers
        )

    def _seal(self, receiver: str, plain: bytes) -> bytes:
        where, nonce = sealing.address(self._bound, self._name, receiver), os.urandom(NONCE_BYTES)
        sealed = nonce + self._cipher(receiver, where).encrypt(nonce, plain, where)
        return sealing.sign_share(self._signing_key, where, sealed)

    def hold(self, sealed: Sequence[bytes]) -> None:
        """Open the others' shares, in the plan's order, and keep them.

        Raises:
            ProtocolError: one is not as its dealer signed it, or is no share; names who is at
                fault.
        """
        dealers = sealing.others(list(self._roster), self._name)
        if not self._keys or len(sealed) != len(dealers):
            raise MessageError(f"{len(sealed)} shares to hold, expected {len(dealers)} once dealt")
        held = {
            dealer: self._open(dealer, data) for dealer, data in zip(dealers, sealed, strict=True)
        }
        self._held = held
        self._ephemeral.forget()

    def _open(self, dealer: str, data: bytes) -> Residues:
        where = sealing.address(self._bound, dealer, self._name)
        sealed = sealing.signed_share(self._roster[dealer], where, data)
        if sealed is None:
            raise ProtocolError(
                f"the share that party {dealer!r} dealt was changed on the way, or is for another "
                "party or session: do not go on with this coordinator"
            )
        nonce, rest = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
        try:
            plain = self._cipher(dealer, where).decrypt(nonce, rest, where)
            return rns.unpack(plain, self._primes, self._secret.context.params.ring_dim)
        except (InvalidTag, ValueError, MessageError):
            raise ProtocolError(
                f"party {dealer!r} sealed something that is no share", culprit=dealer
            ) from None

    def _cipher(self, other: str, where: bytes) -> ChaCha20Poly1305:
        """Of one share; where: its address, which holds both names in their order."""
        ends = b"".join(bytes.fromhex(self._keys[n].value) for n in self._roster)
        salt = hashlib.sha256(ends).digest()
        key = self._ephemeral.shared(other, self._keys[other], salt=salt, info=where)
        return ChaCha20Poly1305(key)

    # -- standing in ------------------------------------------------------------------------------

    @property
    def missing(self) -> tuple[str, ...]:
        """Who is covered for."""
        return self._covering.missing if self._covering else ()

    @property
    def covering(self) -> tuple[tuple[str, ...], ...]:
        """Who is covered for, and who stands in; empty where nobody is missing."""
        held = self._covering
        return (held.missing, held.stand_ins) if held else ()

    def stand_in(self, request: Body) -> Callable[[], None]:
        """From now on this party's share of the secret covers for the missing ones.

        What is returned takes it back: for a step that is refused.

        Raises:
            PolicyError: against the rules of `protocols.steps.cover`. MessageError: malformed.
        """
        asked = StandIn.of(list(self._roster), self._threshold, request)
        before = self._covering
        if self._name in asked.missing:
            raise PolicyError(f"party {self._name!r} is here: it cannot be covered for")
        if before and asked.stand_ins != before.stand_ins:
            raise PolicyError(
                f"the stand-ins are {', '.join(before.stand_ins)} for the rest of this run"
            )
        if before and not set(before.missing) < set(asked.missing):
            raise PolicyError(f"{', '.join(before.missing)} were covered for: no way back")
        if not self._held:
            raise PolicyError("no shares are held: nobody can be covered for yet")
        self._cover(asked)
        return partial(self._cover, before)

    def _cover(self, covering: StandIn | None) -> None:
        self._covering = covering
        if covering is None or self._name not in covering.stand_ins:
            self._secret.cover_with(None)
            return
        points = [self._points[name] for name in covering.stand_ins]
        factors = shamir.weights(self._points[self._name], points, self._primes)
        total = np.zeros_like(self._held[covering.missing[0]])
        for name in covering.missing:
            total = rns.add(total, self._held[name], self._primes)
        self._secret.cover_with(rns.scale(total, factors, self._primes))

    # -- going on in another process --------------------------------------------------------------

    def state(self) -> list[Any]:
        """For `restore`; there are secrets in it."""
        covering = self._covering and [self._covering.missing, self._covering.stand_ins]
        return [state_of(self._ephemeral), self._keys, self._held, covering]

    def restore(self, state: list[Any]) -> None:
        """Inverse of `state`."""
        ephemeral, self._keys, self._held, covering = state
        restore(self._ephemeral, ephemeral)
        if covering:
            self._cover(StandIn(*covering))
