"""gd, the heavy ball and nag, and any rule that is made of its usual figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocols.privacy.calibrate.rows import usual_rule
from protocols.updates.momentum import GradientDescent, HeavyBall, Nesterov
from protocols.updates.update import Update

if TYPE_CHECKING:
    from protocols.privacy.calibrate.sums import Case

DEFAULT_MOMENTUM = 0.9


def _steps(case: Case) -> dict[str, Any]:
    """Rounds, and the learning rate 1 / L."""
    rate = case.wanted.learning_rate or 1 / case.smoothness
    return {"rounds": case.rounds, "learning_rate": rate}


def descent(case: Case) -> Update:
    """gd, with a ridge if one is wanted."""
    return GradientDescent(**_steps(case), ridge=case.wanted.ridge or 0.0)


def heavy_ball(case: Case) -> Update:
    """hb likewise."""
    beta = DEFAULT_MOMENTUM if case.wanted.momentum is None else case.wanted.momentum
    return HeavyBall(**_steps(case), momentum=beta, ridge=case.wanted.ridge or 0.0)


def nesterov(case: Case) -> Update:
    """nag; with a ridge the one for strongly convex losses."""
    return case.rule("nag-sc") if case.wanted.ridge else Nesterov(**_steps(case))


def registered(case: Case) -> Update:
    """Any rule of the registry."""
    rate, constant = 1 / case.smoothness, case.model.curvature
    return usual_rule(case.figures, case.wanted, rounds=case.rounds, rate=rate, constant=constant)
