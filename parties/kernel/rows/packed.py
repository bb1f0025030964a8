"""What a party encrypts of its rows once: the rows themselves, or sums of them with noise.

Arrays of numbers only. In which slots they stand is public, and somebody else's word, which the
session that encrypts them checks (`rows.session`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parties.kernel import named
from parties.kernel.integers import clip_rows, row_norms
from parties.kernel.rows import RowsSheet
from parties.kernel.rows.curvature import curvature_share
from parties.kernel.sheet import SLACK
from protocols.errors import DataError, PolicyError
from protocols.privacy.laws import RandomSource
from protocols.privacy.laws.discrete import between, discrete_gaussian

Array = NDArray[np.float64]
HELD = 1.0
"""Norm that rows are clipped to once a matrix has changed them."""
KINDS = {
    "rows": "parties.kernel.rows.packed",
    "lffr": "parties.kernel.lffr.numbers",
    "gram": "parties.kernel.gram.numbers",
}


def numbers(sheet: RowsSheet, protocols: Collection[str]) -> Any:
    """The module that makes a sheet's numbers, such as this one; protocols: of an owner.

    Raises:
        PolicyError: there is none, or the owner takes no part in these.
    """
    if sheet.kind not in KINDS:
        raise PolicyError("the sheet of this run is refused: kind")
    return named(KINDS[sheet.kind], protocols)


def noise_size(sheet: RowsSheet) -> tuple[int, ...]:
    """Shape of one party's noise on means."""
    return sheet.rounds, sheet.num_features


def shapes(sheet: RowsSheet, rows: int) -> Sequence[tuple[int, ...]]:
    """Of the arrays of `values`; rows: of the party."""
    d = sheet.num_features
    return [(rows, d), (sheet.rounds + bool(sheet.curvature), d)]


def least_move(sheet: RowsSheet) -> float:
    """How far two rows' parts of a release can be apart, at least: those at zero weights.

    No less than those of p(0) = 1/2: a start that leaves a label nothing is far from it elsewhere.
    """
    labels = (1.0,) if sheet.signed else (0.0, 1.0)
    return 2 * max(0.5, *(abs(sheet.start - y) for y in labels)) * sheet.bound


def draw_noise(sheet: RowsSheet, shape: tuple[int, ...], randomness: RandomSource) -> Array:
    """One party's share, of `noise_size`; zeros without privacy."""
    if not sheet.law:
        return np.zeros(shape)
    units = discrete_gaussian(sheet.units, math.prod(shape), randomness).astype(np.float64)
    if sheet.kind != "gram":  # whose sums are rounded to the grid
        units += between(units.size, randomness)
    return np.ldexp(units, -sheet.bits).reshape(shape)


def values(
    sheet: RowsSheet, rows: Array, targets: Array, noise: Array, weight: Array | float = 1.0
) -> list[Array]:
    """Arrays in the order in which `place` of a plan takes them.

    Rows c x_i, shape (rows, d); side columns sum_i x_i (p(0) - y_i) + N chi_t over their scale.
    With a curvature its share stands before them: shape (1 + T, d).

    rows: shape (rows, d), bias last; targets: on [0, 1]; noise: of `draw_noise`; weight: on [0, 1],
    where the kind knows weights.

    Raises:
        PolicyError, DataError: a row is beyond what the sheet says of all.
    """
    y = targets.ravel()
    if sheet.matrix:
        rows = clip_rows(np.asarray(rows @ np.array(sheet.matrix)), HELD)[0]
    if sheet.signed:
        rows, y = rows * (2 * y - 1)[:, None], np.ones_like(y)
    hold_rows(sheet, rows, y)
    linear = rows.T @ (sheet.start - y) + sum(sheet.rows) * noise
    columns = linear / sheet.side
    if sheet.curvature:
        columns = np.concatenate(
            [curvature_share(sheet.curvature, rows, sum(sheet.rows))[None, :], columns]
        )
    return [sheet.scale * rows, columns]


def hold_rows(sheet: RowsSheet, rows: Array, targets: Array) -> None:
    """Refuse what is beyond the sheet; written so that what is not a number is refused.

    Raises:
        DataError, PolicyError: a target, or a row.
    """
    if not ((targets >= 0) & (targets <= 1)).all():
        raise DataError("targets outside [0, 1]; scale and clamp them by their public ranges")
    if not (row_norms(rows) <= sheet.bound * SLACK).all():
        raise PolicyError(f"a row is longer than bound={sheet.bound}")
