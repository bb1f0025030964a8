"""What a party encrypts of its rows for LFFR: what `rows.packed` has for other models."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from parties.kernel.rows import RowsSheet
from parties.kernel.rows.curvature import LIFT, curvature_share
from parties.kernel.rows.packed import HELD, Array, hold_rows
from protocols.errors import PolicyError

__all__ = ["HELD", "least_move", "noise_size", "shapes", "values"]


def noise_size(sheet: RowsSheet) -> tuple[int, ...]:
    """Shape of one party's noise on means."""
    return sheet.rounds, sheet.num_features, max(1, sheet.num_outputs)


def shapes(sheet: RowsSheet, rows: int) -> Sequence[tuple[int, ...]]:
    """Of the arrays of `values`; rows: of the party."""
    d, c = sheet.num_features, max(1, sheet.num_outputs)
    return [(rows, d, c)] * 2 + [(1 if sheet.curvature else sheet.rounds, d, c)]


def least_move(sheet: RowsSheet) -> float:
    """How far two rows' parts of a release can be apart, at least: those at zero weights."""
    return math.sqrt(sheet.num_outputs) * sheet.bound / 4


def values(
    sheet: RowsSheet, rows: Array, targets: Array, noise: Array, weight: Array | float = 1.0
) -> list[Array]:
    """LIFT c x_i for each output, LIFT c x_i (1/2 - y_i) / A; noise, or share.

    Shapes (rows, d, c), twice, and (T, d, c), with a curvature (1, d, c).
    """
    hold_rows(sheet, rows, targets)
    if targets.shape[1:] != (sheet.num_outputs,):
        raise PolicyError(f"num_outputs={sheet.num_outputs} is not this party's")
    factors = (0.5 - targets) / sheet.start
    repeated = np.repeat((sheet.scale * rows)[:, :, None], factors.shape[1], axis=2)
    terms = repeated * factors[:, None, :]
    if sheet.curvature:
        shape = (1, sheet.num_features, sheet.num_outputs)
        side = np.broadcast_to(
            curvature_share(sheet.curvature, rows, sum(sheet.rows))[None, :, None], shape
        )
    else:
        side = sum(sheet.rows) * noise / sheet.side
    return [LIFT * repeated, LIFT * terms, np.array(side)]
