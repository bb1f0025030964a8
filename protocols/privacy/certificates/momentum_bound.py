"""How far a few accelerated steps without a regulariser can get from the origin.

The rule is w' = v - eta (g(v) + chi_t), v' = (1 + m_t) w' - m_t w, from 0, with a public rate eta
and momenta m_t, g(v) = (1/N) sum_i (p(<v, x_i>) - y_i) x_i, |x_i| <= B, y_i in {0, 1}, and chi_t ~
N(0, tau^2 I_d) the noise of ALL parties. p is a polynomial with p(z) + p(-z) = 1. Lambda <= B^2
bounds the largest eigenvalue of X^T X / N, so that |g|^2 <= Lambda mean_i (p(z_i) - y_i)^2, with
weights of rows on [0, 1], too: see `descent_bound`.

**Unrolled.** The rule is linear in its steps: v_t = -sum_{s<t} r_ts eta (g(v_s) + chi_s), where a
unit step at s moves w by 1, then by m_s more, then by m_s m_{s+1}, and v looks one move ahead:
r_ts = sum_{j=s..t} prod_{i=s..j-1} m_i.

**Noise.** sum_s r_ts eta chi_s is Gaussian, whatever the gradients are, with covariance tau^2 Q_t
I, Q_t = sum_s r_ts^2 eta^2. Its norm exceeds tau sqrt(Q_t) (sqrt(d) + sqrt(2 x)) with probability
at most exp(-x) (the norm is 1-Lipschitz, its mean at most sqrt(d)).

**Bound.** |p(z) - y| <= h(Z) = max of |p| on [-Z, Z], since 1 - p(z) = p(-z). Hence |v_t| <= U_t,
U_0 = 0 and U_t = sum_{s<t} |r_ts| eta sqrt(Lambda) h(B U_s) + tau sqrt(Q_t) (sqrt(d) + sqrt(2 x)),
for all t = 1 .. T - 1 together except with probability delta, x = ln((T - 1) / delta): an induction
over t, in which h never falls. v_T enters no gradient, so that w_T itself needs no bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError
from protocols.updates.momentum import Nesterov

Floats = NDArray[np.float64]


@lru_cache(maxsize=64)
def responses(rule: Nesterov) -> Floats:
    """|r_ts| eta, shape (rounds, rounds), zero for s >= t.

    Raises:
        ParameterError: the rule is not of this form.
    """
    if not isinstance(rule, Nesterov):
        raise ParameterError(
            f"update {rule.kind!r}: the momentum bound is for nag, look-aheads without a ridge"
        )
    steps, momenta = rule.rates, rule.momenta
    table = np.zeros((rule.rounds, rule.rounds))
    for s in range(rule.rounds):
        moved, total = 1.0, 1.0
        for t in range(s + 1, rule.rounds):
            moved *= momenta[t - 1]
            total += moved
            table[t, s] = abs(total) * steps[s]
    return table


@dataclass(frozen=True, kw_only=True, slots=True)
class MomentumBound:
    """The figures of the theorem; see the module's docstring.

    Attributes:
        rule: its rates and momenta.
        features: d, bias included.
        norm_bound: B.
        noise: tau, std of ALL parties' noise on the mean gradient.
        failure: delta; not used without noise.
        error: bound on the l2 error of the computed mean gradient, added to every sqrt(Lambda) h.
        spectrum: Lambda; None: B^2.
    """

    rule: Nesterov
    features: int
    norm_bound: float
    noise: float
    failure: float
    error: float = 0.0
    spectrum: float | None = None

    @property
    def longest(self) -> float:
        """sqrt(Lambda)."""
        return self.norm_bound if self.spectrum is None else math.sqrt(self.spectrum)

    @property
    def x(self) -> float:
        """Exponent of the failure probability of one iteration."""
        return math.log(max(self.rule.rounds - 1, 1) / self.failure)

    def bounds(self, residual: Callable[[float], float]) -> Floats:
        """U_0 .. U_{T-1}, shape (rounds,).

        Args:
            residual: h, the largest |p| on [-Z, Z] for Z >= 0; never falls.
        """
        table = responses(self.rule)
        spread = 0.0
        if self.noise > 0:
            spread = self.noise * (math.sqrt(self.features) + math.sqrt(2 * self.x))
        reached = np.zeros(self.rule.rounds)
        pushes = np.zeros(self.rule.rounds)
        for t in range(self.rule.rounds):
            row = table[t]
            reached[t] = row @ pushes + spread * math.sqrt(row @ row)
            pushes[t] = self.longest * residual(self.norm_bound * float(reached[t])) + self.error
        return reached
