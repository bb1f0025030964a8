"""The formulas of the barrier's privacy theorem; `barrier_certificate` checks its conditions.

Source: arXiv:2605.27782, Theorem 3 and appendix C.1. Symbols as there; B_x, the bound on every
row's norm with the bias included, stands where the paper has sqrt(m).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scipy.special import log_ndtr
from scipy.stats import chi

from protocols.approximation import Approximation, error_bound
from protocols.errors import ParameterError
from protocols.privacy.budget import Budget
from protocols.privacy.sensitivity import SIGMOID_SLOPE_MAX
from protocols.serialise import to_plain

GRADIENT_AT_ZERO = 0.5
"""d, bound on |grad f(0)| / B_x of any data: |1/2 - y| = 1/2."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BarrierSetting:
    """Everything that Theorem 3 speaks about.

    Attributes:
        rows: N, all parties' rows together.
        features: m, columns **including** the bias.
        norm_bound: B_x, bound on every row's norm, bias included.
        theta, lam, kappa, eta, rounds: Theta, lambda, kappa, the learning rate, T.
        sigmoid: p and its interval.
        reciprocal: P and its interval [kappa Theta, Theta].
        sigma: noise std on the mean gradient that is left without any t colluders; 0 without a
            promise.
        budget: epsilon, delta, P, t.
        encryption_error: e_ckks per round and coordinate, see `Sensitivity`.

    Raises:
        ParameterError: a field is out of range; the message names it.
    """

    rows: int
    features: int
    norm_bound: float
    theta: float
    lam: float
    kappa: float
    eta: float
    rounds: int
    sigmoid: Approximation
    reciprocal: Approximation
    sigma: float
    budget: Budget
    encryption_error: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields."""
        for name in ("rows", "features", "norm_bound", "theta", "lam", "eta", "rounds"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ParameterError(f"{name}={value} is not a finite number > 0")
        if not 0 < self.kappa < 1:
            raise ParameterError(f"kappa={self.kappa} is outside (0, 1)")
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise ParameterError(f"sigma={self.sigma} is not a finite number >= 0")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, polynomials included."""
        names = "rows features norm_bound theta lam kappa eta rounds sigma encryption_error"
        return {
            **{name: getattr(self, name) for name in names.split()},
            "sigmoid": to_plain(self.sigmoid.polynomial),
            "reciprocal": to_plain(self.reciprocal.polynomial),
            "budget": self.budget.to_dict(),
        }


def c_delta(budget: Budget, rounds: int) -> float:
    """sqrt(2 ln(2T / delta_norm)), which is sqrt(2 ln(3T / delta)) at the paper's split."""
    if budget.epsilon is None:
        return 0.0
    return math.sqrt(2 * math.log(2 * rounds / budget.delta_norm))


def gradient_error(setting: BarrierSetting, sigmoid_error: float) -> float:
    """zeta_f = e_f B_x + e_ckks sqrt(m) / N: how far the computed mean gradient may be off."""
    arithmetic = setting.encryption_error * math.sqrt(setting.features) / setting.rows
    return sigmoid_error * setting.norm_bound + arithmetic


def iterate_bound(
    setting: BarrierSetting, *, sigmoid_error: float, reciprocal_error: float
) -> float:
    """R of Theorem 3 for given e_f and e_B, with the TOTAL noise."""
    noise = setting.budget.total_std(setting.sigma)
    spread = math.sqrt(setting.features) + c_delta(setting.budget, setting.rounds)
    return math.sqrt((1 - setting.kappa) * setting.theta) + setting.eta * (
        SIGMOID_SLOPE_MAX * setting.norm_bound
        + gradient_error(setting, sigmoid_error)
        + 2 * setting.lam * reciprocal_error * math.sqrt(setting.theta)
        + spread * noise
    )


def fixed_point(setting: BarrierSetting, *, reciprocal_error: float) -> tuple[float, float]:
    """(e_f, R): the least pair with e_f the true error of p on [-B_x R, B_x R].

    Iterates up from e_f = 0. If e_f passes phi'max, where the theorem ends, that e_f is returned
    with the R before it.
    """
    error = 0.0
    while True:
        bound = iterate_bound(setting, sigmoid_error=error, reciprocal_error=reciprocal_error)
        ends = setting.norm_bound * bound
        new = error_bound(setting.sigmoid.polynomial, "sigmoid", -ends, ends)
        if new <= error:
            return error, bound
        error = new * (1 + 1e-12)
        if error > SIGMOID_SLOPE_MAX:
            return error, bound


def norm_failure(budget: Budget, features: int, rounds: int) -> float:
    """Exact probability bound that some round's noise exceeds what the proof allows.

    T (P(|Z| > c_delta) + P(chi_m > sqrt(m) + c_delta)), below the allotted delta_norm.
    """
    if budget.epsilon is None:
        return 0.0
    c = c_delta(budget, rounds)
    one_direction = 2 * math.exp(float(log_ndtr(-c)))
    return rounds * (one_direction + float(chi(features).sf(math.sqrt(features) + c)))


def smallest_norm(
    setting: BarrierSetting, *, sigmoid_error: float, least: float
) -> tuple[float, dict[str, float]]:
    """Right side of condition (2) and its figures; inf where alpha is outside (0, 1).

    Args:
        setting: the setting.
        sigmoid_error: e_f.
        least: m_P.
    """
    s = setting
    noise = s.budget.total_std(s.sigma)
    c = c_delta(s.budget, s.rounds)
    zeta = gradient_error(s, sigmoid_error)
    alpha = 2 * s.eta * s.lam * least
    quadratic = 2 * alpha - alpha**2
    linear = -2 * s.eta * ((1 - alpha) * (GRADIENT_AT_ZERO * s.norm_bound + c * noise) + zeta)
    push = s.norm_bound * SIGMOID_SLOPE_MAX + (math.sqrt(s.features) + c) * noise
    constant = -(s.eta**2) * (push**2 - zeta**2)
    figures = {"alpha": alpha, "a": quadratic, "b": linear, "c": constant}
    if not 0 < alpha < 1:
        return math.inf, figures
    return (-linear + math.sqrt(linear**2 - 4 * quadratic * constant)) / (2 * quadratic), figures
