"""What noise costs, and what was spent. Here: mu <-> (epsilon, delta) of Gaussian privacy, exactly.

delta(epsilon) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)
(Balle, Wang, arXiv:1805.06530, Theorem 8; Dong, Roth, Su, arXiv:1905.02383, Corollary 2.13).
Every result is rounded in the safe direction by 1e-9 of itself, which covers the rounding of
float64: it never claims more privacy than there is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import log_ndtr

from protocols.errors import ParameterError

ROUNDING = 1e-9
"""Relative margin by which results are rounded in the safe direction."""


def delta_for_mu(*, mu: float, epsilon: float) -> float:
    """delta(epsilon) of mu-Gaussian-DP, mu >= 0 and epsilon >= 0; rounded up.

    The difference of two nearly equal numbers is taken in logarithms.
    """
    if mu < 0 or epsilon < 0 or math.isnan(mu + epsilon):
        raise ParameterError(f"mu={mu}, epsilon={epsilon}: both must be >= 0")
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return min(1.0, -math.exp(first) * math.expm1(min(0.0, second - first)) * (1 + ROUNDING))


def epsilon_for_mu(*, mu: float, delta: float) -> float:
    """The epsilon of mu-Gaussian-DP at delta, rounded up by 1e-9 of itself."""
    check_delta(delta)
    if mu == 0 or delta_for_mu(mu=mu, epsilon=0.0) <= delta:
        return 0.0
    if math.isinf(mu):
        return math.inf
    # zCDP: rho = mu^2 / 2 gives a valid upper end (Bun, Steinke, arXiv:1605.02065, Prop. 1.3)
    high = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1.0
    return _bisect(lambda e: delta_for_mu(mu=mu, epsilon=e) <= delta, 0.0, high) * (1 + ROUNDING)


def mu_for_epsilon(*, epsilon: float, delta: float) -> float:
    """The largest mu whose guarantee is (epsilon, delta), rounded down by 1e-9 of itself."""
    check_epsilon(epsilon)
    check_delta(delta)
    high = 1.0
    while delta_for_mu(mu=high, epsilon=epsilon) <= delta:
        high *= 2
    low = _bisect(lambda x: delta_for_mu(mu=high - x, epsilon=epsilon) <= delta, 0.0, high)
    return (high - low) * (1 - ROUNDING)


def _bisect(good: Callable[[float], bool], low: float, high: float) -> float:
    """The least x in (low, high] with good(x), from above; `good` is monotone, good(high)."""
    while high - low > 1e-15 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if good(middle):
            high = middle
        else:
            low = middle
    return high


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that is not a finite number above 0."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ParameterError(f"epsilon={epsilon} is not a finite number > 0")


def check_delta(delta: float) -> None:
    """Refuse a delta outside (0, 1)."""
    if not 0 < delta < 1:
        raise ParameterError(f"delta={delta} is outside (0, 1)")
