"""The coordinator's half of dual coordinate descent: v+ = v + sum of the owners' steps.

With v = X^T alpha, the model is theta = v / (lambda N); see `protocols.updates.coordinate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from protocols.errors import ParameterError
from protocols.updates.update import Update, V, check_positive


@dataclass(frozen=True, kw_only=True, slots=True)
class DualAscent(Update):
    """Adds what the owners answer; its state is v, 0 at the start as the owners' alpha are.

    rounds: iterations; factor: theta over v, 1 / (lambda N) and the scale of the rows.
    """

    kind: ClassVar[str] = "scd"
    words: ClassVar[str] = "dual coordinate descent; dual variables stay with their owners"
    rounds: int
    factor: float

    def __post_init__(self) -> None:
        """Check the fields."""
        Update.__post_init__(self)
        check_positive(self, "factor")

    def step(self, gradient: V, state: tuple[V, ...], t: int, unit: float = 1.0) -> tuple[V, ...]:
        """One round; gradient: the sum of the owners' steps of v."""
        v: Any = state[0]
        return (v + gradient,)

    def weights(self, state: tuple[V, ...], t: int | None = None) -> V:
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
