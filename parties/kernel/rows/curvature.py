"""One party's part of the curvature that a run under the quadratic gradient divides by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from protocols.errors import DataError

Array = NDArray[np.float64]
SLACK = 1 + 1e-9  # of float64: rounding
LIFT = 2.0**14  # of shares of a curvature, and of factors that LFFR multiplies a row by


def curvature_share(curvature: Sequence[float], rows: Array, num_rows: int) -> Array:
    """One party's part of LIFT b / high, at most LIFT, shape (d,): see `protocols.rows.curvature`.

    curvature: its constant, end and offset; num_rows: of all parties.

    Raises:
        DataError: the rows exceed the public bound behind the range's end.
    """
    constant, high, offset = curvature
    absolute = np.abs(rows)
    share: Array = constant / (num_rows * high) * (absolute.T @ absolute.sum(axis=1))
    # Each row may use its part of what the range leaves.
    if np.max(share, initial=0.0) > (1 - offset / high) * len(rows) / num_rows * SLACK:
        raise DataError("the rows exceed the public bounds of the curvature; clamp them")
    return LIFT * share
