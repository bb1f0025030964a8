"""Enhanced Nesterov: accelerated steps on the quadratic gradient B^-1 grad(w).

    w+ = v - N_t B^-1 (grad(v) + noise),   v+ = (1 + m_t) w+ - m_t w,
    m_t = (a_t - 1) / a_{t+1},  a_0 = 0.01,  a_{t+1} = (1 + sqrt(1 + 4 a_t^2)) / 2.

Source: Chiang, "Privacy-Preserving Logistic Regression Training with a Faster Gradient Variant",
Algorithm 1 (eta_t there is -m_t; B-bar is multiplied uninverted there, and v returned). B is
`protocols.rows.curvature`'s; whoever drives the rule multiplies B^-1 into the gradient.

Here 1 + m_0 = 0.0101, so that `momentum`'s W_1 holds w_1 at a hundredth; but w_1 enters later only
by m_1 / (1 + m_0) W_1, m_1 = 6e-5, a factor of 0.006: no error is amplified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from operator import mul
from typing import ClassVar

from protocols.errors import ParameterError
from protocols.rows.curvature import Curvature
from protocols.updates.momentum import Momentum, accelerated
from protocols.updates.update import Update

SCHEDULES = ("geometric", "harmonic")
LARGEST_RATE = 3.0


class Quadratic(Momentum):
    """Rules on the quadratic gradient; their rates N_t are at least 1, what B allows at once.

    learning_rate: N_0.
    """

    __slots__ = ()
    default_rounds: ClassVar[int] = 4
    curvature: Curvature
    learning_rate: float

    @property
    def largest_learning_rate(self) -> float:
        """Largest factor of any gradient entry: max_t N_t (1 + max(m_t, 0)) / offset."""
        return self._largest_step / self.curvature.offset

    @property
    def least_learning_rate(self) -> float:
        """An entry of B^-1 is at least 1 / high."""
        return 1 / self.curvature.high

    @property
    def path(self) -> float:
        """Bound of w_T's error over one of B^-1 grad that all rounds share: sum_t N_t |r_t|.

        Of a flat loss, as for `noise_gain`.
        """
        pairs = zip(self.rates, self.responses(0.0), strict=True)
        return math.fsum(rate * abs(response) for rate, response in pairs)

    @property
    def row_path(self) -> float:
        """Bound of w_T's error over that of the mean of independent noise in the rows' entries.

        Noise in x_ik itself moves grad_k by |p - 1/2| <= 1/2 of it, which 1 / b_k <= 1 / offset
        multiplies. Noise in any x_ij moves z_i, and grad_k by |x_ik| of that times |p'| |w| <= 1/2:
        with s = mean x_k^2 and c the constant, b_k >= offset + c s (its own circle alone), and
        sqrt(s) / (offset + c s) <= 1 / (2 sqrt(c offset)).
        """
        offset = self.curvature.offset
        return self.path * (1 / offset + 1 / (2 * math.sqrt(self.curvature.constant * offset))) / 2

    @property
    def inverse_gain(self) -> float:
        """Bound of the weights' error over the relative one of 1 / b, the same in all rounds.

        Residuals are at most 1, so |grad_k| <= sqrt(s), s = mean x_k^2; 1 / b_k as in `row_path`.
        """
        return self.path / (2 * math.sqrt(self.curvature.constant * self.curvature.offset))

    @property
    def _largest_step(self) -> float:
        pairs = zip(self.rates, self.momenta, strict=True)
        return max(rate * (1 + max(m, 0.0)) for rate, m in pairs)


@dataclass(frozen=True, kw_only=True, slots=True)
class QuadraticNesterov(Quadratic):
    """Accelerated full-batch descent on the quadratic gradient.

    rounds: iterations; learning_rate: N_0; schedule: "geometric", N_t = 1 + (N_0 - 1) decay^t
    (decay 1: constant), or "harmonic", N_t = 1 + (N_0 - 1) / (t + 1) (the paper's N_0 is 1 + 10 /
    rows); decay: in (0, 1], of the geometric schedule; first_alpha: a_0 (1: FISTA's sequence);
    curvature: B.

    Raises:
        ParameterError: a field is out of range, or the rates are known to diverge.
    """

    kind: ClassVar[str] = "quadratic-nag"
    words: ClassVar[str] = "Nesterov's method, preconditioned by a diagonal bound of the curvature"
    usual_rate: ClassVar[float | None] = 2.0
    rounds: int
    curvature: Curvature = field()
    schedule: str = "geometric"
    learning_rate: float = 2.0
    decay: float = 0.9
    first_alpha: float = 0.01

    def __post_init__(self) -> None:
        """Check the fields."""
        Update.__post_init__(self)
        if self.schedule not in SCHEDULES:
            raise ParameterError(f"schedule={self.schedule!r} is not one of {', '.join(SCHEDULES)}")
        for name in ("decay", "first_alpha"):
            if not 0 < getattr(self, name) <= 1:
                raise ParameterError(f"{name}={getattr(self, name)} is outside (0, 1]")
        rate = self.learning_rate
        if not rate >= 1:
            raise ParameterError(
                f"learning_rate={rate} is below 1: slower than the bound B allows at once"
            )
        if not rate <= LARGEST_RATE:
            raise ParameterError(
                f"learning_rate={rate}: rates above {LARGEST_RATE:g} diverge (1 + 10/(1 + t) "
                "does): take 1 + A gamma^t, A <= 2, or 1 + 10/(n t) with n the number of rows"
            )
        if self.schedule == "geometric" and self.decay == 1 and rate > 2:
            raise ParameterError(
                f"learning_rate={rate}, decay=1.0: a constant rate is outside [1, 2]; B bounds the "
                "curvature, so that steps beyond 2 B^-1 may climb: let it fall"
            )

    @property
    def rates(self) -> tuple[float, ...]:
        """N_t."""
        first = self.learning_rate - 1
        if self.schedule == "harmonic":
            return tuple(1 + first / (t + 1) for t in range(self.rounds))
        return falling(self.rounds, first, self.decay)

    @property
    def momenta(self) -> tuple[float, ...]:
        """m_t."""
        return accelerated(self.rounds, self.first_alpha)


def falling(rounds: int, extra: float, decay: float) -> tuple[float, ...]:
    """N_t = 1 + extra * decay^t."""
    # Not powers, whose last digit depends on the machine: all make their masks of these.
    powers = accumulate(repeat(decay, rounds - 1), mul, initial=1.0)
    return tuple(1 + extra * power for power in powers)
