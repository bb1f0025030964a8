"""What bounds the barrier's iterates, for the slots of training on encrypted rows; see `slots`.

1 - p(z) = p(-z). arXiv:2605.27782, Theorem 3 (`certificates.barrier`): |v_t|,
|w_T| <= R, and |rest| <= |v_(t+1)| + eta |gradient + chi|. Its conditions hold with no noise as
well.
"""

from __future__ import annotations

import math

from protocols.numerics.approximation import Approximation
from protocols.privacy.certificates.barrier import BarrierSetting, c_delta, check
from protocols.rows.slots import Course, Norms
from protocols.updates.barrier import Barrier

BALL_CONDITIONS = (
    *("sigmoid_error", "barrier_decreasing", "barrier_positive", "eta_barrier"),
    *("eta_overshoot", "alpha", "norm"),
)
"""Of the barrier's certificate: those that bound the iterates, and none about the budget."""


def norms(course: Course, rule: Barrier) -> Norms | None:
    """Of the barrier; None where a condition of its theorem fails."""
    theta = rule.theta
    setting = BarrierSetting(
        rows=course.rows,
        features=course.features,
        norm_bound=course.norm_bound,
        theta=theta,
        lam=rule.weight,
        kappa=rule.reciprocal.low / theta,
        learning_rate=rule.learning_rate,
        rounds=rule.rounds,
        sigmoid=Approximation.unchecked(course.link),
        reciprocal=Approximation.unchecked(rule.reciprocal),
        sigma=course.sigma,
        budget=course.budget,
        encryption_error=course.error * course.rows / math.sqrt(course.features),
    )
    found = check(setting)
    conditions = {each.name: each for each in found.conditions}
    # A plan holds its figures as rounded numbers; a nan has slack -inf.
    if any(not conditions[name].slack >= -1e-9 for name in BALL_CONDITIONS):
        return None
    radius, eta = float(found.figures["R"]), rule.learning_rate
    norm = course.noise * (math.sqrt(course.features) + c_delta(course.budget, rule.rounds))
    rest = radius + eta * (course.slope(radius) + norm)
    return Norms(
        proof="the barrier's theorem",
        points=(radius,) * rule.rounds,
        vectors=(((eta, rest),),) * rule.rounds,
        last=radius,
        failure=course.failure,
    )
