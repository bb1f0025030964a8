"""Narrow discrete Gaussians whose draws no address depends on: few, of a secret and its errors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protocols.privacy.laws import RandomSource
from protocols.privacy.laws.discrete import thresholds

_BLOCK = 1024  # draws compared at once: flags below 100 kB stay in cache
_LOW = np.uint64(1)


def narrow_gaussian(sigma: float, count: int, randomness: RandomSource) -> NDArray[np.int64]:
    """Independent draws of the law of `discrete`, int64 array, shape (count,).

    Every draw is compared with every threshold.

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
