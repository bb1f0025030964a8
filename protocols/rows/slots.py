"""Bounds on the slots of training on encrypted rows.

What a refresh carries (`ckks.circuits.rows`, `ColumnSum.spread`), with rows c x, weights w / R and
side columns over s = A / c; row i of group g stands in column i of every block j:

    slot = gain_j / s [sum_g x_ij q(z_i)  +  in one column: sum_all x_ij (p(0) - y_i) + N chi_j]
         + rest_j N / (f s B unit),

q = p - p(0), z = <v, x>, chi the noise of ALL parties on the mean gradient, B columns, at most
ceil(N / B) groups. The new vector is rest + f (gradient + chi), f a public factor; gain_j = 1 and
unit = 1 without a preconditioner, else gain_j = high / b_j <= high L and unit = 1 / high.
The release is w_T / R. The inverse's refreshes carry u, at most 1, and y = u high / b.

So everything follows from three bounds: |v_t| (hence q), |rest| and |w_T|. Let h(Z) = max |p| on
[-Z, Z] where 1 - p(z) = p(-z), else the largest of p and 1 - p; |p(z) - y| <= h for y in [0, 1],
hence |gradient| <= C h(C |v|), and |q| <= h - min(p(0), 1 - p(0)). Weights u on [0, 1] only lower
gradients. With offsets, |o_i| <= o, z_i = <v, x_i> + o_i: h is taken at C |v| + o, at v = 0 all of
the gradient is in the one column, and the walk is the only proof.

**Walk** (any linear rule). All vectors are public combinations of the gradients so far: v = sum_s
k_s P (g_s + chi_s), 0 <= P <= L. So |v| <= L (sum_s |k_s| C h(C |v_s|) + tau |k| (sqrt(d) + sqrt(2
x))), for the three vectors of all iterations together except with probability failure, x = ln(3 T /
failure): `certificates.momentum_bound`, unrolled by running the rule itself. Short runs alone stay
small.

**Ball** (gd, 1 - p(z) = p(-z) or signed rows). `certificates.descent_bound` with all noise, or
without noise `certificates.quiet_descent`: |v_t|, |w_T| <= R; rest = (1 - eta lam) v_t.

**Spectrum** (linear rules, p(z) = z, no noise, steps of at most 1 / C^2, or 1 / Lambda, which then
stands for C^2). With H = X^T X / N and
X^T y / N = H^(1/2) u, |u| <= 1 for y in [0, 1], every vector is f(H) H^(1/2) u, f a polynomial of
degree below 2 T that the rule's own recursion evaluates: |v| <= max |f(h)| sqrt(h) over [0, C^2].
In sqrt(h) / C that is an odd polynomial of degree below 4 T. On m roots of Chebyshev's polynomial
one of degree k reaches cos(pi k / 2m) of its maximum on [-1, 1] (Ehlich and Zeller 1964).

Noise: tau its std per coordinate. Norms are bounded as in the certificate, with the part of delta
that the certificate has for that; |chi_j| <= 9 tau for all coordinates but 2^-61 T d.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.numerics.approximation import Polynomial, is_symmetric, range_bound
from protocols.numerics.slot_bounds import OUT_OF_RANGE, SlotBounds
from protocols.privacy.certificates.descent_bound import DescentBound, push_bound
from protocols.privacy.certificates.quiet_descent import QuietDescent, least_radius, logistic_ball
from protocols.privacy.loss.budget import Budget
from protocols.rows.curvature import Curvature
from protocols.updates.momentum import GradientDescent, Momentum
from protocols.updates.update import Update

if TYPE_CHECKING:
    from protocols.rows.plan import RowsPlan

Floats = NDArray[np.float64]
TAIL = 9.0
TAIL_FAILURE = 2.0**-61
"""P(|Z| > TAIL) is below it."""
ERROR_SHARE = 2.0**-12
"""The mean gradient may be off by this part of C / N: what a plan with privacy is held to."""
COEFFICIENT_BOUND_FROM = 4.0
"""In radii of the link: beyond, a polynomial's bound by its coefficients is as good."""
PROOFS: Mapping[str, str] = {
    "barrier": "protocols.rows.barrier_slots:norms",
}
"""By rule one more proof, (course, rule) -> norms, where the link is symmetric."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """What bounds the iterates; all fields public.

    rule: in units of w; link: p; norm_bound: C; rows: N; features: d; sigma: without any t
    colluders; budget: P, t and the probability `delta_norm` that norms may fail with; spectrum:
    Lambda of whitened rows, None: C^2; unproven: the probability that it may fail with; signed:
    whether all labels are 1; offset: o; outputs: c, each of them on this course; is_stochastic:
    whether rounds take other rows, with weights that sum to N; logistic: whether gradients are
    those of p - y, a subclass gives others.
    """

    rule: Update
    link: Polynomial
    norm_bound: float
    rows: int
    features: int
    sigma: float
    budget: Budget
    spectrum: float | None = None
    unproven: float = 0.0
    signed: bool = False
    offset: float = 0.0
    outputs: int = 1
    is_stochastic: bool = False
    logistic: ClassVar[bool] = True

    @property
    def noise(self) -> float:
        """tau, of all parties, rounded up to the grid."""
        return self.budget.total_std(self.sigma)

    @property
    def failure(self) -> float:
        """Of all norms of noise together."""
        return self.budget.delta_norm if self.sigma else 0.0

    @property
    def error(self) -> float:
        """Of the computed mean gradient, l2."""
        return ERROR_SHARE * self.norm_bound / self.rows

    @property
    def gain(self) -> float:
        """L."""
        return self.curvature.inverse.largest if self.curvature else 1.0

    @property
    def curvature(self) -> Curvature | None:
        """Of the preconditioner."""
        return self.rule.curvature

    def slope(self, length: float) -> float:
        """sqrt(Lambda) h(C |v|) + error, a bound on the computed gradient at |v| <= length."""
        longest = self.norm_bound if self.spectrum is None else math.sqrt(self.spectrum)
        return longest * residual(self.link, self.largest_score(length)) + self.error

    def largest_score(self, length: float) -> float:
        """At |v| <= length."""
        return self.norm_bound * length + self.offset

    @property
    def label(self) -> float:
        """Bound on a row's slope at v = 0: in the first round all of the gradient is known."""
        start = self.link.coefficients[0]
        return residual(self.link, self.offset) if self.offset else max(start, 1 - start)

    def moved(self, length: float) -> float:
        """Bound on what of a row's slope is evaluated at |v| <= length."""
        start = self.link.coefficients[0]
        return residual(self.link, self.largest_score(length)) - min(start, 1 - start)

    def push(self, shrink: float, radius: float) -> float:
        """M(R) of `certificates.descent_bound`."""
        return push_bound(
            self.link,
            shrink=shrink,
            learning_rate=self.rule.largest_learning_rate,
            norm_bound=self.norm_bound,
            radius=radius,
            spectrum=self.spectrum,
        )

    def spread(self, length: float) -> float:
        """Bound on a norm of noise of std `length` tau, all of them but with `failure`."""
        if not self.noise:
            return 0.0
        x = math.log(3 * self.rule.rounds / self.failure)
        return self.noise * length * (math.sqrt(self.features) + math.sqrt(2 * x))


@dataclass(frozen=True, kw_only=True, slots=True)
class Norms:
    """points: |v_t|, t < T; vectors: of each refreshed one, t by t, (|f|, |rest|); last: |w_T|."""

    proof: str
    points: tuple[float, ...]
    vectors: tuple[tuple[tuple[float, float], ...], ...]
    last: float
    failure: float


@lru_cache(maxsize=4096)
def residual(p: Polynomial, z: float) -> float:
    """h(z), certain; inf where z is."""
    if z > COEFFICIENT_BOUND_FROM * p.radius:
        t = z / p.radius
        if not t < 1e15:
            return math.inf
        largest = math.fsum(abs(c) * t**k for k, c in enumerate(p.coefficients))
        return largest if is_symmetric(p) else 1 + largest
    low, high = range_bound(p, -z, z)
    return max(abs(low), abs(high)) if is_symmetric(p) else max(1 - low, high)


# -- proofs -----------------------------------------------------------------------------


@lru_cache(maxsize=64)
def walk(course: Course, within: float = math.inf) -> Norms:
    """Of a linear rule; within: no v, rest or w_T is longer, by another proof."""
    rule, rounds = course.rule, course.rule.rounds
    slopes: Floats = np.zeros(rounds)
    points: list[float] = []
    vectors = []

    def length(factors: Floats) -> float:
        k = np.abs(factors)
        # An unused factor of an infinite slope is nothing.
        steps = math.fsum(a * b for a, b in zip(k, slopes, strict=True) if a)
        walked = course.gain * (steps + course.spread(math.sqrt(float(k @ k))))
        return min(within, walked)

    state: tuple[Floats, ...] = rule.start(np.zeros(rounds))
    for t in range(rounds):
        points.append(length(rule.point(state)))
        slopes[t] = course.slope(points[-1])
        is_now = np.arange(rounds) == t
        factor = rule.gradient_factor(t)
        state = rule.step(factor * is_now, state, t)
        rests = (length(np.where(is_now, 0.0, vector)) for vector in state[: rule.sums(t)])
        vectors.append(tuple((factor, rest) for rest in rests))
    return Norms(
        proof="the sum of all steps",
        points=tuple(points),
        vectors=tuple(vectors),
        last=length(rule.weights(state)),
        failure=course.failure,
    )


def ball(course: Course, rule: GradientDescent) -> Norms | None:
    """Of gradient descent; None where no ball holds."""
    p, c, eta = course.link, course.norm_bound, rule.learning_rate
    most = DescentBound(
        learning_rate=eta,
        alpha=eta * rule.ridge,
        rounds=rule.rounds,
        features=course.features,
        norm_bound=c,
        noise=course.noise,
        failure=course.failure or 1.0,
        error=course.error,
    )
    falls = QuietDescent(learning_rate=eta, lam=rule.ridge, rounds=rule.rounds, error=course.error)

    def by_steps(radius: float) -> float:
        return most.squared_bound(radius, course.push(1 - most.alpha, radius))

    def by_falls(radius: float) -> float:
        return logistic_ball(falls, p, c, radius)

    start, edge, name = eta * c / 2, p.radius / c, "the ball of gradient descent"
    proofs = {f"{name}, by steps": by_steps}
    if course.logistic and not course.is_stochastic:
        proofs[f"{name}, by falls"] = by_falls
    if course.noise:
        proofs = {f"{name} with noise": by_steps}
    found = {
        name: min(least_radius(bound, start, edge), least_radius(bound, start, 2 * edge))
        for name, bound in proofs.items()
    }
    name = min(found, key=lambda each: found[each])
    if math.isinf(found[name]):
        return None
    # Of the ball, and of the walk where it is shorter.
    return replace(walk(course, found[name]), proof=name, failure=2 * course.failure)


def spectrum(course: Course, rule: Momentum) -> Norms | None:
    """Of least squares; None where steps may be too long."""
    c, rounds = course.norm_bound, rule.rounds
    c = c if course.spectrum is None else math.sqrt(course.spectrum)
    if course.noise or rule.largest_learning_rate * (c**2 + rule.ridge) > 1 + 1e-9:
        return None
    count = 16 * 4 * rounds
    roots: Floats = np.cos(np.pi * (np.arange(count // 2) + 0.5) / count) * c  # sqrt(h); odd
    # What a gradient is off by responds to a flat loss at most.
    off = course.error * rule.largest_learning_rate * math.fsum(rule.responses(0.0))

    def length(values: Floats) -> float:
        return float(np.abs(values).max()) / math.cos(math.pi / 32) + off

    state: tuple[Floats, ...] = rule.start(np.zeros_like(roots))
    points, vectors = [], []
    for t in range(rounds):
        point = rule.point(state)
        points.append(length(point))
        factor = rule.gradient_factor(t)
        rests = rule.step(np.zeros_like(roots), state, t)[: rule.sums(t)]
        vectors.append(tuple((factor, length(rest)) for rest in rests))
        state = rule.step(factor * (roots**2 * point - roots), state, t)
    return Norms(
        proof="the spectrum of least squares",
        points=tuple(points),
        vectors=tuple(vectors),
        last=length(rule.weights(state)),
        failure=0.0,
    )


@lru_cache(maxsize=64)
def norms(course: Course) -> tuple[Norms, ...]:
    """By every proof that there is."""
    rule, symmetric = course.rule, is_symmetric(course.link)
    if course.offset:
        return (walk(course),) if isinstance(rule, Momentum) else ()
    proofs = [
        resolve_name(PROOFS[rule.kind])(course, rule)
        if rule.kind in PROOFS and symmetric
        else None,
        ball(course, rule)
        if isinstance(rule, GradientDescent) and (symmetric or course.signed)
        else None,
        spectrum(course, rule)
        if isinstance(rule, Momentum)
        and course.link.coefficients == (0.0, course.link.radius)
        and not course.is_stochastic
        else None,
        walk(course) if isinstance(rule, Momentum) else None,
    ]
    return tuple(found for found in proofs if found is not None)


# -- slots ----------------------------------------------------------------------------------------


def bounds(plan: RowsPlan, norm_bound: float) -> SlotBounds:
    """Of a plan, for rows of norm at most `norm_bound`."""
    return bounds_of(plan, _course(plan, plan.encoded_norm(norm_bound)))


def bounds_of(plan: RowsPlan, course: Course) -> SlotBounds:
    """The same of a course."""
    steps = len(plan.refreshes)
    try:
        proofs = [_slots(plan, course, found) for found in norms(course)]
    except OUT_OF_RANGE as error:
        return SlotBounds.unproven(steps, f"out of range: {error}")
    proven = [found for found in proofs if found.largest is not None]
    if proven:
        return min(proven, key=lambda found: found.largest or math.inf)
    reason = f"update {plan.update['kind']}: no proof holds for its rates and iterations"
    return SlotBounds.unproven(steps, reason)


def _course(plan: RowsPlan, norm_bound: float) -> Course:
    privacy, whitening = plan.privacy, plan.whitening
    if whitening is not None and not all(c.satisfied for c in whitening.check(plan.moment_split)):
        whitening = None  # Lambda is a word: rows of norm 1 have at most 1
    return Course(
        rule=plan.rule,
        link=plan.link,
        norm_bound=norm_bound,
        rows=plan.num_rows,
        features=plan.num_features,
        sigma=privacy.sigma if privacy else 0.0,
        budget=Budget.of(privacy, plan.split),
        spectrum=None if whitening is None else min(whitening.spectrum, 1.0),
        unproven=0.0 if whitening is None else whitening.failure,
        signed=plan.signed,
        offset=plan.row_terms.get("offset", 0.0),
        is_stochastic=plan.is_stochastic,
    )


def _slots(plan: RowsPlan, course: Course, found: Norms) -> SlotBounds:
    layout, c, rows = plan.layout, course.norm_bound, course.rows
    groups, curvature, outputs = plan.column_weight, course.curvature, course.outputs
    unit, gain = (1 / curvature.high, curvature.high * course.gain) if curvature else (1.0, 1.0)
    scale = abs(plan.units.side_scale)
    side = rows * (c * course.label + TAIL * course.noise)
    refreshes = list(inverse_bounds(curvature, len(plan.refreshes) - plan.rounds))
    for point, vectors in zip(found.points, found.vectors, strict=True):
        terms = gain / scale * (groups * c * course.moved(point) + side)
        rests = (rest * rows / (f * scale * layout.block_size * unit) for f, rest in vectors)
        refreshes.append(terms + max(rests, default=0.0))
    tail = plan.rounds * course.features * TAIL_FAILURE if course.noise else 0.0
    failure = outputs * (found.failure + tail) + course.unproven
    return SlotBounds.proven(refreshes, found.last / plan.unit, found.proof, failure)


def inverse_bounds(curvature: Curvature | None, steps: int) -> tuple[float, ...]:
    """Of every refresh of the inversion: u <= 1, y = u high / b, at last 1 / (b factor).

    Owners see to b <= high (`Curvature.share`), offset to b >= offset.
    """
    if curvature is None:
        return ()
    inverse = curvature.inverse
    return (max(inverse.high / inverse.low, inverse.largest / inverse.factor),) * steps
