"""The session before a run: it opens the noisy gradient at zero, on which the run's d rests.

It is a session of the secure-aggregation protocol of one round: gradient descent of rate 1 from
zero, so that the released weights are minus the noisy mean gradient. The plan of the main run holds
that session's plan and what it released; a party compares both with what it saw there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from protocols.errors import ParameterError
from protocols.gradients import GradientPlan
from protocols.objectives import GRADIENT, RowObjective
from protocols.privacy.start_gradient import WORST, StartRelease
from protocols.updates.gradient_descent import GradientDescent

RULE = GradientDescent(rounds=1, learning_rate=1.0)
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class StartGradient:
    """A finished session at zero.

    plan: its plan; released: the weights of its `finish`; failure: probability p that the bound
    on the gradient's norm fails.

    Raises:
        ParameterError: the plan is of another kind of session.
    """

    plan: GradientPlan
    released: tuple[float, ...]
    failure: float

    def __post_init__(self) -> None:
        """Check the fields."""
        plan = self.plan
        if plan.privacy is None or plan.mechanism != "gaussian":
            raise ParameterError("start: the gradient at zero is released with Gaussian noise only")
        if plan.update != RULE.to_dict() or plan.queries != (GRADIENT,) or plan.weights:
            raise ParameterError("start: the session is not one step of rate 1 down the mean loss")
        if not isinstance(plan.task, RowObjective) or plan.task.kind != "logistic":
            raise ParameterError("start: the objective is not the logistic loss")
        if len(self.released) != plan.length or not all(map(math.isfinite, self.released)):
            raise ParameterError(f"start: released must have {plan.length} finite values")
        _ = self.release

    @property
    def release(self) -> StartRelease:
        """For the certificate."""
        plan = self.plan
        parties, root = len(plan.members), math.sqrt(plan.length)
        rounding = root * (parties * plan.grid(0).unit / 2 + plan.cipher.error_bound)
        return StartRelease(
            norm=math.hypot(*self.released) * (1 + 1e-12),
            sigma=plan.noise_scales[0],
            failure=self.failure,
            rounding=rounding,
        )

    def check_rows(self, norm_bound: float) -> None:
        """Refuse a clip that changes gradients, or that lets a row count more than B_x / 2.

        Raises:
            ParameterError: clip is not norm_bound / 2.
        """
        clip = self.plan.objective["clip"]
        if not math.isclose(clip, WORST * norm_bound, rel_tol=ROUNDING):
            raise ParameterError(
                f"start: clip={clip} is not {WORST * norm_bound:.6g}, half of the rows' norm bound"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "plan": self.plan.to_dict(),
            "released": list(self.released),
            "failure": self.failure,
        }
