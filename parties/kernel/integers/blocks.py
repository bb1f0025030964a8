"""Rows a block at a time, and sums of numbers that no certificate bounds row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import frexp

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
CHUNK = 1 << 18
"""Values of parts that are held at once."""
PART_BITS = 42
"""Of the bound of a part: the sum of a block is exact in float64."""
REST_BITS = 38
"""Of a part, below PART_BITS: a block of CHUNK rows fits int64."""


def added(
    parts: Callable[[slice], Array], rows: int, length: int, largest: float
) -> tuple[NDArray[np.object_], int]:
    """Sums of numbers up to `largest`, 80 bits of it each, without a clip; those beyond are cut.

    parts: of some rows, shape (rows, length). Returns (units, bits), of units 2^-bits: to float64's
    own precision, and each row rounded by itself.
    """
    bits = PART_BITS - frexp(largest)[1]
    high: NDArray[np.object_] = np.zeros(length, object)
    low: NDArray[np.object_] = np.zeros(length, object)
    for block in blocks(rows, length):
        scaled = np.clip(np.ldexp(parts(block), bits), -(2.0**PART_BITS), 2.0**PART_BITS)
        scaled = np.where(np.isnan(scaled), 0.0, scaled)  # no integer stands for it
        whole = np.trunc(scaled)
        rest = np.trunc(np.ldexp(scaled - whole, REST_BITS))
        high, low = (
            total + each.astype(np.int64).sum(axis=0).astype(object)
            for total, each in ((high, whole), (low, rest))
        )
    return (high << REST_BITS) + low, bits + REST_BITS


def blocks(rows: int, width: int) -> Iterator[slice]:
    """Slices of so many rows, each of CHUNK values."""
    step = max(1, CHUNK // max(1, width))
    return (slice(start, start + step) for start in range(0, max(1, rows), step))
