"""A plain ridge term (or none) in place of the barrier, certified.

The rule is w <- w - eta (lam w + (1/N) sum_i (p(<w, x_i>) - y_i) x_i + chi) from w = 0. It costs no
multiplicative level beyond the gradient's own. The polynomial's interval [-B R, B R] fixes the
radius R, and the certificate shows that R holds:

0. whitening: Lambda bounds the rows' second moment, except with the probability that it states and
   that delta pays for; without whitening Lambda = B^2 (`whitening`);
1. descent_bound: every iterate stays within R, except with probability delta_norm
   (`descent_bound`, whose docstring is the proof; alpha = eta lam, the TOTAL noise);
2. within the ball one row moves the gradient sum by at most `sensitivity.diameter(p, B, R)`, hence
   T rounds of noise sigma are Gaussian-DP (`accounting`);
3. (1) and (2) are joined as `budget` says.

lam = 0 is allowed: T rounds can only go so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from protocols.errors import ParameterError
from protocols.numerics.approximation import link_error
from protocols.privacy.certificates.certificate import Certificate, Condition, require_numbers
from protocols.privacy.certificates.descent_bound import DescentBound, push_bound
from protocols.privacy.certificates.row_setting import RowSetting, row_setting
from protocols.privacy.loss.budget import certify
from protocols.updates.momentum import GradientDescent

if TYPE_CHECKING:
    from protocols.rows.plan import RowsPlan


@dataclass(frozen=True, kw_only=True)
class RidgeSetting(RowSetting):
    """Everything that the ridge certificate speaks about; any other p than 1/2 + odd: signed rows.

    Attributes:
        lam: coefficient of w in the update, >= 0; the penalty is lam |w|^2 / 2.
        learning_rate, rounds: eta, T.

    Raises:
        ParameterError: a field is out of range; the message names it.
    """

    lam: float
    learning_rate: float
    rounds: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_numbers(self, "learning_rate rounds", "lam")
        if self.learning_rate * self.lam > 1:
            raise ParameterError(
                f"eta lam = {self.learning_rate * self.lam} exceeds 1: lower learning_rate or lam"
            )

    @property
    def rule(self) -> GradientDescent:
        """That it is about."""
        return GradientDescent(rounds=self.rounds, learning_rate=self.learning_rate, ridge=self.lam)

    @property
    def descent_bound(self) -> DescentBound:
        """The figures of the descent bound, with the total noise."""
        return DescentBound(
            learning_rate=self.learning_rate,
            alpha=self.learning_rate * self.lam,
            rounds=self.rounds,
            features=self.features,
            norm_bound=self.norm_bound,
            noise=self.budget.total_std(self.sigma),
            failure=self.budget.bound_failure,
            error=self.gradient_error,
        )


def setting_of(plan: RowsPlan, norm_bound: float) -> RidgeSetting:
    """What a plan's certificate is about.

    Raises:
        ParameterError: a figure is out of range.
    """
    rule: Any = plan.rule
    return RidgeSetting(
        **row_setting(plan, norm_bound),
        lam=rule.ridge,
        learning_rate=rule.learning_rate,
        rounds=plan.rounds,
    )


def check(setting: RidgeSetting) -> Certificate:
    """Evaluate the descent bound and the budget.

    Returns:
        a certificate; `satisfied` says whether it certifies anything, `binding` what is tightest.
    """
    s = setting
    bound, radius, ends = s.descent_bound, s.radius, s.norm_bound * s.radius
    push = push_bound(
        s.sigmoid.polynomial,
        shrink=1 - bound.alpha,
        learning_rate=s.learning_rate,
        norm_bound=s.norm_bound,
        radius=radius,
        spectrum=s.largest_eigenvalue,
    )
    reached = math.sqrt(bound.squared_bound(radius, push))
    conditions = (
        *s.conditions,
        Condition(
            "descent_bound",
            reached,
            "<=",
            radius,
            "sqrt(G(R)) <= R: no iterate leaves the ball that p's interval allows",
        ),
    )
    figures = {
        "R": radius,
        "reached": reached,
        "interval": ends,
        "e_f": link_error(s.sigmoid.polynomial, ends),
        "Lambda": s.largest_eigenvalue,
        "M": push,
        "alpha": bound.alpha,
        "rho": bound.rho,
        "A": bound.weight,
        "Q": bound.weight_squared,
        "x": bound.x,
        "D2": s.gradient_sensitivity,
    }
    return certify(
        "ridge",
        s,
        conditions,
        figures,
        sensitivity=s.gradient_sensitivity + s.rounding,
        norm_failure=bound.failure if s.sigma > 0 else 0.0,
    )
