"""The passphrase in the operating system's keyring, where a person logs in to start the agent.

The keyring is Secret Service (Linux), Keychain (macOS) or Credential Locker (Windows), through the
package `keyring` (extra `keyring`). A server that starts without a person takes systemd's
credentials instead: see docs/deployment.md.
"""

from __future__ import annotations

import secrets
from typing import Any

from protocols.errors import ParameterError, PolicyError

SERVICE = "ciphercohort"
# Backends that keep nothing, or keep it in a readable file.
_UNFIT = ("fail", "null", "plaintext")


def new_entry() -> tuple[str, str]:
    """(entry, passphrase): a fresh random passphrase, kept in the keyring under a fresh name.

    Raises:
        ParameterError: there is no keyring here.
    """
    backend, entry = _backend(), secrets.token_hex(8)
    passphrase = secrets.token_urlsafe(32)
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
        ParameterError: there is no keyring here. PolicyError: it does not have the entry.
    """
    backend = _backend()
    try:
        found = backend.get_password(SERVICE, entry)
    except Exception as error:
        raise PolicyError(
            f"the keyring gives nothing ({type(error).__name__}): unlock it and try again"
        ) from None
    if not found:
        raise PolicyError(
            f"the keyring has no entry {entry!r} of {SERVICE}: start the agent as the user, and on "
            "the machine, of `cohort party init`"
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
