"""Nesterov's accelerated gradient for strongly convex losses (arXiv:2008.01989, (27)), in stages.

    z = (1 + beta) w - beta w_prev,   w+ = z - alpha (grad(z) + ridge z + noise),
    beta = (1 - sqrt(alpha mu)) / (1 + sqrt(alpha mu)),   alpha = c / L.

The first z is w itself; the steps and the form under encryption are `momentum`'s.

MASG, multistage accelerated gradient (equation (33), after Aybat et al. 2019): stage 1 takes n_1
steps of c / L, stage k >= 2 takes n_k = 2^k ceil(sqrt(kappa) ln 2^(p+2)) steps of c / (4^k L),
kappa = L / mu; each with the momentum that belongs to its step. At a stage change the momentum
restarts: the first z of a stage is w. Smaller steps let less noise through, so the error keeps
falling where a constant step stalls. From stage 1 to stage 2 the step falls by 16, later by 4, as
in the paper.

The suboptimality is at most a_{T,0} E_0 + sum_t a_{T,t} d Var_t / 2 (Theorem 4.1), so the privacy
budget can be divided among the iterations: `division` says how, `noise_shares` gives the shares,
`protocols.privacy.loss.schedule` the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError
from protocols.privacy.loss.schedule import (
    MECHANISMS,
    best_rounds,
    log_error_weights,
    optimal_shares,
)
from protocols.updates.momentum import Momentum
from protocols.updates.update import Update


@dataclass(frozen=True, kw_only=True, slots=True)
class StronglyConvexNesterov(Momentum):
    """Accelerated full-batch gradient descent with constant step and momentum.

    rounds: iterations; mu: strong convexity of the whole objective, > 0; smoothness: L > mu, bound
    on its curvature; step_scale: c in (0, 1], the step is c / L; ridge: the part of mu, 0 to mu,
    whose gradient ridge * z the rule adds itself (0: the oracle's gradient is complete);
    division: "uniform", or the mechanism ("laplace", "gaussian") whose noise is divided optimally.

    Raises:
        ParameterError: a field is out of range.
    """

    kind: ClassVar[str] = "nag-sc"
    words: ClassVar[str] = "Nesterov's method for strongly convex losses"
    rounds: int
    mu: float
    smoothness: float
    step_scale: float = 1.0
    ridge: float = 0.0
    division: str = "uniform"

    def __post_init__(self) -> None:
        """Check the fields."""
        Update.__post_init__(self)
        if not 0 < self.mu < self.smoothness < math.inf:
            raise ParameterError(
                f"mu={self.mu}, smoothness={self.smoothness}: need 0 < mu < smoothness; "
                "a ridge term gives mu > 0"
            )
        if not 0 < self.step_scale <= 1:
            raise ParameterError(f"step_scale={self.step_scale} is outside (0, 1]")
        if not 0 <= self.ridge <= self.mu:
            raise ParameterError(f"ridge={self.ridge} is outside [0, mu={self.mu}]")
        if self.division not in ("uniform", *MECHANISMS):
            raise ParameterError(
                f"division={self.division!r} is not one of uniform, {', '.join(MECHANISMS)}"
            )

    @property
    def stages(self) -> tuple[int, ...]:
        """Stage of every iteration; there is one, number 1."""
        return (1,) * self.rounds

    @property
    def rates(self) -> tuple[float, ...]:
        """Steps alpha_t: c / L in stage 1, c / (4^k L) in stage k >= 2."""
        whole = self.step_scale / self.smoothness
        return tuple(whole if stage == 1 else float(whole / 4**stage) for stage in self.stages)

    @property
    def momenta(self) -> tuple[float, ...]:
        """m_t of the next iteration's step: 0 at the end and between stages."""
        stages, roots = self.stages, [math.sqrt(rate * self.mu) for rate in self.rates]
        changes = zip(stages, stages[1:], roots[1:], strict=False)
        return (*((1 - r) / (1 + r) if now == then else 0.0 for now, then, r in changes), 0.0)

    def noise_gain(self) -> float:
        """Where all curvature is `ridge`: within a stage none in [ridge, L] responds more.

        The product of the recursion's roots falls with the curvature, and so does the larger root
        while the roots are real.
        """
        return self.response(self.ridge)

    def log_error_weights(self) -> NDArray[np.float64]:
        """ln a_{T,t} of the error bound, t = 0 .. rounds; see `schedule.log_error_weights`."""
        return log_error_weights(self.rates, self.stages, mu=self.mu, smoothness=self.smoothness)

    def noise_shares(self) -> tuple[float, ...]:
        """By `division`."""
        if self.division == "uniform":
            return Momentum.noise_shares(self)
        shares = optimal_shares(self.log_error_weights()[1:], self.division)
        return tuple(float(share) for share in shares)

    def shortened(
        self, *, sensitivity: float, budget: float, dim: int, initial_error: float
    ) -> StronglyConvexNesterov:
        """The same rule with the T' <= rounds that minimises the error bound at its division.

        Arguments as in `schedule.optimal_bound`.

        Raises:
            ParameterError: the division is uniform.
        """
        best = best_rounds(
            self.rates,
            self.stages,
            mu=self.mu,
            smoothness=self.smoothness,
            mechanism=self.division,
            sensitivity=sensitivity,
            budget=budget,
            dim=dim,
            initial_error=initial_error,
        )
        return replace(self, rounds=best)


@dataclass(frozen=True, kw_only=True, slots=True)
class MultiStage(StronglyConvexNesterov):
    """Accelerated gradient descent in stages; with first_stage >= rounds it has but one.

    Fields as for `StronglyConvexNesterov`, and first_stage: n_1 >= 1 [iterations];
    p: order of the stages' lengths, >= 1. The last stage ends with the last iteration.

    Raises:
        ParameterError: a field is out of range.
    """

    kind: ClassVar[str] = "masg"
    words: ClassVar[str] = "accelerated gradient descent in stages of falling steps"
    first_stage: int
    p: float = 1.0

    def __post_init__(self) -> None:
        """Check the fields."""
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

    @property
    def stages(self) -> tuple[int, ...]:
        """Stage of every iteration, from 1 on."""
        found: list[int] = []
        while len(found) < self.rounds:
            stage = found[-1] + 1 if found else 1
            found += [stage] * min(self.length(stage), self.rounds - len(found))
        return tuple(found)


def recommended_first_stage(mu: float, smoothness: float) -> int:
    """n_1 = ceil(2 sqrt(kappa) ln sqrt(kappa)), at least 1; arXiv:2008.01989, section 5's code."""
    root = math.sqrt(smoothness / mu)
    return max(1, math.ceil(2 * root * math.log(root)))
