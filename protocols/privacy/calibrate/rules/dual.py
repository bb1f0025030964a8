"""Dual coordinates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from protocols.errors import ParameterError
from protocols.privacy.calibrate.sums import draft_sums
from protocols.sums.dual import DualObjective
from protocols.updates.dual_ascent import DualAscent

if TYPE_CHECKING:
    from protocols.privacy.calibrate.figures import Draft, PublicFigures, Wanted
    from protocols.privacy.calibrate.sums import Case


def ascent(case: Case) -> DualAscent:
    """theta = v / (lambda N), in units of the rows' bound."""
    factor = 1 / (case.ridge * case.figures.rows * case.figures.norm_bound)
    return DualAscent(rounds=case.rounds, factor=factor)


def objective(case: Case) -> DualObjective:
    """Without a clip: no step from 0 is longer, see `parties.kernel.sums.dual_steps`."""
    wanted = case.wanted
    found = DualObjective(
        loss=wanted.loss or "logistic",
        ridge=case.ridge,
        batches=wanted.batches,
        clip=wanted.clip or 1.0,
        schedule=wanted.schedule,
        row_scale=case.figures.norm_bound,
    )
    if wanted.clip or found.loss != "ridge":
        return found
    curvature = found.plan(rows=case.figures.rows, rounds=1).curvature
    return replace(found, clip=1 / (1 + curvature))


def draft_ridge(figures: PublicFigures, wanted: Wanted) -> Draft:
    """Ridge regression of one numeric target, by steps of dual coordinates.

    Raises:
        ParameterError, PrivacyError: options that do not fit; see `choose_sums`.
    """
    for name, value, taken, cure in (
        ("target", figures.outputs, (1,), "fits one target: run once for each"),
        ("update", wanted.update, ("", "scd"), "takes scd: leave it out"),
        ("loss", wanted.loss, (None, "ridge"), "takes ridge: leave it out"),
        ("floor", wanted.floor, (None,), "inverts no curvature: leave it out"),
    ):
        if value not in taken:
            raise ParameterError(f"{name}={value}: model linear by {wanted.protocol} {cure}")
    return draft_sums(figures, replace(wanted, update="scd", loss="ridge"))
