"""A plain ridge term (or none) in place of the barrier, certified.

The rule is w <- w - eta (lam w + (1/N) sum_i (p(<w, x_i>) - y_i) x_i + chi) from w = 0. It costs no
multiplicative level beyond the gradient's own. The polynomial's interval [-B R, B R] fixes the
radius R, and the certificate shows that R holds:

1. ball: every iterate stays within R, except with probability delta_norm (`ball`, whose docstring
   is the proof; alpha = eta lam, the TOTAL noise);
2. within the ball one row moves the gradient sum by at most `sensitivity.diameter(p, B, R)`, hence
   T rounds of noise sigma are Gaussian-DP (`accounting`);
3. (1) and (2) are joined as `budget` says.

lam = 0 is allowed: T rounds can only go so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from protocols.approximation import Approximation, error_bound
from protocols.errors import ParameterError
from protocols.privacy.ball import Ball, is_symmetric, push_bound
from protocols.privacy.budget import Budget, audit
from protocols.privacy.certificate import ASSUMPTIONS, Certificate, Condition
from protocols.privacy.row_setting import row_setting
from protocols.privacy.sensitivity import diameter
from protocols.serialise import to_plain

if TYPE_CHECKING:
    from protocols.rows import RowsPlan

KEPT = 0.999
"""Part of delta_norm that the iterate bound uses; the noise grid needs some of the rest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RidgeSetting:
    """Everything that the ridge certificate speaks about.

    Attributes:
        rows: N, all parties' rows together.
        features: m, columns **including** the bias.
        norm_bound: B, bound on every row's norm, bias included.
        lam: coefficient of w in the update, >= 0; the penalty is lam |w|^2 / 2.
        eta, rounds: the learning rate, T.
        sigmoid: p, 1/2 plus an odd polynomial; its interval is [-B R, B R].
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
    lam: float
    eta: float
    rounds: int
    sigmoid: Approximation
    sigma: float
    budget: Budget
    encryption_error: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields."""
        for name in ("rows", "features", "norm_bound", "eta", "rounds"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ParameterError(f"{name}={value} is not a finite number > 0")
        for name in ("lam", "sigma", "encryption_error"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ParameterError(f"{name}={value} is not a finite number >= 0")
        if self.eta * self.lam > 1:
            raise ParameterError(f"eta lam = {self.eta * self.lam} exceeds 1: lower eta or lam")
        if not is_symmetric(self.sigmoid.polynomial):
            raise ParameterError("sigmoid: p(z) + p(-z) must be 1, 1/2 plus an odd polynomial")

    @property
    def radius(self) -> float:
        """R, the ball that p's interval allows."""
        return self.sigmoid.polynomial.radius / self.norm_bound

    @property
    def ball(self) -> Ball:
        """The figures of the ball theorem, with the total noise."""
        return Ball(
            eta=self.eta,
            alpha=self.eta * self.lam,
            rounds=self.rounds,
            features=self.features,
            norm_bound=self.norm_bound,
            noise=self.budget.total_std(self.sigma),
            failure=KEPT * self.budget.delta_norm,
            error=self.encryption_error * math.sqrt(self.features) / self.rows,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, polynomial included."""
        names = "rows features norm_bound lam eta rounds sigma encryption_error"
        return {
            **{name: getattr(self, name) for name in names.split()},
            "sigmoid": to_plain(self.sigmoid.polynomial),
            "budget": self.budget.to_dict(),
        }


def setting_of(plan: RowsPlan, norm_bound: float) -> RidgeSetting:
    """What a plan's certificate is about.

    Raises:
        ParameterError: a figure is out of range.
    """
    rule = plan.update
    return RidgeSetting(
        **row_setting(plan, norm_bound),
        lam=float(rule["ridge"]),
        eta=float(rule["learning_rate"]),
        rounds=plan.rounds,
    )


def check(setting: RidgeSetting) -> Certificate:
    """Evaluate the ball theorem and the budget.

    Returns:
        a certificate; `satisfied` says whether it certifies anything, `binding` what is tightest.
    """
    s = setting
    ball, radius = s.ball, s.radius
    push = push_bound(
        s.sigmoid.polynomial,
        shrink=1 - ball.alpha,
        eta=s.eta,
        norm_bound=s.norm_bound,
        radius=radius,
    )
    reached = math.sqrt(ball.squared_bound(radius, push))
    exact = diameter(s.sigmoid.polynomial, norm_bound=s.norm_bound, radius=radius)
    widened = exact + 2 * s.encryption_error * math.sqrt(s.features)
    money = audit(
        s.budget,
        sigma=s.sigma,
        sensitivity=widened,
        rounds=s.rounds,
        rows=s.rows,
        features=s.features,
        norm_failure=ball.failure if s.sigma > 0 else 0.0,
    )
    conditions = (
        Condition(
            name="ball",
            left=reached,
            relation="<=",
            right=radius,
            meaning="sqrt(G(R)) <= R: no iterate leaves the ball that p's interval allows",
        ),
        *money.conditions,
    )
    figures = {
        "R": radius,
        "reached": reached,
        "interval": s.norm_bound * radius,
        "e_f": error_bound(
            s.sigmoid.polynomial, "sigmoid", -s.norm_bound * radius, s.norm_bound * radius
        ),
        "M": push,
        "alpha": ball.alpha,
        "rho": ball.rho,
        "A": ball.weight,
        "Q": ball.weight_squared,
        "x": ball.x,
        "D2": exact,
        "sensitivity": widened,
        "sigma_total": ball.noise,
        **money.figures,
    }
    return Certificate(
        method="ridge",
        setting=s,
        conditions=conditions,
        figures=figures,
        epsilon_by_coalition=money.by_coalition,
        assumptions=ASSUMPTIONS,
        events=money.events,
    )
