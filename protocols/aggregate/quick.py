"""Narrow discrete Gaussians in a tenth of the time of `laws.discrete`: errors of one-time sums."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from protocols.privacy.laws import RandomSource
from protocols.privacy.laws.discrete import thresholds

_PART = 1 << 17  # draws looked up at once: their addresses, 1 MB, stay in cache
_OPEN = -128
_TOP = 15


def quick_gaussian(sigma: float, count: int, randomness: RandomSource) -> NDArray[np.int8]:
    """Independent draws, int8 array, shape (count,): many of them.

    The upper 15 bits of the integer decide in all but one draw of a thousand, by a table of 2^16
    entries; 112 further bits are drawn where they do not. A tenth of `narrow_gaussian`'s time for a
    million draws, at the price that addresses depend on what is drawn: an attacker who watches the
    caches of a client's processor is not covered. (For a secret that masks them, that price is paid
    already: errors give it away.)

    sigma: 1 .. 7 [units], so that every magnitude is below 127; randomness: uniform words, one for
    four draws.
    """
    table = _table(sigma)
    drawn = np.empty(count, np.int8)
    places, kept = [], []
    for start in range(0, count, _PART):
        part = drawn[start : start + _PART]
        words = randomness.words(-(-len(part) // 4)).view(np.uint16)[: len(part)]
        np.take(table, words, mode="clip", out=part)
        undecided = np.flatnonzero(part == _OPEN)
        places.append(undecided + start)
        kept.append(words[undecided])
    if places:
        left = np.concatenate(kept).astype(np.uint64)
        drawn[np.concatenate(places)] = _decide(sigma, left, randomness)
    return drawn


def _decide(sigma: float, words: NDArray[np.uint64], randomness: RandomSource) -> NDArray[np.int8]:
    """With 49 more bits of the upper 64, and the 63 lower ones."""
    high, low = thresholds(sigma)
    more, rest = randomness.words(2 * len(words)).reshape(2, -1)
    top = (words >> np.uint64(1)) << np.uint64(64 - _TOP) | more >> np.uint64(_TOP)
    rest = rest >> np.uint64(1)
    reached = (top > high) | ((top == high) & (rest >= low))
    magnitude = reached.sum(axis=0).astype(np.int8)
    return np.where(words & np.uint64(1), -magnitude, magnitude).astype(np.int8)


@lru_cache(maxsize=8)
def _table(sigma: float) -> NDArray[np.int8]:
    """By word: the upper 15 bits of the magnitude's integer, then the sign; _OPEN: undecided."""
    high, low = (part.ravel() for part in thresholds(sigma))
    top = high >> np.uint64(64 - _TOP)
    within = (high << np.uint64(_TOP) | low) != 0  # a threshold that splits its word's draws
    reached = np.searchsorted(top + within, np.arange(1 << _TOP), side="right").astype(np.int8)
    table = np.stack([reached, -reached], axis=1)
    table[top[within]] = _OPEN
    table = table.ravel()
    table.setflags(write=False)
    return table
