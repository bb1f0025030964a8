"""What a party keeps on disk is sealed: scrypt from a passphrase, then AES-256-GCM.

Sealed form: magic (5 bytes) | salt (16) | nonce (12) | ciphertext and tag. The label is
authenticated, so that one file cannot stand in for another.

The passphrase may be in the operating system's keyring, where a person logs in to start the agent:
Secret Service (Linux), Keychain (macOS) or Credential Locker (Windows), through the package
`keyring` (extra `keyring`). A server that starts without a person takes systemd's credentials
instead: see docs/deployment.md.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

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
SERVICE = "ciphercohort"
# Keyrings that keep nothing, or keep it in a readable file.
_UNFIT = ("fail", "null", "plaintext")


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
        """The vault that sealed this. Raises PolicyError: not a sealed file."""
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


def new_entry() -> tuple[str, str]:
    """(entry, passphrase): a fresh random passphrase, kept in the keyring under a fresh name.

    Raises:
        ParameterError: there is no keyring here, or it is locked.
    """
    entry, passphrase = secrets.token_hex(8), secrets.token_urlsafe(32)
    backend = _backend()
    try:
        backend.set_password(SERVICE, entry, passphrase)
    except Exception as error:
        raise ParameterError(
            f"the keyring did not take the passphrase ({type(error).__name__}): unlock it, or use "
            "a passphrase of your own"
        ) from None
    return entry, passphrase


def read_entry(entry: str) -> str:
    """The passphrase of an entry.

    Raises:
        ParameterError: there is no keyring here. PolicyError: it gives nothing.
    """
    backend, why = _backend(), f"it has no entry {entry!r} of {SERVICE}"
    try:
        found = backend.get_password(SERVICE, entry)
    except Exception as error:
        found, why = None, type(error).__name__
    if not found:
        raise PolicyError(
            f"the keyring gives nothing ({why}): unlock it, and start the agent as the user, and "
            "on the machine, of `cohort party init`"
        )
    return str(found)


def _backend() -> Any:
    try:
        import keyring
    except ImportError:
        raise ParameterError(
            "the package keyring is not installed: take the extra, "
            "python -m pip install -c constraints.txt -e '.[keyring]', or a passphrase"
        ) from None
    backend = keyring.get_keyring()
    name = f"{type(backend).__module__}.{type(backend).__name__}"
    if any(word in name.lower() for word in _UNFIT):
        raise ParameterError(
            f"no keyring that keeps secrets is running here (found {name}): log in to a desktop "
            "session with one, or use a passphrase"
        )
    return backend
