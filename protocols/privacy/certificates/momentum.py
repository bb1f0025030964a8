"""Accelerated steps without a regulariser, certified over few iterations.

The rule is Nesterov's: `momentum_bound`, whose docstring bounds its iterates. The polynomial's
interval [-B R, B R] fixes the radius R, and the certificate shows, with Lambda of `whitening` (B^2
without it):

1. momentum_bound: every point in which a gradient is taken stays within R, except with probability
   delta_momentum (TOTAL noise);
2. within it one row moves the gradient sum by at most D2 = `sensitivity.diameter(p, B, R)`, and by
   D2 + 2 e_ckks sqrt(d) with the arithmetic's error;
3. T gradients, each chosen after the last, are mu-Gaussian-DP with mu^2 = T (D2 / (N sigma))^2. The
   rest is public post-processing;
4. all is joined as `budget` says: delta_momentum comes out of delta_norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from protocols.errors import ParameterError
from protocols.numerics.approximation import Polynomial, error_bound, range_bound
from protocols.privacy.certificates.certificate import (
    ASSUMPTIONS,
    Certificate,
    Condition,
    document,
    require_numbers,
)
from protocols.privacy.certificates.descent_bound import require_symmetric
from protocols.privacy.certificates.momentum_bound import MomentumBound
from protocols.privacy.certificates.row_setting import RowSetting, row_setting
from protocols.privacy.loss.budget import certify
from protocols.updates.momentum import Nesterov

if TYPE_CHECKING:
    from protocols.rows.plan import RowsPlan

UNCOUNTED = "the arithmetic's error of gradients is NOT counted (e_ckks = 0)"


@dataclass(frozen=True, kw_only=True)
class MomentumSetting(RowSetting):
    """Everything that the certificate of momentum speaks about; p is 1/2 plus an odd polynomial.

    Attributes:
        rule: with its rounds T, rate and momenta.

    Raises:
        ParameterError: a field is out of range, or there is no promise; the message names it.
    """

    rule: Nesterov

    def __post_init__(self) -> None:
        super().__post_init__()
        require_numbers(self, "sigma")
        if self.budget.epsilon is None:
            raise ParameterError(
                "epsilon=None: the certificate of momentum is about a run with privacy"
            )
        require_symmetric(self.sigmoid.polynomial)

    @property
    def rounds(self) -> int:
        """T."""
        return self.rule.rounds

    @property
    def bound(self) -> MomentumBound:
        """With the total noise."""
        return MomentumBound(
            rule=self.rule,
            features=self.features,
            norm_bound=self.norm_bound,
            noise=self.budget.total_std(self.sigma),
            failure=self.budget.bound_failure,
            error=self.gradient_error,
            spectrum=self.spectrum,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, rule and polynomial included."""
        own = document(self)
        return {"update": own.pop("rule"), "rounds": self.rounds, **own}


def largest_residual(p: Polynomial, z: float) -> float:
    """h(z), certain."""
    return max(abs(bound) for bound in range_bound(p, -z, z))


def setting_of(plan: RowsPlan, norm_bound: float) -> MomentumSetting:
    """What a plan's certificate is about.

    Raises:
        ParameterError: a figure is out of range.
    """
    return MomentumSetting(**row_setting(plan, norm_bound), rule=cast(Nesterov, plan.rule))


def check(setting: MomentumSetting) -> Certificate:
    """Evaluate the momentum bound and the budget.

    Returns:
        a certificate; `satisfied` says whether it certifies anything, `binding` what is tightest.
    """
    s = setting
    p = s.sigmoid.polynomial
    bounds = s.bound.bounds(lambda z: largest_residual(p, min(z, p.radius)))
    reached = float(bounds.max())
    conditions = [
        *s.conditions,
        Condition(
            "momentum_bound",
            reached,
            "<=",
            s.radius,
            "max U_t <= R: no gradient is taken outside the ball that p's interval allows",
        ),
    ]
    return certify(
        "momentum",
        s,
        conditions,
        _figures(s, reached),
        sensitivity=s.gradient_sensitivity + s.rounding,
        norm_failure=s.bound.failure,
        assumptions=ASSUMPTIONS if s.encryption_error else (*ASSUMPTIONS, UNCOUNTED),
    )


def _figures(s: MomentumSetting, reached: float) -> dict[str, float]:
    p, ends = s.sigmoid.polynomial, s.norm_bound * s.radius
    return {
        "R": s.radius,
        "reached": reached,
        "interval": ends,
        "e_f": error_bound(p, "sigmoid", -ends, ends),
        "Lambda": s.largest_eigenvalue,
        "x": s.bound.x,
        "D2": s.gradient_sensitivity,
        "delta_momentum": s.bound.failure,
    }
