"""Nesterov's accelerated gradient for strongly convex objectives (arXiv:2008.01989, (27)).

    z = (1 + beta) w - beta w_prev,   w+ = z - alpha (grad(z) + ridge z + noise),
    beta = (1 - sqrt(alpha mu)) / (1 + sqrt(alpha mu)),   alpha = c / L.

The state is that of `nesterov.py`: (v, W) with v the next z and W_t = (1 + m_{t-1}) w_t, m_t the
momentum that forms the z of iteration t + 1:

    W+ = (1 + m_t) (1 - alpha ridge) v - (1 + m_t) alpha grad(v),   v+ = W+ - m_t / (1 + m_{t-1}) W.

The first z is w itself and the last iteration takes m = 0, hence W_T = w_T is released as it is.

The suboptimality is at most a_{T,0} E_0 + sum_t a_{T,t} d Var_t / 2 (Theorem 4.1), so the privacy
budget can be divided among the iterations: `division` says how, `noise_shares` gives the shares,
`protocols.privacy.schedule` the noise.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError
from protocols.privacy.schedule import MECHANISMS, best_rounds, log_error_weights, optimal_shares
from protocols.updates.rule import ScaledGradient, UpdateRule, V


@dataclass(frozen=True, kw_only=True, slots=True)
class StronglyConvexNesterov:
    """Accelerated full-batch gradient descent with constant step and momentum.

    rounds: iterations; mu: strong convexity of the whole objective, > 0; smoothness: L > mu, bound
    on its curvature; step_scale: c in (0, 1], the step is c / L; ridge: the part of mu, 0 to mu,
    whose gradient ridge * z the rule adds itself (0: the oracle's gradient is complete);
    division: "uniform", or the mechanism ("laplace", "gaussian") whose noise is divided optimally.

    Raises:
        ParameterError: a field is out of range.
    """

    rounds: int
    mu: float
    smoothness: float
    step_scale: float = 1.0
    ridge: float = 0.0
    division: str = "uniform"

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ParameterError(f"rounds={self.rounds} must be at least 1")
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

    def stage(self, t: int) -> int:
        """Stage of iteration t = 0, 1, …: there is one, number 1."""
        return 1

    def rate(self, t: int) -> float:
        """Step alpha of iteration t."""
        return self.step_scale / self.smoothness

    def momentum(self, t: int) -> float:
        """m_t, for t = -1 (before the start) … rounds - 1: 0 at both ends and between stages."""
        if not 0 <= t < self.rounds - 1 or self.stage(t) != self.stage(t + 1):
            return 0.0
        root = math.sqrt(self.rate(t + 1) * self.mu)
        return (1 - root) / (1 + root)

    def scale(self, t: int) -> float:
        """W over w after iteration t: 1 + m_t; 1 after the last one."""
        return 1 + self.momentum(t)

    def start(self, weights: V) -> tuple[V, ...]:
        """State (v, W), both the starting weights."""
        return (weights, weights)

    def step(self, t: int, state: tuple[V, ...], gradient: ScaledGradient[V]) -> tuple[V, ...]:
        """One iteration."""
        v: Any = state[0]
        scaled: Any = state[1]
        now, before, rate = self.momentum(t), self.momentum(t - 1), self.rate(t)
        keep = (1 + now) * (1 - rate * self.ridge)
        new: Any = (v * keep if keep != 1 else v) - gradient(v, (1 + now) * rate)
        return (new - scaled * (now / (1 + before)) if now else new, new)

    def weights(self, state: tuple[V, ...]) -> V:
        """W, equal to w after the last iteration; before it, divide by `scale`."""
        return state[1]

    def levels(self) -> int:
        """The linear combinations cost one level, beside the gradient."""
        return 1

    def noise_gain(self) -> float:
        """Root of the summed squared responses of w_T, where all curvature is `ridge`.

        Within a stage no curvature in [ridge, L] responds more: the product of the recursion's
        roots falls with the curvature, and so does the larger root while the roots are real.
        Backwards, with p_v, p_w the response to v_t and w_t:
        r_t = p_w + (1 + m_t) p_v,   p_v <- (1 - alpha_t ridge) r_t,   p_w <- -m_t p_v.
        """
        p_v, p_w, total = 0.0, 1.0, 0.0
        for t in reversed(range(self.rounds)):
            momentum = self.momentum(t)
            response = p_w + (1 + momentum) * p_v
            p_v, p_w = (1 - self.rate(t) * self.ridge) * response, -momentum * p_v
            total += response**2
        return math.sqrt(total)

    def rates(self) -> list[float]:
        """Steps alpha_t of all iterations."""
        return [self.rate(t) for t in range(self.rounds)]

    def stages(self) -> list[int]:
        """Stages s_t of all iterations."""
        return [self.stage(t) for t in range(self.rounds)]

    def log_error_weights(self) -> NDArray[np.float64]:
        """ln a_{T,t} of the error bound, t = 0 .. rounds; see `schedule.log_error_weights`."""
        return log_error_weights(
            self.rates(), self.stages(), mu=self.mu, smoothness=self.smoothness
        )

    def noise_shares(self) -> tuple[float, ...]:
        """Each iteration's share of the privacy budget (epsilon or rho); they sum to 1."""
        if self.division == "uniform":
            return (1 / self.rounds,) * self.rounds
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
            self.rates(),
            self.stages(),
            mu=self.mu,
            smoothness=self.smoothness,
            mechanism=self.division,
            sensitivity=sensitivity,
            budget=budget,
            dim=dim,
            initial_error=initial_error,
        )
        return replace(self, rounds=best)

    def in_units(self, unit: float) -> UpdateRule:
        """Linear in the weights: nothing changes."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": "nag-sc", **asdict(self)}
