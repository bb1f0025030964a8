"""What a party encrypts of its rows' sums: what `rows.packed` has for rows, for these."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import logit

from parties.kernel.gram.sums import Array, gram_sensitivity, gram_sums, scaled_sums
from parties.kernel.integers import symmetric
from parties.kernel.rows import RowsSheet
from parties.kernel.rows.packed import hold_rows

HELD = math.inf
"""See `rows.packed`: these are not clipped."""


def noise_size(sheet: RowsSheet) -> tuple[int, ...]:
    """Shape of one party's noise on means."""
    d, c = sheet.num_features, max(1, sheet.num_outputs)
    return (symmetric.length(d) + d * c,)


def shapes(sheet: RowsSheet, rows: int) -> Sequence[tuple[int, ...]]:
    """Of the arrays of `values`, whoever's rows they are sums of."""
    d, c = sheet.num_features, max(1, sheet.num_outputs)
    return [(d, d), (d, c), *([(d, 1)] if sheet.row_sums else [])]


def least_move(sheet: RowsSheet) -> float:
    """How far two rows' parts of a release can be apart, at least."""
    return gram_sensitivity(sheet.bound, sheet.target_bound)


def values(
    sheet: RowsSheet, rows: Array, targets: Array, noise: Array, weight: Array | float = 1.0
) -> list[Array]:
    """See `scaled_sums`; of rows that a matrix has changed nothing is known but their norm."""
    if sheet.matrix:
        rows = np.asarray(rows @ np.array(sheet.matrix))
    hold_rows(sheet, rows, targets)
    if sheet.gamma:
        targets = logit(sheet.gamma * targets + (1 - sheet.gamma) / 2)
    targets = np.asarray(targets).reshape(len(rows), -1)
    bounds = (math.sqrt(sheet.num_features), sheet.target_bound) if sheet.law else None
    sums = gram_sums(rows, targets, noise, weight, bounds, sum(sheet.rows), sheet.bits)
    return scaled_sums(sums, sheet.scale, sheet.row_sums)
