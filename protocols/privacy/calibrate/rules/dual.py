"""Dual coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.updates.dual_ascent import DualAscent

if TYPE_CHECKING:
    from protocols.privacy.calibrate.sums import Case


def ascent(case: Case) -> DualAscent:
    """theta = v / (lambda N), in units of the rows' bound."""
    factor = 1 / (case.ridge * case.figures.rows * case.figures.norm_bound)
    return DualAscent(rounds=case.rounds, factor=factor)
