"""The coordinator's half of dual coordinate descent: v+ = v + sum of the owners' steps.

With v = X^T alpha, the model is theta = v / (lambda N); see `protocols.updates.coordinate`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from protocols.errors import ParameterError
from protocols.updates.rule import ScaledGradient, UpdateRule, V


@dataclass(frozen=True, kw_only=True, slots=True)
class DualAscent:
    """Adds what the owners answer; the oracle gives the sum of their steps of v.

    rounds: iterations; factor: theta over v, 1 / (lambda N) and the scale of the rows.

    Raises:
        ParameterError: a field is out of range.
    """

    rounds: int
    factor: float

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ParameterError(f"rounds={self.rounds} must be at least 1")
        if not self.factor > 0:
            raise ParameterError(f"factor={self.factor} must be positive")

    def start(self, weights: V) -> tuple[V, ...]:
        """State (v,); the owners start at alpha = 0, hence v = 0."""
        return (weights,)

    def step(self, t: int, state: tuple[V, ...], gradient: ScaledGradient[V]) -> tuple[V, ...]:
        """One round."""
        v: Any = state[0]
        return (v + gradient(v, 1.0),)

    def weights(self, state: tuple[V, ...]) -> V:
        """theta."""
        v: Any = state[0]
        theta: V = v * self.factor
        return theta

    def levels(self) -> int:
        """Not for encrypted rows: dual variables stay with their owners.

        Raises:
            ParameterError: always.
        """
        raise ParameterError("update 'scd' runs in the secure-aggregation protocol only")

    def noise_gain(self) -> float:
        """As `levels`."""
        return float(self.levels())

    def in_units(self, unit: float) -> UpdateRule:
        """As `levels`."""
        self.levels()
        return self

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": "scd", **asdict(self)}
