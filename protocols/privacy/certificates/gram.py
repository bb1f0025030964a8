"""Noise on Gram sums: sensitivity, sigma, and the ridge that keeps noisy training bounded.

Released is (X^T X, X^T Y), X^T X in the Frobenius norm: off the diagonal every entry of the upper
triangle counts sqrt(2) times. Rows x, x' with |x| <= B and |y| <= Y differ by

    D^2 = |x|^4 + |x'|^4 - 2 (x.x')^2 + |x|^2 |y|^2 + |x'|^2 |y'|^2 - 2 (x.x')(y.y').

It is convex in |x|^2, |y|, … each; the worst case has all of them largest and y.y' = +-Y^2. With
s = x.x' = -+Y^2 / 2 where that is allowed, else -+B^2:

    D = sqrt(2) (B^2 + Y^2 / 2) if Y^2 <= 2 B^2, else 2 B Y.            (attained)

One release: everything after the noisy sums is post-processing, the number of iterations free.
That is the exact model of the noisy sums. The decrypted one differs from it by the circuit's error,
which is no function of the sums: every party's own encryption is in it. It does not widen D, of
sums that are noised before any ciphertext exists. The flooding of the decryption hides it, which
costs `Budget.spent_mu`; the masks of refreshes cost `Budget.other_delta` (`numerics.arithmetic`).

The noise E on X^T X / N has i.i.d. coordinates of standard deviation s = sigma_total in that norm,
so its largest eigenvalue is s-Lipschitz in i.i.d. normals and has mean at most s sqrt(2 d)
(Sudakov-Fernique): |E| <= tau = s (sqrt(2 d) + sqrt(2 ln(2 / beta))) with probability 1 - beta.
With ridge >= tau the noisy problem is convex, and 2 (B^2 + tau + ridge) bounds its curvature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from parties.kernel.gram.sums import gram_sensitivity
from protocols.errors import ParameterError
from protocols.numerics import arithmetic
from protocols.privacy.certificates.certificate import (
    Certificate,
    Condition,
    Stated,
    document,
    stated_noise,
)
from protocols.privacy.laws.grid import NoiseGrid, discretisation_delta
from protocols.privacy.loss.budget import GRID_MARGIN, Budget
from protocols.privacy.loss.composed import composed

if TYPE_CHECKING:
    from protocols.gram.plan import GramPlan

ASSUMPTIONS = (
    "every row's norm, bias column included, is at most norm_bound, and that of its encoded "
    "targets at most target_bound: owners clip to both",
    "neighbours differ in one row (replace-one), and the sums of all N rows are released once",
    "everything after the noisy sums is post-processing, whatever the number of iterations",
)


def noise_norm_bound(total_std: float, features: int, failure: float) -> float:
    """tau: |E| stays below it with probability 1 - failure.

    total_std: standard deviation of a diagonal entry, all parties' noise together.
    """
    return total_std * (math.sqrt(2 * features) + math.sqrt(2 * math.log(2 / failure)))


@dataclass(frozen=True, kw_only=True, slots=True)
class GramRelease:
    """What a certificate is about.

    budget: epsilon, delta, P and t; its `delta_norm` is the probability beta with which the noise
    may exceed tau (which costs accuracy, not privacy, but is kept within the promise);
    norm_bound: B; target_bound: Y; rows: N; features: d, bias included; outputs: c; ridge: weight
    of |W|^2 beside the mean squared error; sigma: noise on the mean sums, None for the least that
    the budget allows.

    Raises:
        ParameterError: a field is out of range.
    """

    budget: Budget
    norm_bound: float
    target_bound: float
    rows: int
    features: int
    outputs: int
    ridge: float
    sigma: float | None = None

    def __post_init__(self) -> None:
        if min(self.rows, self.features, self.outputs) < 1:
            raise ParameterError(
                f"rows={self.rows}, features={self.features}, outputs={self.outputs}: need >= 1"
            )
        if self.budget.epsilon is None:
            raise ParameterError("epsilon=None: a run without privacy has no certificate")

    @property
    def coordinates(self) -> int:
        """Of the release: upper triangle, then X^T Y."""
        return self.features * (self.features + 1) // 2 + self.features * self.outputs

    @property
    def exact_sensitivity(self) -> float:
        """D."""
        return gram_sensitivity(self.norm_bound, self.target_bound)

    @property
    def grid(self) -> NoiseGrid:
        """Of the noise, which the owner rounds its sums to."""
        return self.budget.split.grid(self.sigma or self._needed(self.exact_sensitivity))

    @property
    def sensitivity(self) -> float:
        """D with rounding: one unit a coordinate between neighbours."""
        return self.exact_sensitivity + self.rows * self.grid.unit * math.sqrt(self.coordinates)

    @property
    def least(self) -> float:
        """sigma that the budget needs on this grid."""
        return self._needed(self.sensitivity)

    @property
    def failure(self) -> float:
        """beta."""
        return self.budget.bound_failure

    @property
    def noise_bound(self) -> float:
        """tau, the least ridge."""
        total = self.budget.split.total_std(self.sigma or self.least) * GRID_MARGIN
        return noise_norm_bound(total, self.features, self.failure)

    def resolved(self) -> GramRelease:
        """With sigma as a number."""
        return self if self.sigma is not None else replace(self, sigma=self.least)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return document(self)

    def _needed(self, sensitivity: float) -> float:
        return self.budget.sigma(rounds=1, sensitivity=sensitivity, rows=self.rows)


def setting_of(plan: GramPlan, norm_bound: float) -> GramRelease:
    """What a plan's certificate is about.

    Raises:
        ParameterError: a figure is out of range, or the plan promises no privacy.
    """
    arithmetic.check(plan, norm_bound)
    return plan.privacy_setting(norm_bound)


def stated(plan: GramPlan, found: Certificate) -> tuple[Stated, ...]:
    """A larger bound on the curvature only makes training slower."""
    own = found.figures["curvature_bound"]
    name, meaning = "curvature_bound", "the bound with noise"
    return (
        *stated_noise(plan, found),
        Stated(name, plan.curvature_bound, own, meaning, exact=False),
    )


def check(release: GramRelease) -> Certificate:
    """The certificate of a release; its setting has sigma as a number."""
    r, budget, split = release, release.budget, release.budget.split
    widened, least, tau = r.sensitivity, r.least, r.noise_bound
    sigma = least if r.sigma is None else r.sigma
    delta_grid = discretisation_delta(
        units=r.grid.units(split.share_std(sigma)),
        shares=split.honest,
        values=r.coordinates,
        epsilon=float(budget.epsilon or 0),
    )
    spent = budget.delta_mechanism + r.failure + delta_grid + budget.other_delta
    conditions = (
        Condition(
            "noise",
            sigma,
            ">=",
            least,
            "sigma is what epsilon needs at delta_mechanism: one release, and flooding",
            by_design=True,
        ),
        Condition(
            "delta",
            spent,
            "<=",
            budget.delta,
            "mechanism, noise norm, grid and arithmetic together",
            by_design=True,
        ),
        Condition(
            "ridge",
            r.ridge,
            ">=",
            tau,
            "ridge >= tau: the noisy problem is convex, so training cannot diverge",
        ),
    )
    release_of: dict[str, Any] = {
        "sigma": sigma,
        "rounds": 1,
        "sensitivity": widened,
        "rows": r.rows,
    }
    by_coalition, events = budget.by_coalition(**release_of), budget.events(**release_of)
    figures = {
        "D": r.exact_sensitivity,
        "grid_unit": r.grid.unit,
        "delta_grid": delta_grid,
        "sensitivity": widened,
        "noise_bound": tau,
        "curvature_bound": 2 * (r.norm_bound**2 + tau),
        "delta_mechanism": budget.delta_mechanism,
        "delta_norm_bound": r.failure,
        "delta_other": budget.other_delta,
        "mu_beside": budget.spent_mu,
        "epsilon_exact": by_coalition[split.colluders],
    }
    return Certificate(
        method="gram",
        setting=replace(r, sigma=sigma),
        conditions=conditions,
        figures=figures,
        epsilon_by_coalition=by_coalition,
        epsilon_composed=composed(
            events, split, delta=budget.delta_mechanism, paid_mu=budget.paid_mu
        ),
        assumptions=ASSUMPTIONS,
        events=events,
    )
