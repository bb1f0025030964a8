"""An X25519 key of one session, signed by its party's identity: pairs of parties agree with it."""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from protocols.errors import PolicyError, ProtocolError
from protocols.exchange import signed_values
from protocols.exchange.signed_values import SignedText, SignedValue


class EphemeralKey:
    """One party's key, until it is forgotten.

    Security: whoever uses it forgets it with the last agreement; every later use is refused.

    kind: for the words of errors; text: what is signed of name and key; name: this party; identity:
    its own.
    """

    STATE = ("_private",)

    def __init__(self, kind: str, text: SignedText, name: str, identity: Ed25519PrivateKey) -> None:
        self._kind, self._text, self._name, self._identity = kind, text, name, identity
        self._private: bytes | None = X25519PrivateKey.generate().private_bytes_raw()

    def __repr__(self) -> str:
        return "EphemeralKey(<secret>)"

    def forget(self) -> None:
        """It agrees with nobody any more."""
        self._private = None

    def signed(self) -> SignedValue:
        """The public key, for everybody. Raises PolicyError: it was forgotten."""
        public = self._held().public_key().public_bytes_raw().hex()
        return SignedValue.by(self._identity, self._text, self._name, public)

    def check(self, roster: Mapping[str, str], keys: Mapping[str, SignedValue]) -> None:
        """Refuse keys that are not one of each party, signed for this session, and this one own.

        roster: Ed25519 verification keys (hexadecimal) by party, from the plan.

        Raises:
            ProtocolError: names the party whose key was exchanged. PolicyError: see `signed`.
        """
        signed_values.check(self._kind, self._text, roster, keys)
        if keys[self._name] != self.signed():
            raise ProtocolError(f"the {self._kind} of {self._name!r} is not the one that it sent")

    def shared(self, other: str, key: SignedValue, *, salt: bytes, info: bytes) -> bytes:
        """32 bytes that the other party derives too: HKDF-SHA256 of the agreement.

        Raises:
            ProtocolError: the other's key is of small order. PolicyError: see `signed`.
        """
        try:
            public = X25519PublicKey.from_public_bytes(bytes.fromhex(key.value))
            agreed = self._held().exchange(public)
        except ValueError:
            raise ProtocolError(
                f"unusable {self._kind} of party {other!r}", culprit=other
            ) from None
        return HKDF(hashes.SHA256(), 32, salt=salt, info=info).derive(agreed)

    def _held(self) -> X25519PrivateKey:
        if self._private is None:
            raise PolicyError(
                f"the {self._kind} was forgotten after its use; resend the first reply"
            )
        return X25519PrivateKey.from_private_bytes(self._private)
