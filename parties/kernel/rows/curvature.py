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
    """What |x_k| sum_j |x_j| of no row x and column k exceeds, by its public schema; 0 without one.

    matrix, held: see `longest`. Of |x| <= c it is c^2 (1 + sqrt d) / 2, the largest eigenvalue of
    the form x_k sum_j x_j; of |x_j| <= a, which a matrix undoes, a min(sqrt(d) c, d a).
    """
    schema, d = public_figure(rows, "schema"), rows.num_features
    c, a = longest(rows, matrix, held), math.inf if matrix else getattr(schema, "entry_bound", 0.0)
    return float(min(c**2 * (1 + math.sqrt(d)) / 2, a * min(math.sqrt(d) * c, d * a)))


def in_range(curvature: Sequence[float], largest: float) -> bool:
    """Whether rows' curvature ends within its range; curvature: see `curvature_share`."""
    constant, high, offset = curvature
    reaches = constant * largest <= (high - offset) * LEEWAY
    return constant > 0 and fits(high) and 0 <= offset < high and reaches


def curvature_share(curvature: Sequence[float], rows: Array, num_rows: int) -> Array:
    """One party's part of LIFT b / high, at most LIFT, shape (d,): see `protocols.rows.curvature`.

    curvature: its constant, end and offset, see `in_range`; num_rows: of all parties.
    """
    constant, high, _ = curvature
    absolute = np.abs(rows)
    share: Array = LIFT * constant / (num_rows * high) * (absolute.T @ absolute.sum(axis=1))
    return share
