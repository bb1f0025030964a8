"""Enhanced Nesterov on columns that owners rescale: a public diagonal B in place of an inverse.

With D = B^(-1/2), rows D x and weights D v, gradient descent in v is the quadratic gradient in w:
v+ = v - N D grad(w) and w = D v give w+ = w - N B^-1 grad(w). So the rule is `quadratic`'s, and no
product of ciphertexts more than plain descent has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from protocols.errors import ParameterError
from protocols.updates.momentum import Momentum, accelerated
from protocols.updates.quadratic import LARGEST_RATE, falling
from protocols.updates.update import Update, check_positive


@dataclass(frozen=True, kw_only=True, slots=True)
class RescaledNesterov(Momentum):
    """Accelerated full-batch descent from 0, N_t = 1 + extra * decay^t times the learning rate.

    rounds: iterations; learning_rate: of rescaled rows, what 1 is for the quadratic gradient, > 0;
    extra: N_0 - 1, in [0, 2]; decay: in (0, 1]; first_alpha: a_0 of `quadratic`.

    Raises:
        ParameterError: a field is out of range.
    """

    kind: ClassVar[str] = "rescaled-nag"
    words: ClassVar[str] = (
        "Nesterov's method, preconditioned by a public diagonal bound of the curvature"
    )
    from_zero: ClassVar[bool] = True
    rounds: int
    learning_rate: float
    extra: float = 1.0
    decay: float = 0.9
    first_alpha: float = 0.01

    def __post_init__(self) -> None:
        """Check the fields."""
        Update.__post_init__(self)
        check_positive(self, "learning_rate")
        for name in ("decay", "first_alpha"):
            if not 0 < getattr(self, name) <= 1:
                raise ParameterError(f"{name}={getattr(self, name)} is outside (0, 1]")
        if not 0 <= self.extra <= LARGEST_RATE - 1:
            raise ParameterError(f"extra={self.extra} is outside [0, {LARGEST_RATE - 1:g}]")

    @property
    def rates(self) -> tuple[float, ...]:
        """N_t times the learning rate."""
        steps = falling(self.rounds, self.extra, self.decay)
        return tuple(self.learning_rate * step for step in steps)

    @property
    def momenta(self) -> tuple[float, ...]:
        """m_t."""
        return accelerated(self.rounds, self.first_alpha)
