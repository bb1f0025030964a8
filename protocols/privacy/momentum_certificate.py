"""Accelerated steps without a regulariser, certified over few iterations.

The rule is Nesterov's, plain or on the quadratic gradient: `momentum_bound`, whose docstring bounds
its iterates. The polynomial's interval [-B R, B R] fixes the radius R, and the certificate shows:

1. momentum_bound: every point in which a gradient is taken stays within R, except with probability
   delta_momentum (TOTAL noise, largest entry L of the preconditioner);
2. within it one row moves the gradient sum by at most D2 = `sensitivity.diameter(p, B, R)`;
3. the preconditioner 1 / b hangs on the rows, hence b = offset + c / N sum_i |x_ik| sum_j |x_ij|
   is released once, with noise of its own. One row moves the sum by at most D_b = c B^2 sqrt(d);
4. range: b with the TOTAL noise stays in [low, high], where the inverse is certified to be at most
   L, except with probability delta_range <= d exp(-x^2 / 2), x noise stds inside either end;
5. b and T gradients, each chosen after the last, are mu-Gaussian-DP with mu^2 =
   (D_b / (N sigma_b))^2 + T (D2 / (N sigma))^2: as much as T gradients of sensitivity
   D2_widened = sqrt((D2 + 2 e_ckks sqrt(d))^2 + (D_b sigma / sigma_b)^2 / T). The rest is public
   post-processing;
6. all is joined as `budget` says: delta_momentum and delta_range come out of delta_norm.

D_b: with a = |x|, u = a / |a|, a row adds s(a) = |a|^2 s(u), s(u) = u (1.u). For unit vectors u, u'
with u.u' = k the part of (1, ..., 1) in their span has the squared length (t^2 + t'^2 - 2 k t t') /
(1 - k^2) <= d, t = 1.u, t' = 1.u', and |s(u) - s(u')|^2 = t^2 + t'^2 - 2 k t t' <= d (1 - k^2).
|s(a) - s(a')|^2 is convex in (|a|^2, |a'|^2), hence largest where each is 0 or B^2: at most B^4 d.
Two halves of the columns attain it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from protocols.approximation import Polynomial, error_bound, range_bound
from protocols.curvature import Curvature, largest_row_sum
from protocols.errors import ParameterError
from protocols.privacy.budget import certify
from protocols.privacy.certificate import (
    ASSUMPTIONS,
    Certificate,
    Condition,
    document,
    require_numbers,
)
from protocols.privacy.descent_bound import require_symmetric
from protocols.privacy.grid import discretisation_delta
from protocols.privacy.momentum_bound import AcceleratedRule, MomentumBound
from protocols.privacy.row_setting import RowSetting, row_setting

if TYPE_CHECKING:
    from protocols.rows import RowsPlan

UNCOUNTED = "the arithmetic's error of gradients and preconditioner is NOT counted (e_ckks = 0)"


@dataclass(frozen=True, kw_only=True)
class MomentumSetting(RowSetting):
    """Everything that the certificate of momentum speaks about; p is 1/2 plus an odd polynomial.

    Attributes:
        rule: with its rounds T, rates, momenta and, where preconditioned, its curvature, of which
            `sigma` is sigma_b.

    Raises:
        ParameterError: a field is out of range, or there is no promise; the message names it.
    """

    rule: AcceleratedRule

    def __post_init__(self) -> None:
        super().__post_init__()
        require_numbers(self, "sigma")
        if self.budget.epsilon is None:
            raise ParameterError(
                "epsilon=None: the certificate of momentum is about a run with privacy"
            )
        require_symmetric(self.sigmoid.polynomial)
        if self.curvature is not None and not self.curvature.sigma > 0:
            raise ParameterError("sigma=0 of the curvature: the preconditioner needs noise as well")

    @property
    def rounds(self) -> int:
        """T."""
        return self.rule.rounds

    @property
    def curvature(self) -> Curvature | None:
        """Of the preconditioner; None without."""
        return self.rule.curvature

    @property
    def allowance(self) -> float:
        """What each of bound and range may fail with."""
        return self.budget.bound_failure / (1 if self.curvature is None else 2)

    @property
    def bound(self) -> MomentumBound:
        """With the total noise."""
        return MomentumBound(
            rule=self.rule,
            gain=1.0 if self.curvature is None else self.curvature.inverse.largest,
            features=self.features,
            norm_bound=self.norm_bound,
            noise=self.budget.total_std(self.sigma),
            failure=self.allowance,
            error=self.gradient_error,
        )

    @property
    def curvature_sensitivity(self) -> float:
        """D_b, of the sum over rows; 0 without a preconditioner."""
        c = self.curvature
        return 0.0 if c is None else row_sum_sensitivity(c.constant, self.norm_bound, self.features)

    @property
    def widened(self) -> float:
        """D2_widened, which pays for the curvature as well."""
        gradient = self.gradient_sensitivity + self.rounding
        if self.curvature is None:
            return gradient
        ratio = self.curvature_sensitivity * self.sigma / self.curvature.sigma
        return math.hypot(gradient, ratio / math.sqrt(self.rounds))

    @property
    def range_margin(self) -> float:
        """Distance of b without noise from either end of [low, high]; 0 if outside."""
        c = self.curvature
        if c is None:
            return math.inf
        top = c.offset + c.constant * largest_row_sum(self.features, norm=self.norm_bound)
        return max(0.0, min(c.offset - c.low, c.high - top))

    @property
    def range_failure(self) -> float:
        """Probability that noise takes an entry of b out of [low, high]."""
        if self.curvature is None:
            return 0.0
        x = self.range_margin / self.budget.total_std(self.curvature.sigma)
        return self.features * math.exp(-x * x / 2)

    @property
    def curvature_grid_delta(self) -> float:
        """What the grid of the noise on b costs; see `audit`, which charges the gradients'."""
        c, split = self.curvature, self.budget.split
        if c is None:
            return 0.0
        return discretisation_delta(
            units=split.grid(c.sigma).units(split.share_std(c.sigma)),
            shares=1,
            values=2 * self.features,
            epsilon=self.budget.epsilon or 0.0,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, rule and polynomial included."""
        own = document(self)
        return {"update": own.pop("rule"), "rounds": self.rounds, **own}


def row_sum_sensitivity(constant: float, norm_bound: float, features: int) -> float:
    """D_b = c B^2 sqrt(d): replace-one, L2, of c sum_i |x_ik| sum_j |x_ij|."""
    return constant * norm_bound**2 * math.sqrt(features)


def largest_residual(p: Polynomial, z: float) -> float:
    """h(z), certain."""
    return max(abs(bound) for bound in range_bound(p, -z, z))


def setting_of(plan: RowsPlan, norm_bound: float) -> MomentumSetting:
    """What a plan's certificate is about.

    Raises:
        ParameterError: a figure is out of range.
    """
    return MomentumSetting(**row_setting(plan, norm_bound), rule=cast(AcceleratedRule, plan.rule))


def check(setting: MomentumSetting) -> Certificate:
    """Evaluate the momentum bound, the range of b and the budget.

    Returns:
        a certificate; `satisfied` says whether it certifies anything, `binding` what is tightest.
    """
    s = setting
    p = s.sigmoid.polynomial
    bounds = s.bound.bounds(lambda z: largest_residual(p, min(z, p.radius)))
    reached = float(bounds.max())
    conditions = [
        Condition(
            "momentum_bound",
            reached,
            "<=",
            s.radius,
            "max U_t <= R: no gradient is taken outside the ball that p's interval allows",
        )
    ]
    if s.curvature is not None:
        conditions.append(
            Condition(
                "range",
                s.range_failure,
                "<=",
                s.allowance,
                "d exp(-x^2/2) <= delta_range: the noisy b stays where its inverse holds",
                by_design=True,
            )
        )
    return certify(
        "momentum",
        s,
        conditions,
        _figures(s, reached),
        sensitivity=s.widened,
        norm_failure=s.bound.failure + s.range_failure + s.curvature_grid_delta,
        assumptions=ASSUMPTIONS if s.encryption_error else (*ASSUMPTIONS, UNCOUNTED),
    )


def _figures(s: MomentumSetting, reached: float) -> dict[str, float]:
    p, ends = s.sigmoid.polynomial, s.norm_bound * s.radius
    figures = {
        "R": s.radius,
        "reached": reached,
        "interval": ends,
        "e_f": error_bound(p, "sigmoid", -ends, ends),
        "L": s.bound.gain,
        "x": s.bound.x,
        "D2": s.gradient_sensitivity,
        "delta_momentum": s.bound.failure,
    }
    if s.curvature is not None:
        figures |= {
            "D_b": s.curvature_sensitivity,
            "sigma_b": s.curvature.sigma,
            "sigma_b_total": s.budget.total_std(s.curvature.sigma),
            "delta_range": s.range_failure,
        }
    return figures
