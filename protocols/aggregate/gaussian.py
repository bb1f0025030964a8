"""Narrow discrete Gaussians by table: P(k) ~ exp(-k^2 / (2 sigma^2)), 127 bits of precision.

A magnitude is the number of thresholds that a uniform 127-bit integer reaches. The sign is the
128th bit: "minus zero" is zero, whose probability is not doubled in the table.
Law: thresholds are rounded to 2^-127 and the tail beyond the last is cut, so the total variation
distance to the exact law is at most (thresholds + 1) 2^-127 < 2^-119 for sigma <= 16.
`protocols.privacy.laws.discrete` is exact for every sigma and several times slower.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from protocols.privacy.laws.randomness import RandomSource

_BITS = 127
_PART = 1 << 17  # draws looked up at once: their addresses, 1 MB, stay in cache
_OPEN = -128
_TOP = 15


@lru_cache(maxsize=8)
def thresholds(sigma: float) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """P(|k| <= j) 2^127 rounded, j = 0, 1, …, below 2^127, as high 64 and low 63 bits, columns."""
    cumulative = []
    with localcontext() as context:
        context.prec = 60
        width = 2 * Decimal(sigma) ** 2
        # exp(-k^2 / (2 sigma^2)) < 2^-190 beyond 16.3 sigma.
        weights = [(-Decimal(k * k) / width).exp() for k in range(int(17 * sigma) + 2)]
        total = 2 * sum(weights) - 1
        mass = Decimal(-1)
        for weight in weights:
            mass += 2 * weight
            cumulative.append(round(mass / total * 2**_BITS))
    kept = [c for c in cumulative if c < 1 << _BITS]
    low_bits = _BITS - 64
    high = np.array([c >> low_bits for c in kept], np.uint64)[:, None]
    low = np.array([c & ((1 << low_bits) - 1) for c in kept], np.uint64)[:, None]
    return high, low


def quick_gaussian(sigma: float, count: int, randomness: RandomSource) -> NDArray[np.int8]:
    """Independent draws, int8 array, shape (count,): many of them.

    The upper 15 bits of the integer decide in all but one draw of a thousand, by a table of 2^16
    entries; 112 further bits are drawn where they do not. A tenth of `narrow`'s time for a million
    draws, at the price that addresses depend on what is drawn: an attacker who watches the caches
    of a client's processor is not covered. (For a secret that masks them, that price is paid
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
