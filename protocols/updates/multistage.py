"""Multistage accelerated gradient, MASG (arXiv:2008.01989, equation (33), after Aybat et al. 2019).

Stage 1 takes n_1 steps of c / L, stage k >= 2 takes n_k = 2^k ceil(sqrt(kappa) ln 2^(p+2)) steps of
c / (4^k L), kappa = L / mu; each with the momentum that belongs to its step. At a stage change the
momentum restarts: the first z of a stage is w. Smaller steps let less noise through, so the
error keeps falling where a constant step stalls.

From stage 1 to stage 2 the step falls by 16, later by 4, as in the paper.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from protocols.errors import ParameterError
from protocols.updates.strongly_convex import StronglyConvexNesterov


def recommended_first_stage(mu: float, smoothness: float) -> int:
    """n_1 = ceil(2 sqrt(kappa) ln sqrt(kappa)), at least 1; arXiv:2008.01989, section 5's code."""
    root = math.sqrt(smoothness / mu)
    return max(1, math.ceil(2 * root * math.log(root)))


@dataclass(frozen=True, kw_only=True, slots=True)
class MultiStage(StronglyConvexNesterov):
    """Accelerated gradient descent in stages; with first_stage >= rounds it has but one.

    Fields as for `StronglyConvexNesterov`, and first_stage: n_1 >= 1 [iterations];
    p: order of the stages' lengths, >= 1. The last stage ends with the last iteration.

    Raises:
        ParameterError: a field is out of range.
    """

    first_stage: int
    p: float = 1.0

    def __post_init__(self) -> None:
        StronglyConvexNesterov.__post_init__(self)
        if self.first_stage < 1:
            raise ParameterError(f"first_stage={self.first_stage} must be at least 1")
        if not 1 <= self.p < math.inf:
            raise ParameterError(f"p={self.p} must be at least 1")

    def length(self, stage: int) -> int:
        """n_k, iterations of stage k = 1, 2, …, before the run's end cuts it."""
        if stage == 1:
            return self.first_stage
        root = math.sqrt(self.smoothness / self.mu)
        return int(2**stage * math.ceil(root * (self.p + 2) * math.log(2)))

    def stage(self, t: int) -> int:
        """Stage of iteration t = 0, 1, …, from 1 on."""
        stage, end = 1, self.length(1)
        while t >= end:
            stage += 1
            end += self.length(stage)
        return stage

    def rate(self, t: int) -> float:
        """Step alpha of iteration t: c / L in stage 1, c / (4^k L) in stage k >= 2."""
        stage = self.stage(t)
        whole = self.step_scale / self.smoothness
        return whole if stage == 1 else float(whole / 4**stage)

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": "masg", **asdict(self)}
