"""Polyak's heavy ball (arXiv:2008.01989, equation (9)).

    w+ = w - alpha (grad(w) + ridge w + noise) + beta (w - w_prev)

Equivalently a step along the geometrically weighted mean of all noisy gradients so far (equations
(14), (15)).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from protocols.errors import ParameterError
from protocols.updates.rule import ScaledGradient, UpdateRule, V


@dataclass(frozen=True, kw_only=True, slots=True)
class HeavyBall:
    """Full-batch gradient descent with momentum.

    rounds: iterations; learning_rate: alpha > 0; momentum: beta in [0, 1), 0 is gradient descent;
    ridge: r >= 0, coefficient of w that the rule adds to the gradient (0: none). On a quadratic
    with curvatures up to L it is stable exactly for alpha L < 2 (1 + beta).

    Raises:
        ParameterError: a field is out of range.
    """

    rounds: int
    learning_rate: float
    momentum: float
    ridge: float = 0.0

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ParameterError(f"rounds={self.rounds} must be at least 1")
        if not self.learning_rate > 0:
            raise ParameterError(f"learning_rate={self.learning_rate} must be positive")
        if not 0 <= self.momentum < 1:
            raise ParameterError(f"momentum={self.momentum} is outside [0, 1)")
        if not 0 <= self.ridge * self.learning_rate < 1:
            raise ParameterError(
                f"ridge={self.ridge} times learning_rate={self.learning_rate} is outside [0, 1)"
            )

    def start(self, weights: V) -> tuple[V, ...]:
        """State (w, w_prev), both the starting weights: the ball is at rest."""
        return (weights, weights)

    def step(self, t: int, state: tuple[V, ...], gradient: ScaledGradient[V]) -> tuple[V, ...]:
        """One iteration."""
        w: Any = state[0]
        before: Any = state[1]
        keep = 1 + self.momentum - self.learning_rate * self.ridge
        moved: Any = (w * keep if keep != 1 else w) - gradient(w, self.learning_rate)
        return (moved - before * self.momentum if self.momentum else moved, w)

    def weights(self, state: tuple[V, ...]) -> V:
        """w."""
        return state[0]

    def levels(self) -> int:
        """The linear combination costs one level, beside the gradient."""
        return 1 if self.momentum or self.ridge else 0

    def noise_gain(self) -> float:
        """Root of the summed squared responses (1 - beta^k) / (1 - beta), k = 1 .. rounds.

        That is the response of a flat objective. With curvature the roots z, z' of the recursion
        satisfy |z z'| <= beta and |z|, |z'| <= 1, hence the response, sum_j z^j z'^(k-1-j), is at
        most that of the roots 1, beta.
        """
        beta = self.momentum
        responses = ((1 - beta**k) / (1 - beta) for k in range(1, self.rounds + 1))
        return math.sqrt(sum(r * r for r in responses))

    def noise_shares(self) -> tuple[float, ...]:
        """Each iteration's share of the privacy budget: 1 / rounds."""
        return (1 / self.rounds,) * self.rounds

    def in_units(self, unit: float) -> UpdateRule:
        """Linear in the weights: nothing changes."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": "hb", **asdict(self)}
