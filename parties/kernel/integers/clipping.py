"""Rows of bounded norm, so that no rounding lifts the norm of a row above its bound.

Privacy: what becomes of a row is the same bit for bit whatever stands beside it. Products of
matrices and sums along rows are not, whose order depends on shape and place in memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError

Array = NDArray[np.float64]

NORM_LIMIT = 1 - 1e-12
"""Rows are clipped to this norm, so that no rounding lifts the norm of a row above 1."""
_BLOCK = 1 << 12


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
            added = squares[:, :half] + squares[:, half : 2 * half]
            if width % 2:
                added[:, 0] += squares[:, -1]
            squares = added
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
