"""nag with a ridge and MASG; divided: noise as the error bound says, over its T' <= T.

T' is taken where T is not given otherwise than by noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocols.updates.strongly_convex import (
    MultiStage,
    StronglyConvexNesterov,
    recommended_first_stage,
)

if TYPE_CHECKING:
    from protocols.privacy.calibrate.sums import Case


def constant(case: Case) -> StronglyConvexNesterov:
    """One step and one momentum for all iterations."""
    return StronglyConvexNesterov(**_fields(case))


def stages(case: Case) -> StronglyConvexNesterov:
    """Steps that fall from stage to stage."""
    return MultiStage(**_fields(case), **_first(case))


def divided(case: Case) -> StronglyConvexNesterov:
    """`constant`, divided."""
    return _shortened(case, StronglyConvexNesterov(**_fields(case), division=case.noise.division))


def divided_stages(case: Case) -> StronglyConvexNesterov:
    """`stages`, divided."""
    fields = {**_fields(case), **_first(case)}
    return _shortened(case, MultiStage(**fields, division=case.noise.division))


def _fields(case: Case) -> dict[str, Any]:
    return {
        "rounds": case.rounds,
        "mu": case.ridge,
        "smoothness": case.smoothness,
        "ridge": case.ridge,
    }


def _first(case: Case) -> dict[str, Any]:
    return {"first_stage": recommended_first_stage(case.ridge, case.smoothness)}


def _shortened(case: Case, rule: StronglyConvexNesterov) -> StronglyConvexNesterov:
    if case.wanted.epsilon is None:
        return rule
    return rule.shortened(
        sensitivity=2 * case.clip * case.row_weight,
        budget=case.budget,
        dim=case.length,
        # E_0 of the error bound for T: twice the loss at zero.
        initial_error=2 * case.model.start_loss(case.figures.outputs),
    )
