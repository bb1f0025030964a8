"""Many draws of the narrow discrete Gaussian, by a table of 2^16 entries.

The law is that of `gaussian.narrow_gaussian`: a magnitude is the number of thresholds that a
uniform 127-bit integer reaches. Its upper 15 bits decide that in all but one draw of a thousand;
112 further bits are drawn where they do not. A tenth of the time for a million draws, at the price
that addresses depend on what is drawn: an attacker who watches the caches of a client's processor
is not covered. (For a secret that masks them, that price is paid already: errors give it away.)
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from protocols.aggregate.gaussian import thresholds
from protocols.privacy.randomness import RandomSource

_OPEN = -128
_TOP = 15


def quick_gaussian(sigma: float, count: int, randomness: RandomSource) -> NDArray[np.int8]:
    """Independent draws, int8 array, shape (count,).

    sigma: 1 .. 7 [units], so that every magnitude is below 127; randomness: uniform words, one for
    four draws.
    """
    table = _table(sigma)
    words = randomness.words(-(-count // 4)).view(np.uint16)[:count]
    drawn: NDArray[np.int8] = np.take(table, words, mode="clip")
    undecided = np.flatnonzero(drawn == _OPEN)
    if undecided.size:
        drawn[undecided] = _decide(sigma, words[undecided].astype(np.uint64), randomness)
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


@lru_cache(maxsize=2)
def _table(sigma: float) -> NDArray[np.int8]:
    """By word: the upper 15 bits of the magnitude's integer, then the sign; _OPEN: undecided."""
    high, low = (np.array(part, object).ravel() for part in thresholds(sigma))
    exact = [(int(h) << 63) | int(r) for h, r in zip(high, low, strict=True)]
    width = 127 - _TOP
    table = np.empty(1 << 16, np.int8)
    reached = 0
    for bucket in range(1 << _TOP):
        first, last = bucket << width, ((bucket + 1) << width) - 1
        while reached < len(exact) and exact[reached] <= first:
            reached += 1
        decided = reached == len(exact) or exact[reached] > last
        table[2 * bucket] = reached if decided else _OPEN
        table[2 * bucket + 1] = -reached if decided else _OPEN
    table.setflags(write=False)
    return table
