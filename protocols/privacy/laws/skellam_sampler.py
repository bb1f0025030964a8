"""Draws of Skellam noise, exact to 2^-100; what it costs is in `skellam`.

Inversion from integers alone. P(k) / P(end) for k = end .. 0 comes from
I_{k-1} = I_{k+1} + (2 k / v) I_k, all terms positive, started as 0, 2^192 beyond 16 standard
deviations (Miller), normalised by its own sum. Distance from the exact law in total variation:
what lies beyond has probability below 2^-147 (P(X >= k) <= exp(v (cosh s - 1) - s k) at
sinh s = k / v), and the start adds as much to each term; a division rounds by 2^-192 of a term, a
sum by 2^-128. At most 2^18 terms make that less than 2^-109 a draw, and less than 2^-100 for the
4^4 draws of a value: a variance above 2^26 is split into equal parts, which add up to exactly the
law.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from protocols.privacy.laws.discrete import Integers
from protocols.privacy.laws.randomness import RandomSource, random_bits

_TABLE_VARIANCE = 1 << 26
_END = 16  # of a table [standard deviations]


@lru_cache(maxsize=4)
def _table(variance: int) -> tuple[list[int], NDArray[np.uint64]]:
    """floor(2^128 P(|X| <= k)) for k = 0 .. end, and the upper 64 bits of each."""
    end = _END * (math.isqrt(variance) + 2)
    terms = [0, 1 << 192]
    for k in range(end, 0, -1):
        terms.append(terms[-2] + 2 * k * terms[-1] // variance)
    both_signs = [terms[-1], *(2 * term for term in terms[-2:0:-1])]
    total = sum(both_signs)
    cumulative = [(part << 128) // total for part in accumulate(both_signs)]
    upper = np.array([min(c >> 64, 2**64 - 1) for c in cumulative], dtype=np.uint64)
    return cumulative, upper


def _draw(variance: int, count: int, randomness: RandomSource) -> Integers:
    """From a table: the first k whose cumulative exceeds 128 uniform bits, with a fair sign."""
    cumulative, upper = _table(variance)
    words = randomness.words(count)
    found = np.searchsorted(upper, words).astype(np.int64)
    # The lower 64 bits are drawn where the upper ones do not decide.
    for i in np.flatnonzero(upper[found] == words):
        low = int(randomness.words(1)[0])
        found[i] = bisect_right(cumulative, int(words[i]) << 64 | low)
    signed: Integers = np.where(random_bits(randomness, count), -found, found)
    return signed


def skellam(variance: int, count: int, randomness: RandomSource) -> Integers:
    """Draws of Sk(variance), an integer >= 0; int64 array, shape (count,), i.i.d.

    Above 2^26 the variance is rounded up to a multiple of the number of parts, a power of 4.
    """
    if variance == 0:
        return np.zeros(count, dtype=np.int64)
    parts = 1
    while variance > parts * _TABLE_VARIANCE:
        parts *= 4
    total = np.zeros(count, dtype=np.int64)
    for _ in range(parts):
        total += _draw(-(-variance // parts), count, randomness)
    return total
