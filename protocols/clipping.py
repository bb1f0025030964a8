"""Rows of bounded norm, so that no rounding lifts the norm of a row above its bound."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError

Array = NDArray[np.float64]

NORM_LIMIT = 1 - 1e-12
"""Rows are clipped to this norm, so that no rounding lifts the norm of a row above 1."""


def clip_rows(rows: Array, norm: float) -> tuple[Array, int]:
    """Rows / norm, clipped to norm 1; and how many were clipped.

    rows: shape (rows, d). norm: c > 0; a row of norm c at most is divided by c alone.

    Raises:
        ParameterError: norm is not a finite number above 0.
    """
    if not 0 < norm < np.inf:
        raise ParameterError(f"norm={norm} is not a finite number > 0")
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    scaled: Array = rows * (NORM_LIMIT / np.maximum(norms, NORM_LIMIT * norm))[:, None]
    return scaled, int(np.count_nonzero(norms > norm))
