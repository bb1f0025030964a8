"""What every party of a run is handed alike, once in a process: requests, joint keys, points.

A simulation of 200 hospitals would hold the keys 200 times. Whoever is in the same session gets the
same public context, whoever is sent the same bytes the same arrays, whoever has the same keys the
same loaded context, and whoever multiplies the same point the same rotations of it. What a party
checks, it checks itself: signatures and hashes of what it was sent, others' commitments.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import openfhe

from protocols.ckks import CkksParameters
from protocols.ckks.context import (
    LOADED,
    ciphertext_frame,
    frames_of,
    open_context,
)
from protocols.ckks.evaluation import CkksContext, unload
from protocols.ckks.lift import key_frame, zero_public_key
from protocols.ckks.residues import Residues

T = TypeVar("T")


class Chunk:
    """Halves of evaluation keys that came with one message."""

    __slots__ = ("__weakref__", "halves")

    def __init__(self, halves: Sequence[Residues]) -> None:
        self.halves = tuple(halves)

    def __iter__(self) -> Iterator[Residues]:
        return iter(self.halves)

    def __len__(self) -> int:
        return len(self.halves)

    def holds(self, halves: Sequence[Residues]) -> bool:
        """Whether they are these."""
        alike = len(halves) == len(self.halves)
        return alike and all(map(_equal, self.halves, halves))


def _equal(left: Residues, right: Residues) -> bool:
    """Other keys differ in their first row."""
    return left is right or (np.array_equal(left[0], right[0]) and np.array_equal(left, right))


_CHUNKS: weakref.WeakSet[Chunk] = weakref.WeakSet()
_PUBLIC: weakref.WeakValueDictionary[tuple[CkksParameters, str], CkksContext] = (
    weakref.WeakValueDictionary()
)
_LOADED: weakref.WeakValueDictionary[tuple[str, tuple[int, ...]], CkksContext] = (
    weakref.WeakValueDictionary()
)
_LAST: weakref.WeakKeyDictionary[CkksContext, dict[str, OrderedDict[Hashable, object]]] = (
    weakref.WeakKeyDictionary()
)


def public_context(params: CkksParameters, session: str) -> CkksContext:
    """The context of a session, without keys."""
    found = _PUBLIC.get((params, session))
    if found is None:
        found = _PUBLIC[params, session] = CkksContext(params, session)
    return found


def chunk_of(halves: Sequence[Residues]) -> Chunk:
    """These halves, or equal ones that are here already."""
    found = next((chunk for chunk in _CHUNKS if chunk.holds(halves)), None)
    if found is None:
        found = Chunk(halves)
        _CHUNKS.add(found)
    return found


def loaded_context(
    session: str, chunks: Sequence[Chunk], make: Callable[[], CkksContext]
) -> CkksContext:
    """A context that has the keys of these chunks; made once, and forgotten with its last user."""
    name = session, tuple(map(id, chunks))
    found = _LOADED.get(name)
    if found is None:
        found = _LOADED[name] = make()
        # Chunks live as long as the context that is known by their places.
        weakref.finalize(found, lambda held: None, chunks)
    return found


def once(
    context: CkksContext, kind: str, name: Hashable, make: Callable[[], T], held: int = 1
) -> T:
    """What `make` makes of public things, once for all who share a context.

    name: says all that it depends on; held: how many of a kind are remembered, the last ones.
    """
    known = _LAST.setdefault(context, {}).setdefault(kind, OrderedDict())
    if name in known:
        known.move_to_end(name)
        return cast(T, known[name])
    while len(known) >= held:
        known.popitem(last=False)
    made = known[name] = make()
    return made


def forget(context: CkksContext, kind: str) -> None:
    """Nobody needs what `once` made of a kind any more."""
    _LAST.get(context, {}).pop(kind, None)


class MemoryBudget:
    """Memory for encoded rows; parties of one process have equal parts of it.

    total: of the process [bytes].
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._parties: weakref.WeakSet[Any] = weakref.WeakSet()

    def enter(self, party: Any) -> None:
        """One more, until it leaves or is forgotten."""
        self._parties.add(party)

    def leave(self, party: Any) -> None:
        """It has no encoded rows any more."""
        self._parties.discard(party)

    @property
    def share(self) -> int:
        """Of each party [bytes]."""
        return self.total // max(1, len(self._parties))


ENCODED_ROWS = MemoryBudget(9 << 28)
"""Of this process. Rows that find no room are encoded again in every round."""


class Shared:
    """One party's part of what its process has once: `parties.kernel.model.session.Alone`."""

    kept, loaded, once = staticmethod(chunk_of), staticmethod(loaded_context), staticmethod(once)
    context = staticmethod(public_context)

    def __init__(self) -> None:
        ENCODED_ROWS.enter(self)

    @property
    def room(self) -> int:
        """For encoded rows [bytes]."""
        return ENCODED_ROWS.share

    def leave(self) -> None:
        """This party has no encoded rows any more."""
        ENCODED_ROWS.leave(self)


def release() -> None:
    """Forget every context and key of this process (OpenFHE keeps them for ever otherwise)."""
    for tag in [*LOADED]:
        unload(tag)
    for cache in (open_context, frames_of, ciphertext_frame, key_frame, zero_public_key):
        cache.cache_clear()
    openfhe.ReleaseAllContexts()
