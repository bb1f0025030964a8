"""Narrow discrete Gaussians by table: P(k) ~ exp(-k^2 / (2 sigma^2)), 127 bits of precision.

A magnitude is the number of thresholds that a uniform 127-bit integer reaches; every draw is
compared with every threshold, so that no address depends on it. The sign is the
128th bit: "minus zero" is zero, whose probability is not doubled in the table.
Law: thresholds are rounded to 2^-127 and the tail beyond the last is cut, so the total variation
distance to the exact law is at most (thresholds + 1) 2^-127 < 2^-119 for sigma <= 16.
`protocols.privacy.discrete` is exact for every sigma and several times slower.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from protocols.privacy.randomness import RandomSource

_BITS = 127
_BLOCK = 1024  # draws compared at once: flags below 100 kB stay in cache
_LOW = np.uint64(1)


def narrow_gaussian(sigma: float, count: int, randomness: RandomSource) -> NDArray[np.int64]:
    """Independent draws, int64 array, shape (count,).

    sigma: 1 .. 16 [units]; randomness: uniform words, two for each draw.
    """
    high, low = thresholds(sigma)
    out = np.empty(count, np.int64)
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        top, bottom = randomness.words(2 * size).reshape(2, size)
        reached = top > high
        tied = top == high
        if tied.any():  # once in 2^57 draws
            reached |= tied & (bottom >> _LOW >= low)
        magnitude = reached.sum(axis=0, dtype=np.uint8).astype(np.int64)
        negative = (bottom & _LOW).astype(np.int64)
        out[start : start + size] = (magnitude ^ -negative) + negative
    return out


@lru_cache(maxsize=4)
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
