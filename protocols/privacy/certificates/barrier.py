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
both are checked. d is 1/2, which holds for any data. Weights of rows on [0, 1] leave the proof as
it is: the mean loss stays convex, and phi'max, d and e_f bound what each row adds to a gradient.

**Sensitivity.** The theorem pays for 2 (phi'max + e_f) B_x, the sum of two rows' largest gradients.
Given the iterates so far, neighbours stand at the same w, and the barrier's term is the same
function of w: what differs is one row's gradient, (p(<w, x>) - y) x in place of another at that w.
As |w| <= R, that is at most the diameter of all such gradients, `sensitivity.diameter(p, B_x, R)`.
The two largest ones point along w on the same side, so it is less: about 2 B_x. It needs
p(z) + p(-z) = 1. R is bounded as before, with phi'max + e_f for the one gradient that the step
takes: a smaller sigma only makes it smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scipy.special import log_ndtr

from protocols.errors import ParameterError
from protocols.numerics.approximation import (
    Approximation,
    error_bound,
    is_decreasing,
    range_bound,
)
from protocols.privacy.certificates.certificate import Certificate, Condition, require_numbers
from protocols.privacy.certificates.descent_bound import require_symmetric
from protocols.privacy.certificates.row_setting import RowSetting, row_setting
from protocols.privacy.certificates.sensitivity import SIGMOID_SLOPE_MAX, Sensitivity, diameter
from protocols.privacy.loss.budget import Budget, certify
from protocols.updates.barrier import Barrier

if TYPE_CHECKING:
    from protocols.rows.plan import RowsPlan

GRADIENT_AT_ZERO = 0.5
"""d, bound on |grad f(0)| / B_x of any data: |1/2 - y| = 1/2."""


@dataclass(frozen=True, kw_only=True)
class BarrierSetting(RowSetting):
    """Everything that Theorem 3 speaks about.

    Attributes:
        theta, lam, kappa, learning_rate, rounds: Theta, lambda, kappa, eta, T.
        reciprocal: P and its interval [kappa Theta, Theta].

    Raises:
        ParameterError: a field is out of range; the message names it.
    """

    theta: float
    lam: float
    kappa: float
    learning_rate: float
    rounds: int
    reciprocal: Approximation

    def __post_init__(self) -> None:
        super().__post_init__()
        require_numbers(self, "theta lam learning_rate rounds")
        require_symmetric(self.sigmoid.polynomial)
        if not 0 < self.kappa < 1:
            raise ParameterError(f"kappa={self.kappa} is outside (0, 1)")

    @property
    def rule(self) -> Barrier:
        """That it is about."""
        return Barrier(
            rounds=self.rounds,
            learning_rate=self.learning_rate,
            theta=self.theta,
            weight=self.lam,
            reciprocal=self.reciprocal.polynomial,
        )


def c_delta(budget: Budget, rounds: int) -> float:
    """sqrt(2 ln(2T / delta_norm)), which is sqrt(2 ln(3T / delta)) at the paper's split."""
    if budget.epsilon is None:
        return 0.0
    return math.sqrt(2 * math.log(2 * rounds / budget.delta_norm))


def gradient_error(setting: BarrierSetting, sigmoid_error: float) -> float:
    """zeta_f = e_f B_x + e_ckks sqrt(m) / N: how far the computed mean gradient may be off."""
    return sigmoid_error * setting.norm_bound + setting.gradient_error


def iterate_bound(
    setting: BarrierSetting, *, sigmoid_error: float, reciprocal_error: float
) -> float:
    """R of Theorem 3 for given e_f and e_B, with the TOTAL noise."""
    noise = setting.budget.total_std(setting.sigma)
    spread = math.sqrt(setting.features) + c_delta(setting.budget, setting.rounds)
    return math.sqrt((1 - setting.kappa) * setting.theta) + setting.learning_rate * (
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
    from scipy.stats import chi

    return rounds * (one_direction + float(chi(features).sf(math.sqrt(features) + c)))


def smallest_norm(
    setting: BarrierSetting,
    *,
    sigmoid_error: float,
    least: float,
    gradient_at_zero: float = GRADIENT_AT_ZERO,
) -> tuple[float, dict[str, float]]:
    """Right side of condition (2) and its figures; inf where alpha is outside (0, 1).

    Args:
        setting: the setting.
        sigmoid_error: e_f.
        least: m_P.
        gradient_at_zero: d.
    """
    s = setting
    noise = s.budget.total_std(s.sigma)
    c = c_delta(s.budget, s.rounds)
    zeta = gradient_error(s, sigmoid_error)
    alpha = 2 * s.learning_rate * s.lam * least
    quadratic = 2 * alpha - alpha**2
    start = gradient_at_zero * s.norm_bound
    linear = -2 * s.learning_rate * ((1 - alpha) * (start + c * noise) + zeta)
    push = s.norm_bound * SIGMOID_SLOPE_MAX + (math.sqrt(s.features) + c) * noise
    constant = -(s.learning_rate**2) * (push**2 - zeta**2)
    figures = {"alpha": alpha, "a": quadratic, "b": linear, "c": constant}
    if not 0 < alpha < 1:
        return math.inf, figures
    return (-linear + math.sqrt(linear**2 - 4 * quadratic * constant)) / (2 * quadratic), figures


def setting_of(plan: RowsPlan, norm_bound: float) -> BarrierSetting:
    """What a plan's certificate is about.

    Raises:
        ParameterError: a figure is out of range.
    """
    rule: Any = plan.rule
    reciprocal, theta = rule.reciprocal, rule.theta
    return BarrierSetting(
        **row_setting(plan, norm_bound),
        theta=theta,
        lam=rule.weight,
        kappa=reciprocal.low / theta,
        learning_rate=rule.learning_rate,
        rounds=plan.rounds,
        reciprocal=Approximation.unchecked(reciprocal),
    )


def check(setting: BarrierSetting, *, gradient_at_zero: float = GRADIENT_AT_ZERO) -> Certificate:
    """Evaluate every condition of Theorem 3, with true polynomial errors on true intervals.

    gradient_at_zero: d; less than 1/2 is of these rows (Remark 5.3), and a release to be paid for.

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
    root, quadratic = smallest_norm(
        s, sigmoid_error=e_f, least=least, gradient_at_zero=gradient_at_zero
    )
    core = math.sqrt((1 - s.kappa) * s.theta)
    overshoot = (SIGMOID_SLOPE_MAX - gradient_at_zero) * s.norm_bound / (2 * core)
    pull = s.lam * (most + least) + overshoot
    paper = Sensitivity(norm_bound=s.norm_bound, approximation_error=e_f, features=s.features)
    moved = diameter(s.sigmoid.polynomial, norm_bound=s.norm_bound, radius=bound)
    steepest = range_bound(barrier.derivative(), bottom, low)[1]
    decreasing = is_decreasing(barrier, bottom, low)
    first = s.kappa * s.theta / s.lam
    second = 1 / pull if pull > 0 else math.inf
    conditions = (
        Condition(
            "sigmoid_error",
            e_f,
            "<=",
            SIGMOID_SLOPE_MAX,
            "e_f <= phi'max: error of p on [-B_x R, B_x R]",
        ),
        Condition(
            "barrier_decreasing",
            min(steepest, 0.0) if decreasing else steepest,
            "<=",
            0.0,
            "max of P' on [Theta - R^2, kappa Theta]",
        ),
        Condition(
            "barrier_positive",
            least,
            ">",
            0.0,
            "m_P > 0: P pushes inwards beyond sqrt((1 - kappa) Theta)",
        ),
        Condition(
            "eta_barrier",
            s.learning_rate,
            "<=",
            first,
            "(1), first part: eta <= kappa Theta / lambda",
        ),
        Condition(
            "eta_overshoot",
            s.learning_rate,
            "<=",
            second,
            "(1), second part: eta <= 1 / (lambda (M_P + m_P) + (phi'max - d) B_x / (2 r))",
        ),
        Condition("alpha", quadratic["alpha"], "<", 1.0, "alpha = 2 eta lambda m_P < 1"),
        Condition(
            "norm",
            core,
            ">=",
            root,
            "(2): r = sqrt((1 - kappa) Theta) >= (-b + sqrt(b^2 - 4ac)) / (2a)",
        ),
    )
    figures = {
        "R": bound,
        "interval": s.norm_bound * bound,
        "e_f": e_f,
        "zeta_f": gradient_error(s, e_f),
        "e_B": e_b,
        "c_delta": c_delta(s.budget, s.rounds),
        "D2": moved,
        "D2_paper": paper.exact,
        "m_P": least,
        "M_P": most,
        "r": core,
        "eta_max": min(first, second),
        **quadratic,
    }
    return certify(
        "barrier",
        s,
        conditions,
        figures,
        sensitivity=moved + s.rounding,
        norm_failure=norm_failure(s.budget, s.features, s.rounds),
    )
