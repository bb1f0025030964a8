"""Nesterov's accelerated gradient with the momentum sequence of FISTA.

    w+ = v - eta (grad(v) + noise),   v+ = (1 + m_t) w+ - m_t w,
    m_t = (a_t - 1) / a_{t+1},  a_0 = 1,  a_{t+1} = (1 + sqrt(1 + 4 a_t^2)) / 2.

Under encryption the state is (v, W) with W_t = (1 + m_{t-1}) w_t, so that the gradient is scaled
once, by (1 + m_t) eta inside its mask:

    W+ = (1 + m_t) v - (1 + m_t) eta grad(v),   v+ = W+ - m_t / (1 + m_{t-1}) W.

The last iteration takes m = 0, hence W_T = w_T is released as it is.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from protocols.errors import ParameterError
from protocols.updates.rule import ScaledGradient, UpdateRule, V


@dataclass(frozen=True, kw_only=True, slots=True)
class Nesterov:
    """Accelerated full-batch gradient descent.

    rounds: iterations; learning_rate: eta > 0.

    Raises:
        ParameterError: a field is out of range.
    """

    rounds: int
    learning_rate: float

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ParameterError(f"rounds={self.rounds} must be at least 1")
        if not self.learning_rate > 0:
            raise ParameterError(f"learning_rate={self.learning_rate} must be positive")

    def momentum(self, t: int) -> float:
        """m_t, for t = -1 (before the start) … rounds - 1; 0 at both ends."""
        if t < 0 or t >= self.rounds - 1:
            return 0.0
        a = 1.0
        for _ in range(t):
            a = (1 + math.sqrt(1 + 4 * a * a)) / 2
        return (a - 1) / ((1 + math.sqrt(1 + 4 * a * a)) / 2)

    def start(self, weights: V) -> tuple[V, ...]:
        """State (v, W), both the starting weights."""
        return (weights, weights)

    def step(self, t: int, state: tuple[V, ...], gradient: ScaledGradient[V]) -> tuple[V, ...]:
        """One iteration."""
        now, before = self.momentum(t), self.momentum(t - 1)
        v: Any = state[0]
        scaled: Any = state[1]
        new: Any = (v * (1 + now) if now else v) - gradient(v, (1 + now) * self.learning_rate)
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

    def in_units(self, unit: float) -> UpdateRule:
        """Linear in the weights: nothing changes."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": "nag", **asdict(self)}
