"""One party's part of the curvature that a run under the quadratic gradient divides by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parties.kernel.private import public_figure
from parties.kernel.sheet import LEEWAY, fits, longest

Array = NDArray[np.float64]
LIFT = 2.0**14  # of shares of a curvature, and of factors that LFFR multiplies a row by


def largest_row_sum(rows: Any, matrix: Sequence[Sequence[float]], held: float) -> float:
    """`row_sum_bound` by a party's public schema, 0 without one; matrix, held: see `longest`."""
    # A matrix undoes what is known of entries.
    entry = math.inf if matrix else getattr(public_figure(rows, "schema"), "entry_bound", 0.0)
    return row_sum_bound(longest(rows, matrix, held), rows.num_features, entry)


def row_sum_bound(norm: float, num_features: int, entry: float) -> float:
    """What |x_k| sum_j |x_j| of no row x with |x| <= norm and |x_j| <= entry exceeds.

    The first is attained: (1 + sqrt(d)) / 2 is the largest eigenvalue of the form x_k sum_j x_j.
    """
    root = math.sqrt(num_features)
    return min(norm**2 * (1 + root) / 2, entry * min(root * norm, num_features * entry))


def in_range(curvature: Sequence[float], largest: float) -> bool:
    """Whether curvature of rows that add `largest` ends in its range: see `curvature_share`."""
    constant, high, offset = curvature
    stays = constant * largest <= (high - offset) * LEEWAY
    return constant > 0 and fits(high) and 0 <= offset < high and stays


def curvature_share(curvature: Sequence[float], rows: Array, num_rows: int) -> Array:
    """One party's part of LIFT b / high, at most LIFT, shape (d,): see `protocols.rows.curvature`.

    curvature: its constant, end and offset, see `in_range`; num_rows: of all parties.
    """
    constant, high, _ = curvature
    absolute = np.abs(rows)
    share: Array = LIFT * constant / (num_rows * high) * (absolute.T @ absolute.sum(axis=1))
    return share
