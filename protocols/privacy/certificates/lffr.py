"""LFFR with noise on every gradient: sensitivity, and iterates that stay in the link's interval.

The rule is W <- W - eta (grad(W) + noise + 2 ridge W) from W = 0, `lffr.plan`, eta public. A
row moves the sum of gradients by x g^T, g(z_o, y_o) for each of c outputs (`models.lffr`). While
|z| <= B R for every row and output, |g| <= G, so replacing a row moves the sum, in the Frobenius
norm, by at most

    D = 2 B sqrt(c) G,   G = 8/27 for the sigmoid and any polynomial close to it.

That holds in every round if no column of W leaves the ball of radius R = radius / B, radius that of
the polynomial's interval. Given the rows, the columns move independently of each other. Each is
bounded by `descent_bound`, with `models.lffr.push_bound` as its M(R), alpha = 2 eta ridge, the
TOTAL noise and delta_norm / c. Where iterates may leave, the condition `descent_bound` fails.

The row-dependent preconditioner B^-1 is not used: noise multiplied by it hides the gradient, but
not B itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from protocols.errors import ParameterError
from protocols.models.lffr import largest_slope, push_bound
from protocols.numerics import arithmetic
from protocols.numerics.approximation import Polynomial
from protocols.privacy.certificates.certificate import (
    ASSUMPTIONS,
    Certificate,
    Condition,
    document,
    require_numbers,
)
from protocols.privacy.certificates.descent_bound import DescentBound
from protocols.privacy.loss.budget import Budget, certify

if TYPE_CHECKING:
    from protocols.lffr.plan import LffrPlan

TARGETS = "every target is clamped to its public range"


def row_bound(link: Polynomial, norm_bound: float, outputs: int) -> float:
    """B sqrt(c) G: Frobenius norm of one row's part of the sum of gradients."""
    return norm_bound * math.sqrt(outputs) * largest_slope(link, link.radius)


@dataclass(frozen=True, kw_only=True, slots=True)
class LffrSetting:
    """Everything that the certificate speaks about.

    rows: N; features: d, bias included; outputs: c; norm_bound: B, of every row, bias included;
    link: 1/2 plus an odd polynomial; learning_rate: eta; rounds: T; ridge: weight of |W|^2 beside
    the mean squared error; budget: epsilon, delta, P, t; sigma: noise std on the mean gradient that
    is left without any t colluders, None for the least that the budget allows; encryption_error:
    e_ckks per round and coordinate, see `Sensitivity`.

    Raises:
        ParameterError: a field is out of range.
    """

    rows: int
    features: int
    outputs: int
    norm_bound: float
    link: Polynomial
    learning_rate: float
    rounds: int
    budget: Budget
    ridge: float = 0.0
    sigma: float | None = None
    encryption_error: float = 0.0

    def __post_init__(self) -> None:
        resolved = () if self.sigma is None else ("sigma",)
        require_numbers(
            self,
            "rows features outputs norm_bound learning_rate rounds",
            " ".join(("ridge", "encryption_error", *resolved)),
        )
        if 2 * self.learning_rate * self.ridge > 1:
            raise ParameterError(
                f"2 eta ridge = {2 * self.learning_rate * self.ridge:g} exceeds 1: lower "
                "learning_rate or ridge"
            )

    @property
    def radius(self) -> float:
        """R, the ball that the link's interval allows."""
        return self.link.radius / self.norm_bound

    @property
    def exact_sensitivity(self) -> float:
        """D = 2 B sqrt(c) G."""
        return 2 * row_bound(self.link, self.norm_bound, self.outputs)

    @property
    def sensitivity(self) -> float:
        """D, widened by the encryption's error in d c coordinates."""
        size = self.features * self.outputs
        return self.exact_sensitivity + 2 * self.encryption_error * math.sqrt(size)

    def resolved(self) -> LffrSetting:
        """With sigma as a number."""
        if self.sigma is not None:
            return self
        least = self.budget.sigma(rounds=self.rounds, sensitivity=self.sensitivity, rows=self.rows)
        return replace(self, sigma=least)

    def descent_bound(self) -> DescentBound:
        """Of one output's weights."""
        return DescentBound(
            learning_rate=self.learning_rate,
            alpha=2 * self.learning_rate * self.ridge,
            rounds=self.rounds,
            features=self.features,
            norm_bound=self.norm_bound,
            noise=self.budget.total_std(self.sigma or 0.0),
            failure=self.budget.bound_failure / self.outputs,
            error=self.encryption_error * math.sqrt(self.features) / self.rows,
        )

    def push(self) -> float:
        """M(R) of the descent bound."""
        return push_bound(
            self.link,
            shrink=1 - self.descent_bound().alpha,
            learning_rate=self.learning_rate,
            norm_bound=self.norm_bound,
            radius=self.radius,
        )

    def reached(self) -> float:
        """sqrt(G(R)), which must not exceed R."""
        return math.sqrt(self.descent_bound().squared_bound(self.radius, self.push()))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, polynomial included."""
        return document(self)


def of_plan(plan: Any, outputs: int, norm_bound: float) -> LffrSetting:
    """Of a plan with a public rate, whose arithmetic is not looked at.

    Raises:
        ParameterError: the plan has no privacy, or a figure is out of range.
    """
    if plan.privacy is None:
        raise ParameterError("privacy=None: a run without privacy has no certificate")
    promise = plan.privacy
    return LffrSetting(
        rows=plan.num_rows,
        features=plan.num_features,
        outputs=outputs,
        norm_bound=norm_bound,
        link=plan.link,
        learning_rate=plan.learning_rate,
        rounds=plan.rounds,
        ridge=plan.ridge,
        sigma=promise.sigma,
        encryption_error=arithmetic.allowed_error(plan.row_bound(norm_bound), plan.model_size),
        budget=Budget.of(promise, plan.split, **arithmetic.beside()),
    )


def setting_of(plan: LffrPlan, norm_bound: float) -> LffrSetting:
    """What a plan's certificate is about.

    Raises:
        ParameterError: a figure is out of range, or the plan promises no privacy.
    """
    arithmetic.check(plan, norm_bound)
    return plan.privacy_setting(norm_bound)


def check(setting: LffrSetting) -> Certificate:
    """Evaluate the bound and the budget; the certificate's setting has sigma as a number."""
    s = setting.resolved()
    bound, reached = s.descent_bound(), s.reached()
    condition = Condition(
        "descent_bound",
        reached,
        "<=",
        s.radius,
        "sqrt(G(R)) <= R: no z leaves the polynomial's interval; take fewer rounds, a "
        "a lower learning rate, more ridge or a wider interval",
    )
    figures = {
        "R": s.radius,
        "reached": reached,
        "interval": s.link.radius,
        "G": largest_slope(s.link, s.link.radius),
        "M": s.push(),
        "alpha": bound.alpha,
        "D": s.exact_sensitivity,
    }
    return certify(
        "lffr",
        s,
        (condition,),
        figures,
        sensitivity=s.sensitivity,
        norm_failure=bound.failure * s.outputs if s.sigma else 0.0,
        values=s.features * s.outputs,
        assumptions=(*ASSUMPTIONS, TARGETS),
    )
