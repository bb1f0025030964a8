"""A party's state between two messages, sealed: what a restarted agent goes on from.

Plain form: one line of JSON (version, fingerprint of the rows, fields, sizes of the blobs), then
the blobs. Security: the state is on disk before a reply leaves, so that a restarted party never
makes a second share for a step it answered. Whoever restores an old copy of the file by hand breaks
this promise. The key share in it is sealed once more, under a label of its own.
"""

from __future__ import annotations

import json

from parties.party import Party
from parties.vault import Vault
from protocols.errors import ParameterError, PolicyError
from protocols.messages import Body

VERSION = 3
LABEL = "session state"
KEY_LABEL = "key share"


def capture(party: Party, vault: Vault) -> bytes:
    """Everything of a party that its owner's files do not hold, sealed.

    Raises:
        PolicyError: its protocol keeps the secret in memory only.
    """
    state = party.state(lambda plain: vault.seal(plain, KEY_LABEL))
    head = {
        "version": VERSION,
        "rows": party.fingerprint(),
        "meta": dict(state.meta),
        "sizes": [len(blob) for blob in state.blobs],
    }
    return vault.seal(b"".join([json.dumps(head).encode(), b"\n", *state.blobs]), LABEL)


def restore(party: Party, sealed: bytes, vault: Vault) -> None:
    """Give a new party, made from the same files, the captured state.

    Raises:
        PolicyError: the state does not open, is of other rows, or another version of this program
            wrote it.
    """
    text, _, blobs = vault.open(sealed, LABEL).partition(b"\n")
    try:
        head = json.loads(text)
        if head["version"] != VERSION:
            raise ValueError(f"version {head['version']} is not {VERSION}")
        if head["rows"] != party.fingerprint():
            raise PolicyError("the rows or their schema have changed since this session began")
        state = Body(head["meta"], _split(blobs, head["sizes"]))
        party.restore(state, lambda secret: vault.open(secret, KEY_LABEL))
    except (ParameterError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise PolicyError(
            f"the session state was written by another version ({type(error).__name__})"
        ) from None


def _split(data: bytes, sizes: list[int]) -> tuple[bytes, ...]:
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
    return tuple(data[end - size : end] for size, end in zip(sizes, ends, strict=True))
