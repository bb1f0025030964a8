"""Sums over rows in integers: rows of bounded norm, and blocks of them that are added exactly.

Privacy: what becomes of a row is the same bit for bit whatever stands beside it. Products of
matrices and sums along rows are not, whose order depends on shape and place in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import frexp

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError

Array = NDArray[np.float64]
CHUNK = 1 << 18
"""Values of parts that are held at once."""
PART_BITS = 42
"""Of the bound of a part: the sum of a block is exact in float64."""
REST_BITS = 38
"""Of a part, below PART_BITS: a block of CHUNK rows fits int64."""
NORM_LIMIT = 1 - 1e-12
"""Rows are clipped to this norm, so that no rounding lifts the norm of a row above 1."""
_BLOCK = 1 << 12


def added(
    parts: Callable[[slice], Array], rows: int, length: int, largest: float
) -> tuple[NDArray[np.object_], int]:
    """Sums of numbers up to `largest`, 80 bits of it each, without a clip; those beyond are cut.

    For what no certificate bounds row by row. parts: of some rows, shape (rows, length). Returns
    (units, bits), of units 2^-bits: to float64's own precision, and each row rounded by itself.
    """
    bits = PART_BITS - frexp(largest)[1]
    high: NDArray[np.object_] = np.zeros(length, object)
    low: NDArray[np.object_] = np.zeros(length, object)
    for block in blocks(rows, length):
        # Not at the next power of two: a sum of these could be beyond its range.
        most = np.ldexp(largest, bits)
        scaled = np.clip(np.ldexp(parts(block), bits), -most, most)
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


def row_norms(rows: Array) -> Array:
    """Euclidean norm of each row, shape (rows,), of shape (rows, d), d >= 1.

    Squares are added in pairs, (x_1^2 + x_(h+1)^2), …, h = floor(d / 2), an array of all rows at a
    time: an order that follows from d alone.
    """
    found = np.empty(len(rows))
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        squares = block * block
        while (width := squares.shape[1]) > 1:
            half = width // 2
            pairs = squares[:, :half] + squares[:, half : 2 * half]
            if width % 2:
                pairs[:, 0] += squares[:, -1]
            squares = pairs
        found[start : start + _BLOCK] = np.sqrt(squares[:, 0])
    return found


def clip_rows(rows: Array, norm: float) -> tuple[Array, int]:
    """Rows / norm, clipped to norm 1; and how many were clipped.

    rows: shape (rows, d). norm: c > 0; a row of norm c at most is divided by c alone.

    Raises:
        ParameterError: norm is not a finite number above 0.
    """
    if not 0 < norm < np.inf:
        raise ParameterError(f"norm={norm} is not a finite number > 0")
    norms = row_norms(rows)
    scaled: Array = rows * (NORM_LIMIT / np.maximum(norms, NORM_LIMIT * norm))[:, None]
    return scaled, int(np.count_nonzero(norms > norm))
