"""Enhanced Nesterov: accelerated steps on the quadratic gradient B^-1 grad(w).

    w+ = v - N_t B^-1 (grad(v) + noise),   v+ = (1 + m_t) w+ - m_t w,
    m_t = (a_t - 1) / a_{t+1},  a_0 = 0.01,  a_{t+1} = (1 + sqrt(1 + 4 a_t^2)) / 2.

Source: Chiang, "Privacy-Preserving Logistic Regression Training with a Faster Gradient Variant",
Algorithm 1 (eta_t there is -m_t; B-bar is multiplied uninverted there, and v returned). B is
`protocols.curvature`'s; whoever drives the rule multiplies B^-1 into the gradient.

The state is (v, W) with W_t = (1 + m_{t-1}) w_t, as in `nesterov`. Here 1 + m_0 = 0.0101, so W_1
holds w_1 at a hundredth; but w_1 enters later only by m_1 / (1 + m_0) W_1, m_1 = 6e-5, a factor of
0.006: no error is amplified. The last iteration takes m = 0, hence W_T = w_T is released.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from protocols.curvature import Curvature
from protocols.errors import ParameterError
from protocols.fields import from_fields
from protocols.updates.rule import ScaledGradient, UpdateRule, V

SCHEDULES = ("geometric", "harmonic")
LARGEST_RATE = 3.0


@dataclass(frozen=True, kw_only=True, slots=True)
class QuadraticNesterov:
    """Accelerated full-batch descent on the quadratic gradient.

    rounds: iterations; schedule: "geometric", N_t = 1 + extra * decay^t (decay 1: constant), or
    "harmonic", N_t = 1 + extra / (t + 1) (the paper's extra is 10 / rows); extra: N_0 - 1; decay:
    in (0, 1], of the geometric schedule; first_alpha: a_0 (1: FISTA's sequence); curvature: B.

    Raises:
        ParameterError: a field is out of range, or the rates are known to diverge.
    """

    rounds: int
    curvature: Curvature
    schedule: str = "geometric"
    extra: float = 1.0
    decay: float = 0.9
    first_alpha: float = 0.01

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ParameterError(f"rounds={self.rounds} must be at least 1")
        if self.schedule not in SCHEDULES:
            raise ParameterError(f"schedule={self.schedule!r} is not one of {', '.join(SCHEDULES)}")
        if not 0 < self.decay <= 1:
            raise ParameterError(f"decay={self.decay} is outside (0, 1]")
        if not 0 < self.first_alpha <= 1:
            raise ParameterError(f"first_alpha={self.first_alpha} is outside (0, 1]")
        self._check_rates()

    def _check_rates(self) -> None:
        if not self.extra >= 0:
            raise ParameterError(
                f"extra={self.extra} is below 0: a rate below 1 is slower than the bound B allows"
            )
        if not 1 + self.extra <= LARGEST_RATE:
            raise ParameterError(
                f"extra={self.extra} makes the first rate {1 + self.extra:g}; rates above "
                f"{LARGEST_RATE:g} diverge (1 + 10/(1 + t) does): take 1 + A gamma^t, A <= 2, or "
                "1 + 10/(n t) with n the number of rows"
            )
        if self.schedule == "geometric" and self.decay == 1 and self.extra > 1:
            raise ParameterError(
                f"extra={self.extra}, decay=1.0: a constant rate {1 + self.extra:g} is outside "
                "[1, 2]; B bounds the curvature, so that steps beyond 2 B^-1 may climb: let it fall"
            )

    def rate(self, t: int) -> float:
        """N_t."""
        if self.schedule == "harmonic":
            return 1 + self.extra / (t + 1)
        # Not a power, whose last digit depends on the machine: all make their masks of this.
        return 1 + self.extra * math.prod([self.decay] * t)

    def momentum(self, t: int) -> float:
        """m_t, for t = -1 (before the start) … rounds - 1; 0 at both ends."""
        if t < 0 or t >= self.rounds - 1:
            return 0.0
        a = self.first_alpha
        for _ in range(t):
            a = _next_alpha(a)
        return (a - 1) / _next_alpha(a)

    def start(self, weights: V) -> tuple[V, ...]:
        """State (v, W), both the starting weights."""
        return (weights, weights)

    def step(self, t: int, state: tuple[V, ...], gradient: ScaledGradient[V]) -> tuple[V, ...]:
        """One iteration; gradient: step * B^-1 (mean gradient + noise)."""
        now, before = self.momentum(t), self.momentum(t - 1)
        v: Any = state[0]
        scaled: Any = state[1]
        new: Any = (v * (1 + now) if now else v) - gradient(v, (1 + now) * self.rate(t))
        return (new - scaled * (now / (1 + before)) if now else new, new)

    def scale(self, t: int) -> float:
        """W over w after iteration t: 1 + m_t; 1 after the last one."""
        return 1 + self.momentum(t)

    def weights(self, state: tuple[V, ...]) -> V:
        """W, equal to w after the last iteration; before it, divide by `scale`."""
        return state[1]

    def levels(self) -> int:
        """The linear combinations cost one level, beside the gradient."""
        return 1

    def noise_gain(self) -> float:
        """Momentum carries an error of iteration t on: root of the summed squared responses."""
        total = 0.0
        for start in range(self.rounds):
            response, velocity = 0.0, 1.0
            for t in range(start, self.rounds):
                response += velocity
                velocity *= self.momentum(t)
            total += response**2
        return math.sqrt(total)

    @property
    def learning_rate(self) -> float:
        """Largest factor of any gradient entry: max_t N_t (1 + max(m_t, 0)) / low."""
        return self._largest_step / self.curvature.low

    @property
    def inverse_gain(self) -> float:
        """Bound of the weights' error over that of b / high, from all rounds.

        An error e makes a relative one of e high / b_k in 1 / b_k. With t the mean |x_k|, a bias
        column and residuals below 1, |grad_k| <= t and b_k >= low + t / 4, hence a step errs by
        at most N e high t / (low + t / 4)^2 <= N e high / low.
        """
        ratio = self.curvature.high / self.curvature.low
        return self.rounds * self._largest_step * ratio

    @property
    def _largest_step(self) -> float:
        return max(self.rate(t) * (1 + max(self.momentum(t), 0.0)) for t in range(self.rounds))

    def in_units(self, unit: float) -> UpdateRule:
        """Linear in the weights: nothing changes."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": "quadratic-nag", **asdict(self)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> QuadraticNesterov:
        """From the plan, without `kind`.

        Raises:
            MessageError: a field is missing, unknown or of a wrong type.
            ParameterError: see the class.
        """
        curvature = Curvature.from_dict(fields.get("curvature", {}))
        return from_fields(cls, {**fields, "curvature": curvature})


def _next_alpha(a: float) -> float:
    return (1 + math.sqrt(1 + 4 * a * a)) / 2
