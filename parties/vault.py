"""What a party keeps on disk is sealed: scrypt from a passphrase, then AES-256-GCM.

Sealed form: magic (5 bytes) | salt (16) | nonce (12) | ciphertext and tag. The label is
authenticated, so that one file cannot stand in for another.
"""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from protocols.errors import ParameterError, PolicyError

MAGIC = b"CPHV\x01"
SALT_BYTES, NONCE_BYTES, KEY_BYTES = 16, 12, 32
# RFC 7914 with 64 MiB of memory, about 0.2 s: one guess costs as much.
COST, BLOCK, PARALLEL = 1 << 16, 8, 1
MIN_PASSPHRASE = 12
_HEAD = len(MAGIC) + SALT_BYTES


class Vault:
    """Seals and opens under one passphrase; the key is derived once.

    Raises:
        ParameterError: the passphrase has fewer than MIN_PASSPHRASE characters.
    """

    def __init__(self, passphrase: str, salt: bytes | None = None) -> None:
        if len(passphrase) < MIN_PASSPHRASE:
            raise ParameterError(
                f"the passphrase has {len(passphrase)} characters: take at least {MIN_PASSPHRASE}"
            )
        self._salt = os.urandom(SALT_BYTES) if salt is None else salt
        derive = Scrypt(salt=self._salt, length=KEY_BYTES, n=COST, r=BLOCK, p=PARALLEL)
        self._cipher = AESGCM(derive.derive(passphrase.encode()))

    def __repr__(self) -> str:
        return "Vault(<secret>)"

    @classmethod
    def for_file(cls, passphrase: str, sealed: bytes) -> Vault:
        """The vault that sealed this.

        Raises:
            PolicyError: not a sealed file.
        """
        _check(sealed)
        return cls(passphrase, sealed[len(MAGIC) : _HEAD])

    def seal(self, plain: bytes, label: str) -> bytes:
        """Encrypt and authenticate; label: what this is."""
        nonce = os.urandom(NONCE_BYTES)
        return MAGIC + self._salt + nonce + self._cipher.encrypt(nonce, plain, label.encode())

    def open(self, sealed: bytes, label: str) -> bytes:
        """Inverse of `seal`.

        Raises:
            PolicyError: another passphrase, another label, or changed bytes.
        """
        _check(sealed)
        nonce, rest = sealed[_HEAD : _HEAD + NONCE_BYTES], sealed[_HEAD + NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, rest, label.encode())
        except InvalidTag:
            raise PolicyError(
                f"{label} does not open: the passphrase is wrong, or the file was changed"
            ) from None


def _check(sealed: bytes) -> None:
    if not sealed.startswith(MAGIC) or len(sealed) < _HEAD + NONCE_BYTES:
        raise PolicyError("not a sealed file of this version")
