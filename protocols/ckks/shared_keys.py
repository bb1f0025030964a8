"""What every party of a run is handed alike, once in a process: the joint keys, and points.

A simulation of 200 hospitals would hold the keys 200 times. Whoever is handed the same halves of
keys gets the same arrays, whoever has the same keys the same context, and whoever multiplies the
same point the same rotations of it.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar, cast

from protocols.ckks.context import CkksContext, unload
from protocols.ckks.parameters import CkksParameters
from protocols.ckks.residues import Residues

T = TypeVar("T")


class Chunk:
    """Halves of evaluation keys that came with one message; digest: SHA-256."""

    __slots__ = ("__weakref__", "digest", "halves")

    def __init__(self, halves: Sequence[Residues], digest: bytes) -> None:
        self.halves, self.digest = tuple(halves), digest


_CHUNKS: weakref.WeakValueDictionary[bytes, Chunk] = weakref.WeakValueDictionary()
_CONTEXTS: weakref.WeakValueDictionary[bytes, CkksContext] = weakref.WeakValueDictionary()
_LAST: weakref.WeakKeyDictionary[CkksContext, dict[str, tuple[Hashable, object]]] = (
    weakref.WeakKeyDictionary()
)


def chunk_of(halves: Sequence[Residues]) -> Chunk:
    """These halves, or equal ones that are here already."""
    hashed = hashlib.sha256()
    for half in halves:
        hashed.update(half.tobytes())
    digest = hashed.digest()
    found = _CHUNKS.get(digest)
    if found is None:
        found = _CHUNKS[digest] = Chunk(halves, digest)
    return found


def loaded_context(
    params: CkksParameters,
    session: str,
    chunks: Sequence[Chunk],
    load: Callable[[CkksContext], None],
) -> CkksContext:
    """A context that has the keys of these chunks; load: makes them usable in a new one.

    The keys are forgotten with the last reference to it.
    """
    name = hashlib.sha256(b"".join(chunk.digest for chunk in chunks) + session.encode()).digest()
    found = _CONTEXTS.get(name)
    if found is None:
        found = CkksContext(params, session)
        load(found)
        weakref.finalize(found, unload, found.tag)
        _CONTEXTS[name] = found
    return found


def once(context: CkksContext, kind: str, name: Hashable, make: Callable[[], T]) -> T:
    """What `make` makes of public things, once for all who share a context.

    name: says all that it depends on; of a kind, the last one alone is remembered.
    """
    kinds = _LAST.setdefault(context, {})
    known = kinds.get(kind)
    if known is None or known[0] != name:
        known = kinds[kind] = (name, make())
    return cast(T, known[1])
