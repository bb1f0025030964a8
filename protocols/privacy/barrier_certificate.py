"""The barrier's privacy theorem, checked mechanically: arXiv:2605.27782, Theorem 3.

The rule is w <- w - eta (2 lam P(Theta - |w|^2) w + (1/N) sum_i (p(<w, x_i>) - y_i) x_i + chi)
from w = 0, with chi the noise of ALL parties, std sigma_total. Written with B_x, the bound on
every row's norm (the paper has sqrt(m)), and zeta_f = e_f B_x (plus the error of
the arithmetic):

R = sqrt((1 - kappa) Theta) + eta (phi'max B_x + zeta_f + 2 lam e_B sqrt(Theta)
    + (sqrt(m) + c_delta) sigma_total) bounds every iterate, if

- |p - sigmoid| <= e_f <= phi'max on [-B_x R, B_x R] (R depends on e_f: iterate up from e_f = 0);
- |P(x) - 1/x| <= e_B on [kappa Theta, Theta], and P decreases on [Theta - R^2, kappa Theta] with
  minimum m_P >= 0 and maximum M_P;
- (1) eta <= kappa Theta / lam and
  eta <= 1 / (lam (M_P + m_P) + (phi'max - d) B_x / (2 sqrt((1 - kappa) Theta)));
- (2) sqrt((1 - kappa) Theta) >= (-b + sqrt(b^2 - 4 a c)) / (2 a), alpha = 2 eta lam m_P in (0, 1),
  a = 2 alpha - alpha^2, b = -2 eta ((1 - alpha) (d B_x + c_delta sigma_total) + zeta_f),
  c = -eta^2 ((B_x phi'max + (sqrt(m) + c_delta) sigma_total)^2 - zeta_f^2).

Remarks on the proof. It bounds |<chi, w>| on both sides and |chi|, and allots delta/(3T) to each of
the two events; that is right because P(|Z| > c) <= exp(-c^2 / 2) already counts both sides. The
stray factors p'(z) and the missing 1/N are slips without consequence. (2) is the square of
sqrt(X) <= |w| - eta zeta_f; its larger root exceeds eta zeta_f, so squaring is harmless. The
theorem's m_P >= 0 has to be m_P > 0 (alpha > 0), and alpha < 1 follows from (1) for d < phi'max;
both are checked. d is 1/2, which holds for any data.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from protocols.approximation import (
    Approximation,
    Polynomial,
    error_bound,
    is_decreasing,
    range_bound,
)
from protocols.privacy.barrier_theorem import (
    GRADIENT_AT_ZERO,
    BarrierSetting,
    c_delta,
    fixed_point,
    gradient_error,
    norm_failure,
    smallest_norm,
)
from protocols.privacy.budget import audit
from protocols.privacy.certificate import ASSUMPTIONS, Certificate, Condition
from protocols.privacy.row_setting import row_setting
from protocols.privacy.sensitivity import SIGMOID_SLOPE_MAX, Sensitivity
from protocols.serialise import from_plain

if TYPE_CHECKING:
    from protocols.rows import RowsPlan

__all__ = ["BarrierSetting", "check", "setting_of"]


def setting_of(plan: RowsPlan, norm_bound: float) -> BarrierSetting:
    """What a plan's certificate is about.

    Raises:
        ParameterError: a figure is out of range.
    """
    rule = plan.update
    reciprocal, theta = from_plain(Polynomial, rule["reciprocal"]), float(rule["theta"])
    return BarrierSetting(
        **row_setting(plan, norm_bound),
        theta=theta,
        lam=float(rule["weight"]),
        kappa=reciprocal.low / theta,
        eta=float(rule["learning_rate"]),
        rounds=plan.rounds,
        reciprocal=Approximation.unchecked(reciprocal),
    )


def check(setting: BarrierSetting) -> Certificate:
    """Evaluate every condition of Theorem 3, with true polynomial errors on true intervals.

    Returns:
        a certificate; `satisfied` says whether it certifies anything, `binding` what is tightest.
    """
    s = setting
    low, high = s.kappa * s.theta, s.theta
    barrier = s.reciprocal.polynomial
    e_b = error_bound(barrier, "reciprocal", low, high)
    e_f, bound = fixed_point(s, reciprocal_error=e_b)
    bottom = s.theta - bound**2
    least, most = range_bound(barrier, bottom, low)
    root, quadratic = smallest_norm(s, sigmoid_error=e_f, least=least)
    core = math.sqrt((1 - s.kappa) * s.theta)
    overshoot = (SIGMOID_SLOPE_MAX - GRADIENT_AT_ZERO) * s.norm_bound / (2 * core)
    pull = s.lam * (most + least) + overshoot
    sensitivity = Sensitivity(
        norm_bound=s.norm_bound,
        approximation_error=e_f,
        features=s.features,
        encryption_error=s.encryption_error,
    )
    money = audit(
        s.budget,
        sigma=s.sigma,
        sensitivity=sensitivity.total,
        rounds=s.rounds,
        rows=s.rows,
        features=s.features,
        norm_failure=norm_failure(s.budget, s.features, s.rounds),
    )
    steepest = range_bound(barrier.derivative(), bottom, low)[1]
    decreasing = is_decreasing(barrier, bottom, low)
    first = s.kappa * s.theta / s.lam
    second = 1 / pull if pull > 0 else math.inf
    conditions = (
        Condition(
            name="sigmoid_error",
            left=e_f,
            relation="<=",
            right=SIGMOID_SLOPE_MAX,
            meaning="e_f <= phi'max: error of p on [-B_x R, B_x R]",
        ),
        Condition(
            name="barrier_decreasing",
            left=min(steepest, 0.0) if decreasing else steepest,
            relation="<=",
            right=0.0,
            meaning="max of P' on [Theta - R^2, kappa Theta]",
        ),
        Condition(
            name="barrier_positive",
            left=least,
            relation=">",
            right=0.0,
            meaning="m_P > 0: P pushes inwards beyond sqrt((1 - kappa) Theta)",
        ),
        Condition(
            name="eta_barrier",
            left=s.eta,
            relation="<=",
            right=first,
            meaning="(1), first part: eta <= kappa Theta / lambda",
        ),
        Condition(
            name="eta_overshoot",
            left=s.eta,
            relation="<=",
            right=second,
            meaning="(1), second part: eta <= 1 / (lambda (M_P + m_P) + (phi'max - d) B_x / (2 r))",
        ),
        Condition(
            name="alpha",
            left=quadratic["alpha"],
            relation="<",
            right=1.0,
            meaning="alpha = 2 eta lambda m_P < 1",
        ),
        Condition(
            name="norm",
            left=core,
            relation=">=",
            right=root,
            meaning="(2): r = sqrt((1 - kappa) Theta) >= (-b + sqrt(b^2 - 4ac)) / (2a)",
        ),
        *money.conditions,
    )
    figures = {
        "R": bound,
        "interval": s.norm_bound * bound,
        "e_f": e_f,
        "zeta_f": gradient_error(s, e_f),
        "e_B": e_b,
        "c_delta": c_delta(s.budget, s.rounds),
        "D2": sensitivity.exact,
        "sensitivity": sensitivity.total,
        "sigma_total": s.budget.total_std(s.sigma),
        "m_P": least,
        "M_P": most,
        "r": core,
        "eta_max": min(first, second),
        **quadratic,
        **money.figures,
    }
    return Certificate(
        method="barrier",
        setting=s,
        conditions=conditions,
        figures=figures,
        epsilon_by_coalition=money.by_coalition,
        assumptions=ASSUMPTIONS,
        events=money.events,
    )
