"""Bounds on the slots of LFFR; the words are those of `rows.slots`.

On encrypted rows a refresh carries (`ckks.circuits.lffr`), with g(z, y) the slope of the loss and s
its `side_scale`,

    slot = gain_j / s [sum_g x_ij g_i  +  in one column: N chi_j] + rest_j N / (eta s B unit),

rest = w - 2 ridge eta B^-1 w: |rest| <= |w|. Each output moves by itself.

**With a public rate**: `certificates.descent_bound` with all noise, or without noise the same ball.

**With the preconditioner** D^-1, D >= b / (1 + e), e the inverse's error:
`certificates.quiet_descent` in the norm |w|_D, rate 1. b_k >= offset + 0.155 mean |x_k| |x|_1 and
Gershgorin give D >= (0.155 X^T X / N + 2 ridge) / (1 + e), so that F curves by at most (1 + e)
max(curvature(link) / 0.155, 1) as long as |z| <= radius; and |z| <= C |w|,
|w| <= |w|_D sqrt((1 + e) / offset).

**Where rows stay home** the ball and the walk of `rows.slots`, with g in the place of p - y.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.models.lffr import CURVATURE, curvature, largest_slope, push_bound
from protocols.numerics.approximation import Polynomial
from protocols.numerics.slot_bounds import OUT_OF_RANGE, SlotBounds
from protocols.privacy.certificates.descent_bound import DescentBound
from protocols.privacy.certificates.quiet_descent import (
    QuietDescent,
    largest_integral,
    least_radius,
)
from protocols.privacy.loss.budget import GRID_MARGIN, Budget
from protocols.rows.slots import (
    ERROR_SHARE,
    TAIL,
    TAIL_FAILURE,
    Course,
    bounds_of,
    inverse_bounds,
)

if TYPE_CHECKING:
    from protocols.lffr.home_plan import LffrModelPlan
    from protocols.lffr.plan import LffrPlan


Floats = NDArray[np.float64]
FARTHEST = 1e4
"""Radii of the link, beyond which nothing is bounded."""


# -- rows that stay home --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class LffrCourse(Course):
    """Of one output."""

    logistic: ClassVar[bool] = False

    @property
    def failure(self) -> float:
        """Of all norms of this output's noise."""
        return self.budget.bound_failure / self.outputs if self.sigma else 0.0

    def slope(self, length: float) -> float:
        """See `Course`."""
        return self.norm_bound * self.moved(length) + self.error

    @property
    def label(self) -> float:
        """2 |1/2 - y| / 4."""
        return 0.25

    def moved(self, length: float) -> float:
        """All of the slope is evaluated."""
        score = self.norm_bound * length
        return largest_slope(self.link, score) if score < FARTHEST * self.link.radius else math.inf

    def push(self, shrink: float, radius: float) -> float:
        """As the certificate's."""
        return push_bound(
            self.link,
            shrink=shrink,
            learning_rate=self.rule.largest_learning_rate,
            norm_bound=self.norm_bound,
            radius=radius,
        )


def at_home(plan: LffrModelPlan, norm_bound: float) -> SlotBounds:
    """Of LFFR with gd or nag and a public rate, where rows stay home: two features share a slot."""
    privacy = plan.privacy
    course = LffrCourse(
        rule=plan.rule,
        link=plan.link,
        norm_bound=norm_bound,
        rows=plan.num_rows,
        features=plan.num_features,
        sigma=privacy.sigma if privacy else 0.0,
        budget=Budget.of(privacy, plan.split),
        outputs=plan.targets,
        is_stochastic=plan.is_stochastic,
    )
    return bounds_of(plan, course).paired()


# -- encrypted rows -------------------------------------------------------------------------------


def bounds(plan: LffrPlan, norm_bound: float) -> SlotBounds:
    """Of a plan, for rows of norm at most `norm_bound`."""
    try:
        length, proof = _length(plan, norm_bound)
    except OUT_OF_RANGE as error:
        return SlotBounds.unproven(len(plan.refreshes), f"out of range: {error}")
    if math.isinf(length):
        reason = f"lffr: {proof} does not hold for its rate and iterations"
        return SlotBounds.unproven(len(plan.refreshes), reason)
    layout, rows, given = plan.layout, plan.num_rows, plan.curvature
    groups = -(-rows // layout.block_size)
    noise = plan.split.total_std(plan.privacy.sigma) * GRID_MARGIN if plan.privacy else 0.0
    gain, unit = (given.high * given.inverse.largest, 1 / given.high) if given else (1.0, 1.0)
    scale, slope = abs(plan.units.side_scale), largest_slope(plan.link, norm_bound * length)
    terms = gain / scale * (groups * norm_bound * slope + rows * TAIL * noise)
    rest = length * rows / (plan.learning_rate * scale * layout.block_size * unit)
    steps = [
        *inverse_bounds(given, len(plan.refreshes) - plan.rounds),
        *(terms + rest,) * plan.rounds,
    ]
    failure = plan.rounds * plan.num_features * plan.outputs * TAIL_FAILURE
    if plan.privacy:
        failure += plan.privacy_setting(norm_bound).descent_bound().failure * plan.outputs
    return SlotBounds.proven(steps, length / plan.unit, proof, failure if noise else 0.0)


def _length(plan: LffrPlan, norm_bound: float) -> tuple[float, str]:
    """Bound on |w| of every output, inf if none holds, and its proof."""
    edge = plan.link.radius / norm_bound
    if plan.curvature is not None:
        return _descent(plan, norm_bound), "descent in the preconditioner's norm"
    bound = _descent_bound(plan, norm_bound)

    def squared(radius: float) -> float:
        push = push_bound(
            plan.link,
            shrink=1 - bound.alpha,
            learning_rate=bound.learning_rate,
            norm_bound=norm_bound,
            radius=radius,
        )
        return bound.squared_bound(radius, push)

    start = plan.learning_rate * norm_bound / 4
    return least_radius(squared, start, edge), "the ball of LFFR"


def _descent_bound(plan: LffrPlan, norm_bound: float) -> DescentBound:
    if plan.privacy:
        return plan.privacy_setting(norm_bound).descent_bound()
    return DescentBound(
        learning_rate=plan.learning_rate,
        alpha=2 * plan.learning_rate * plan.ridge,
        rounds=plan.rounds,
        features=plan.num_features,
        norm_bound=norm_bound,
        noise=0.0,
        failure=1.0,
        error=ERROR_SHARE * norm_bound / plan.num_rows,
    )


def _descent(plan: LffrPlan, norm_bound: float) -> float:
    """|w| <= |w|_D sqrt((1 + e) / offset), for the least |w|_D that holds, |z| <= radius."""
    given, link = plan.curvature, plan.link
    assert given is not None  # noqa: S101
    more = 1 + given.inverse.relative_error
    by_norm = math.sqrt(more / given.offset)
    falls = QuietDescent(learning_rate=1.0, lam=0.0, rounds=plan.rounds)

    def squared(radius: float) -> float:
        ends = norm_bound * radius * by_norm
        return falls.squared_bound(
            radius,
            push=push_bound(
                link, shrink=1.0, learning_rate=0.0, norm_bound=norm_bound * by_norm, radius=radius
            ),
            fall=largest_integral(_slope(link), link.radius, ends),
            curvature=more * max(curvature(link) / CURVATURE, 1.0),
            slope=0.0,
        )

    return by_norm * least_radius(squared, 0.01, link.radius / (norm_bound * by_norm))


def _slope(link: Polynomial) -> Floats:
    """2 (1 - p)^2 p, what -g is for y = 1, as coefficients."""
    p = np.array(link.coefficients)
    rest = -p
    rest[0] += 1.0
    slope: Floats = 2 * np.convolve(np.convolve(rest, rest), p)
    return slope
