"""A party's state between two messages, sealed: what a restarted agent goes on from.

Security: the state is on disk before a reply leaves, so that a restarted party never makes a
second share for a step it answered. Whoever restores an old copy of the file by hand breaks this
promise. Only bytes that the vault authenticates are unpickled, and only classes of this program.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from typing import Any

from parties.key_share import KeyShare
from parties.party import Party
from parties.shard import Shard
from parties.vault import Vault
from protocols.ckks.context import CkksContext
from protocols.errors import PolicyError

LABEL = "session state"
KEY_LABEL = "key share"
_FIELDS = ("_seed", "_session", "_sequence", "_answered", "_last", "_plan", "_duties")
_ACCOUNT = ("_open", "_spent")
_OURS = ("protocols.", "parties.", "numpy.")
_BUILTINS = ("complex", "dict", "frozenset", "getattr", "list", "set", "tuple")


def answered(party: Party) -> int:
    """Number of steps that a party has answered."""
    return party._answered


def capture(party: Party, vault: Vault) -> bytes:
    """Everything of a party that its owner's files do not hold, sealed."""
    state = {name: getattr(party, name) for name in _FIELDS}
    account = {name: getattr(party._account, name) for name in _ACCOUNT}
    buffer = io.BytesIO()
    _Pickler(buffer, party, vault).dump((state, account, _fingerprint(party._shard)))
    return vault.seal(buffer.getvalue(), LABEL)


def restore(party: Party, sealed: bytes, vault: Vault) -> None:
    """Give a new party, made from the same files, the captured state.

    Raises:
        PolicyError: the state does not open, or another version of this program wrote it.
    """
    plain = io.BytesIO(vault.open(sealed, LABEL))
    try:
        state, account, rows = _Unpickler(plain, party, vault).load()
        fields = [(party, state, _FIELDS), (party._account, account, _ACCOUNT)]
        values = [(owner, name, held[name]) for owner, held, names in fields for name in names]
    except (pickle.UnpicklingError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise PolicyError(
            f"the session state was written by another version ({type(error).__name__})"
        ) from None
    if rows != _fingerprint(party._shard):
        raise PolicyError("the rows or their schema have changed since this session began")
    for owner, name, value in values:
        setattr(owner, name, value)


def _fingerprint(shard: Shard) -> str:
    parts = (shard.schema.digest().encode(), shard.x.tobytes(), shard.y.tobytes())
    return hashlib.sha256(b"".join(parts)).hexdigest()


class _Pickler(pickle.Pickler):
    """Leaves out what the owner's files hold; seals the key share once more on its own."""

    def __init__(self, file: io.BytesIO, party: Party, vault: Vault) -> None:
        super().__init__(file, protocol=5)
        self._party, self._vault = party, vault

    def persistent_id(self, obj: Any) -> Any:
        """Names of what is rebuilt."""
        if isinstance(obj, Shard):
            return ("shard",)
        if obj is self._party._randomness:
            return ("randomness",)
        if obj is self._party._signing_key:
            return ("signing key",)
        if isinstance(obj, CkksContext):
            return ("context", obj.params, obj.tag)
        if isinstance(obj, KeyShare):
            seal = self._vault.seal
            return ("key share", obj.context, obj.sealed(lambda plain: seal(plain, KEY_LABEL)))
        return None


class _Unpickler(pickle.Unpickler):
    """Inverse of `_Pickler`."""

    def __init__(self, file: io.BytesIO, party: Party, vault: Vault) -> None:
        super().__init__(file)
        self._party, self._vault = party, vault

    def persistent_load(self, pid: Any) -> Any:
        """Rebuild what was named."""
        kind, *rest = pid
        if kind == "shard":
            return self._party._shard
        if kind == "randomness":
            return self._party._randomness
        if kind == "signing key":
            return self._party._signing_key
        if kind == "context":
            return CkksContext(*rest)
        if kind == "key share":
            (context, state), unseal = rest, self._vault.open
            return KeyShare.unsealed(context, state, lambda sealed: unseal(sealed, KEY_LABEL))
        raise pickle.UnpicklingError(f"unknown object {kind!r}")

    def find_class(self, module: str, name: str) -> Any:
        """Classes of this program, and nothing that could act."""
        if module.startswith(_OURS) or (module == "builtins" and name in _BUILTINS):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a session state")
