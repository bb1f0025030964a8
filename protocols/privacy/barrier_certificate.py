"""The barrier's privacy theorem, checked mechanically: arXiv:2605.27782, Theorem 3.

The rule is w <- w - eta (2 lam P(Theta - |w|^2) w + (1/N) sum_i (p(<w, x_i>) - y_i) x_i + chi)
from w = 0, with chi the noise of ALL parties, std sigma_total. Written with B_x, the bound on
every row's norm (the paper has sqrt(m)), and zeta_f = e_f B_x:

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
both are checked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scipy.special import log_ndtr
from scipy.stats import chi

from protocols.approximation import Approximation, error_bound, is_decreasing, range_bound
from protocols.errors import ParameterError
from protocols.privacy.budget import Budget, audit
from protocols.privacy.certificate import Certificate, Condition
from protocols.privacy.sensitivity import SIGMOID_SLOPE_MAX, Sensitivity

ASSUMPTIONS = (
    "every row's norm, bias column included, is at most norm_bound: owners clip to it",
    "all N rows enter every round, and neighbours differ in one row (replace-one)",
    "what the arithmetic leaves below one grid unit is masked by the decryption's flooding noise",
)


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
        budget: epsilon, delta, P, t, accounting.
        d: bound on |grad f(0)| / B_x; 1/2 holds for any data.
        encryption_error: e_ckks per coordinate of the gradient sum, see `Sensitivity`.

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
    d: float = 0.5
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
        if not 0 <= self.d <= 1:
            raise ParameterError(f"d={self.d} is outside [0, 1]")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, polynomials included."""
        names = "rows features norm_bound theta lam kappa eta rounds sigma d encryption_error"
        return {
            **{name: getattr(self, name) for name in names.split()},
            "sigmoid": self.sigmoid.polynomial.to_dict(),
            "reciprocal": self.reciprocal.polynomial.to_dict(),
            "budget": self.budget.to_dict(),
        }


def c_delta(budget: Budget, rounds: int) -> float:
    """sqrt(2 ln(2T / delta_norm)), which is sqrt(2 ln(3T / delta)) at the paper's split."""
    if budget.epsilon is None:
        return 0.0
    return math.sqrt(2 * math.log(2 * rounds / budget.delta_norm))


def iterate_bound(
    setting: BarrierSetting, *, sigmoid_error: float, reciprocal_error: float
) -> float:
    """R of Theorem 3 for given e_f and e_B, with the TOTAL noise."""
    noise = setting.budget.total_std(setting.sigma)
    spread = math.sqrt(setting.features) + c_delta(setting.budget, setting.rounds)
    return math.sqrt((1 - setting.kappa) * setting.theta) + setting.eta * (
        (SIGMOID_SLOPE_MAX + sigmoid_error) * setting.norm_bound
        + 2 * setting.lam * reciprocal_error * math.sqrt(setting.theta)
        + spread * noise
    )


def fixed_point(setting: BarrierSetting, *, reciprocal_error: float) -> tuple[float, float]:
    """(e_f, R): the least pair with e_f the true error of p on [-B_x R, B_x R].

    Iterates up from e_f = 0; stops beyond phi'max, where the theorem ends.
    """
    error = 0.0
    for _ in range(200):
        bound = iterate_bound(setting, sigmoid_error=error, reciprocal_error=reciprocal_error)
        ends = setting.norm_bound * bound
        new = error_bound(setting.sigmoid.polynomial, "sigmoid", -ends, ends)
        if new <= error:
            return error, bound
        error = new * (1 + 1e-12)
        if error > SIGMOID_SLOPE_MAX:
            break
    return error, iterate_bound(setting, sigmoid_error=error, reciprocal_error=reciprocal_error)


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
    zeta = sigmoid_error * s.norm_bound
    alpha = 2 * s.eta * s.lam * least
    quadratic = 2 * alpha - alpha**2
    linear = -2 * s.eta * ((1 - alpha) * (s.d * s.norm_bound + c * noise) + zeta)
    push = s.norm_bound * SIGMOID_SLOPE_MAX + (math.sqrt(s.features) + c) * noise
    constant = -(s.eta**2) * (push**2 - zeta**2)
    figures = {"alpha": alpha, "a": quadratic, "b": linear, "c": constant}
    if not 0 < alpha < 1:
        return math.inf, figures
    return (-linear + math.sqrt(linear**2 - 4 * quadratic * constant)) / (2 * quadratic), figures


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
    pull = s.lam * (most + least) + (SIGMOID_SLOPE_MAX - s.d) * s.norm_bound / (2 * core)
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
        Condition(
            name="gradient_at_zero",
            left=s.d,
            relation=">=",
            right=0.5,
            meaning="d >= |grad f(0)| / B_x for any data; a smaller d would have to be released",
            by_design=True,
        ),
        *money.conditions,
    )
    figures = {
        "R": bound,
        "interval": s.norm_bound * bound,
        "e_f": e_f,
        "zeta_f": e_f * s.norm_bound,
        "e_B": e_b,
        "c_delta": c_delta(s.budget, s.rounds),
        "D2": sensitivity.exact,
        "D2_widened": sensitivity.total,
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
    )
