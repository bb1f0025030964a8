"""The secure-aggregation protocol: one small ciphertext per party and round, only the sum opens.

    mask-keys, opening-key   the joint opening key                     `aggregate.setup`
    round/t   -> the point of the query, in the clear   <- encrypted contribution + noise share

Every opened sum is differentially private, so points and aggregates are public; what a party
contributes is in `objectives`. Error of an aggregate: `AggregateParameters.error_bound`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from parties.kernel.integers.exact import Exact, Integers
from parties.kernel.sums.gradients import CURVATURE
from protocols.aggregate import AggregateParameters
from protocols.aggregate.coordinator_cipher import CoordinatorCipher
from protocols.aggregate.setup import SumsHalf
from protocols.aggregate.wire import pack, sum_messages
from protocols.errors import MessageError, ParameterError
from protocols.exchange.documents import Checked, read
from protocols.exchange.messages import Body, Exchange, to_everyone
from protocols.models.registry import MODELS, model_named
from protocols.names import SECURE_AGGREGATION, check_colluders_of_sums
from protocols.plan.protocol import Request
from protocols.plan.run_plan import Checks, RunPlan
from protocols.privacy.certificates.sums import SumSetting
from protocols.privacy.laws import RandomSource, apart
from protocols.privacy.laws.grid import NoiseGrid
from protocols.privacy.laws.noise import NOISE_TAIL, Noise
from protocols.privacy.loss.catalogue import noise_of
from protocols.sums.objective import Objective
from protocols.sums.objectives import (
    MomentObjective,
    RowObjective,
    objective_from_dict,
)
from protocols.sums.one_sum import EVERYBODY, OneSum
from protocols.updates.momentum import GradientDescent
from protocols.updates.registry import rounds_of, rule_from_dict
from protocols.updates.update import Update

Vector = NDArray[np.float64]
ROUNDING_OF_SUM = 1e-3
"""Of epsilon, that a second moment leaves of what it announces where nothing follows with noise."""


Name = Annotated[str, msgspec.Meta(pattern=r"\A[a-z_]{1,40}\Z")]
Word = Annotated[str, msgspec.Meta(max_length=500)]
"""Names of columns, of categories, and of several."""


class Asked(Checked, frozen=True):
    """What a study was asked for; columns: those that it takes, empty: all; see `Wanted`."""

    study: Name
    options: dict[Name, bool | int | float | Word | list[Word] | None]
    columns: list[Annotated[Word, msgspec.Meta(min_length=1)]]
    epsilon: float | None
    delta: float
    colluders: int


def asked_words(asked: Mapping[str, Any]) -> str:
    """What was given, by name, in letters that a terminal shows as they are."""
    promise = ("epsilon", "delta", "colluders") if asked["epsilon"] is not None else ()
    told = {"study": asked["study"], **asked["options"]}
    return _told(told | {name: asked[name] for name in ("columns", *promise)})


def _told(options: Mapping[str, Any]) -> str:
    given = ((k, v) for k, v in options.items() if v is not None and v is not False)
    return "; ".join(
        f"{name} {json.dumps(value)}" for name, value in given if value not in ("", [], ())
    )


def _check_asked(plan: GradientPlan) -> None:
    """It is of the sum, and of its promise or of a larger one that all of its series have."""
    asked = read(plan.asked, Asked, "asked")
    own, studies = plan.privacy, getattr(plan.task, "begins", {})
    if plan.of_series:
        raise ParameterError("asked and of_series: the first sum of a series states what for")
    if asked.study not in studies:
        raise ParameterError(
            f"asked: {plan.statistic or 'a training'} begins {' or '.join(studies) or 'no study'}, "
            f"not {asked.study}"
        )
    if strange := sorted({*asked.options} - {*studies[asked.study]}):
        raise ParameterError(f"asked: {asked.study} has no option {strange[0]}")
    if (own is None) != (asked.epsilon is None):
        raise ParameterError("asked: its epsilon and the privacy of the sum go together")
    promise = (asked.delta, asked.colluders) if own else None
    if own and not (
        asked.epsilon * (1 + ROUNDING_OF_SUM) >= own.epsilon
        and promise == (own.delta, own.colluders)
    ):
        raise ParameterError(
            f"asked: epsilon={asked.epsilon:g}, delta={asked.delta:g}, "
            f"colluders={asked.colluders} is not the promise of the sum"
        )


def check_sums(plan: GradientPlan) -> None:
    """Cipher, weights, noise, what is summed."""
    if plan.cipher.parties != len(plan.members):
        raise ParameterError(
            f"cipher.parties={plan.cipher.parties} is not the number of members, "
            f"{len(plan.members)}"
        )
    for name in ("of_training", "of_series"):
        if (stated := getattr(plan, name)) and not re.fullmatch("[0-9a-f]{64}", stated):
            raise ParameterError(f"{name}={stated[:80]!r} is no digest of a plan")
    if plan.asked:
        _check_asked(plan)
    if plan.length < 1:
        raise ParameterError(f"length={plan.length} is below 1")
    _ = plan.noise, plan.rule
    # One owner's weight beside tiny ones opens this owner's own sum.
    equal = (1 / len(plan.members),) * len(plan.members)
    if plan.weights and plan.weights != equal:
        raise ParameterError(
            f"weights from {min(plan.weights):g} to {max(plan.weights):g}, "
            f"{len(plan.weights)} of them: parties weigh by their rows (none are stated) or "
            f"all the same, {equal[0]:g} each of {len(equal)}"
        )
    if plan.privacy:
        check_colluders_of_sums(plan.privacy.colluders, len(plan.members))
    if bool(plan.noise_scales) != (plan.privacy is not None):
        raise ParameterError("noise_scales and privacy go together: give both or none")
    if plan.noise_scales and len(plan.noise_scales) != len(plan.queries):
        raise ParameterError(
            f"noise_scales has {len(plan.noise_scales)} entries for {len(plan.queries)} queries"
        )
    if not all(0 < scale < math.inf for scale in plan.noise_scales):
        raise ParameterError("noise_scales: every entry must be finite and positive")
    task = plan.task
    if isinstance(task, OneSum):
        _check_sum(plan, task)
    elif plan.outputs > 1 and plan.length != plan.num_features * plan.outputs:
        raise ParameterError(
            f"length={plan.length} is not {plan.num_features} features by {plan.outputs} classes"
        )
    if plan.privacy:
        _ = plan.sum_setting()  # refuses what no certificate can be about
    _check_range(plan)


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientPlan(RunPlan):
    """Training by encrypted sums.

    cipher: parameters of the aggregation; objective: fields of the objective; update: fields of
    the update rule; length: of the vectors; weights: of the parties, 1 / P each, empty for
    n_p / N; mechanism: one of `catalogue.NOISES`; noise_scales: of every query, the std on the
    aggregate that the honest parties alone guarantee, empty without privacy; of_training: digest of
    the plan of the training that released the model which this is a sum at, empty: of none, or of
    one elsewhere; of_series: digest of the plan of the first of several sums over the same rows,
    empty: it is the first; asked: what a study that it begins was asked for, by option; of it
    follows which sums come, and what is written of them.

    Raises:
        ParameterError: fields that do not go together.
    """

    kind: ClassVar[str] = "gradients"
    protocol: ClassVar[str] = SECURE_AGGREGATION
    gathered: ClassVar[str] = "sums"
    checks: ClassVar[Checks] = (*RunPlan.checks, check_sums)
    later: ClassVar[tuple[str, ...]] = (*RunPlan.later, "of_series", "asked")

    cipher: AggregateParameters
    objective: Mapping[str, Any]
    update: Mapping[str, Any]
    length: int
    weights: tuple[float, ...] = ()
    mechanism: str = "gaussian"
    noise_scales: tuple[float, ...] = ()
    of_training: str = ""
    of_series: str = ""
    asked: Mapping[str, Any] = field(default_factory=dict)

    def drops(self, term: str) -> str:
        """Row by row the objective is weighted and shifted; the others say what they drop."""
        return self.task.drops.get(term, "")

    @property
    def epsilon_in_all(self) -> float | None:
        """A second moment announces the training that follows, the first of a series its sums."""
        if self.privacy is None:
            return None
        task, own = self.task, self.privacy.epsilon
        whole = self.asked["epsilon"] if self.asked else 0.0
        whole = 0.0 if whole <= own * (1 + ROUNDING_OF_SUM) else whole
        return max(getattr(task, "epsilon_in_all", own) or 0.0, whole)

    @property
    def judges(self) -> bool:
        """Whether its sum does."""
        return isinstance(self.task, OneSum) and self.task.judges

    @property
    def statistic(self) -> str:
        """And of which model."""
        if not isinstance(self.task, OneSum):
            return ""
        model = getattr(self.task, "model", "")
        return self.task.statistic + f" ({model})" * bool(model)

    @property
    def purpose(self) -> str:
        """Its statistic, or its model, after the study that it begins and its options."""
        own = super(GradientPlan, self).purpose
        if not self.asked:
            return own
        told = _told({**self.asked["options"], "columns": self.asked["columns"]})
        return f"{self.asked['study']} ({told}): {own}"

    @property
    def sums_moment(self) -> bool:
        """By its objective."""
        return isinstance(self.task, MomentObjective)

    @property
    def exact_follows(self) -> bool:
        """Of a second moment that has the whole promise: nothing is left for what it whitens."""
        task, own = self.task, self.privacy.epsilon if self.privacy else math.inf
        whole = isinstance(task, MomentObjective) and task.epsilon_in_all
        return bool(whole) and own * (1 + ROUNDING_OF_SUM) >= whole

    @property
    def unproven_follows(self) -> bool:
        """As a second moment says it."""
        return isinstance(self.task, MomentObjective) and self.task.unproven

    @property
    def alone(self) -> tuple[str, ...]:
        """Of whose rows alone something opens, or can follow.

        Of sums without noise of parties whose rows do not all weigh the same: everybody, see
        `SumsSession`. Where all parties but one have a table, the difference is the last one's.
        """
        weights = {self.row_weight(party) for party in range(len(self.members))}
        options = self.asked.get("options", {})
        later = any(options.get(name) for name in ("site_intercepts", "cluster"))
        if later or (self.privacy is None and len(weights) > 1):
            return self.names
        named = self.task.alone if isinstance(self.task, OneSum) else ()
        if named == EVERYBODY:
            return self.names
        rest = [member.name for member in self.members if member.name not in named]
        return (*named, *rest) if named and len(rest) == 1 else named

    @property
    def view(self) -> str:
        """Of a sum."""
        return self.task.view if isinstance(self.task, OneSum) else ""

    @property
    def security_bits(self) -> int:
        """Of the aggregation's rings, all within the 128-bit bound."""
        return 128

    @property
    def rule(self) -> Update:
        """The update rule."""
        return rule_from_dict(self.update)

    @property
    def rounds(self) -> int:
        """Iterations T."""
        return rounds_of(self.update)

    @cached_property
    def task(self) -> Objective:
        """The objective."""
        return objective_from_dict(self.objective)

    @property
    def outputs(self) -> int:
        """K, scores of a row."""
        task = self.task
        return task.outputs if isinstance(task, RowObjective) else 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the released weights: of a numeric target one column."""
        if self.outputs > 1:
            return self.num_features, self.outputs
        numeric = self.model in MODELS and model_named(self.model).numeric
        return (self.length, 1) if numeric else (self.length,)

    @property
    def queries(self) -> tuple[str, ...]:
        """Query of every round."""
        return self.task.queries(self.rounds)

    def row_weight(self, party: int) -> float:
        """weight_p / n_p: what one row of a party counts in the aggregate; 1 in a plain sum."""
        if self.task.has_places:
            return 1.0
        if not self.weights:
            return 1 / self.num_rows
        return self.weights[party] / self.members[party].rows

    def sensitivity(self, query: str) -> float:
        """Replace-one sensitivity of the aggregate, in the mechanism's norm."""
        largest = max(self.row_weight(p) for p in range(len(self.members)))
        return self.task.diameter(query) * largest

    def check_rows(self, norm_bound: float) -> None:
        """See the objective's."""
        self.task.check_rows(norm_bound)

    def sum_setting(self) -> SumSetting:
        """What the certificate is about.

        Raises:
            ParameterError: the plan promises no privacy.
        """
        privacy = self.privacy
        if privacy is None:
            raise ParameterError("the plan has no privacy noise: there is nothing to account for")
        task = self.task
        sensitivity = {query: self.sensitivity(query) for query in set(self.queries)}
        return SumSetting(
            rate=task.rate,
            batches=task.public_batches,
            mechanism=self.mechanism,
            sensitivities=tuple(sensitivity[query] for query in self.queries),
            scales=self.noise_scales,
            length=self.length,
            split=self.split,
            epsilon=privacy.epsilon,
            delta=privacy.delta,
        )

    # -- noise --------------------------------------------------------------------------------

    @property
    def noise(self) -> Noise:
        """The mechanism; its norm is the one that parties clip in."""
        return noise_of(self.mechanism)

    def grid(self, t: int) -> NoiseGrid:
        """Grid of round t's noise and contributions."""
        return self.noise.grid(self.noise_scales[t], self.split)

    @property
    def stream(self) -> str:
        """Of randomness that this run draws from; empty: the one of trainings."""
        return self.task.stream if isinstance(self.task, OneSum) else ""

    def randomness(self, source: RandomSource) -> RandomSource:
        """What this run draws from; a party's training that follows draws from `source`."""
        return apart(source, self.stream) if self.stream else source

    def draw_noise(self, t: int, randomness: RandomSource) -> Vector:
        """One party's share of the noise of round t, shape (length,); zeros without privacy.

        The twin of a simulation draws the same from the same source.
        """
        if not self.noise_scales:
            return np.zeros(self.length)
        scale = self.noise_scales[t]
        draw = self.noise.shares
        shares: Vector = draw(scale, self.split, 1, self.length, randomness, self.grid(t))[0]
        return shares

    def on_grid(self, t: int, exact: Exact) -> Integers:
        """A contribution rounded to the grid of round t's noise, in its units.

        Replacing a row moves it by at most `SumSetting.widened`.
        """
        return exact.on(self.grid(t).granularity_bits)

    def noisy(self, t: int, exact: Exact, noise: Vector) -> Exact:
        """A contribution and a share of round t's noise, added in integers; without privacy it."""
        if not self.noise_scales:
            return exact
        bits = self.grid(t).granularity_bits
        return Exact(self.on_grid(t, exact) + np.ldexp(noise, bits).astype(np.int64), bits)


OPENS = GradientDescent(rounds=1, learning_rate=1.0).to_dict()
"""Update of a plan that opens one sum."""


def _check_sum(plan: GradientPlan, task: OneSum) -> None:
    """It opens as it is, its distances are Euclidean, and what it announces includes it."""
    size = task.length(plan.num_features)
    own = plan.privacy.epsilon if plan.privacy else 0.0
    in_all = getattr(task, "epsilon_in_all", own) or 0.0
    exact = getattr(task, "exact", plan.privacy is None)
    if "epsilon_in_all" in task.to_dict():
        exact = not in_all
    for name, value, wrong, cure in (
        (
            "weights",
            plan.weights,
            bool(plan.weights),
            "a sum weighs rows alike: leave them out",
        ),
        ("length", plan.length, plan.length != size, f"a {task.kind} has {size} values"),
        (
            "update",
            plan.update,
            plan.update != OPENS,
            "a sum opens as it is: by one step of gradient descent at rate 1",
        ),
        (
            "epsilon_in_all",
            in_all,
            not in_all >= own,
            f"of this run and the next it is at least {own:g}, that of this run",
        ),
        (
            "exact",
            exact,
            exact != (plan.privacy is None),
            "a sum says that it is exact where it has no epsilon, and there alone",
        ),
    ):
        if wrong:
            raise ParameterError(f"{name}={value}: {cure}")


def _check_range(plan: GradientPlan) -> None:
    """Every owner's contribution and its noise have room, whatever its rows."""
    parts = [plan.row_weight(p) * member.rows for p, member in enumerate(plan.members)]
    largest = max(parts) * max(plan.task.norm_bound(query) for query in set(plan.queries))
    needed = largest + NOISE_TAIL * max(plan.noise_scales, default=0.0)
    if not plan.cipher.max_value >= needed:
        raise ParameterError(
            f"cipher: the range of an owner's values, {plan.cipher.max_value:.6g}, is below "
            f"{needed:.6g}, its largest contribution and {NOISE_TAIL:g} noise scales: take larger "
            "primes, or a smaller scale_bits"
        )


# -- party half -----------------------------------------------------------------------------------


def contribute(half: SumsHalf, request: Request) -> Body:
    """Reply to `round/t`: what rows add, noise included, encrypted."""
    point = read_point(half.plan, request.body, half.plan.length)
    sent = half.session.round(request.index, point)
    return Body(half.remark(), (pack(half.plan.cipher, sent),))


def read_point(plan: RunPlan, request: Body, length: int) -> Vector:
    """The point of a round's request, shape (length,).

    Raises:
        MessageError: another size, or a value that is not finite.
    """
    if len(request.blobs) != 1 or len(request.blobs[0]) != 8 * length:
        raise MessageError(f"a round carries one point of {length} values")
    point = np.frombuffer(request.blobs[0], "<f8").astype(np.float64)
    if not np.isfinite(point).all():
        raise MessageError("the point of a round is not finite: the training has diverged")
    return point


# -- coordinator half -----------------------------------------------------------------------------


def aggregate(
    plan: GradientPlan, cipher: CoordinatorCipher, t: int, point: Vector
) -> Exchange[Vector]:
    """The noisy aggregate of query t at a point, shape (length,)."""
    request = Body(blobs=(np.asarray(point, "<f8").tobytes(),))
    replies = yield to_everyone(f"round/{t}", plan.names, request)
    return cipher.open(t, sum_messages(plan.cipher, replies, plan.names, plan.length))


def train(
    plan: GradientPlan,
    cipher: CoordinatorCipher,
    start: Vector,
    on_iteration: Callable[[int, Vector], None] = lambda t, w: None,
) -> Exchange[Vector]:
    """All rounds; the weights after the last, of the plan's shape; start: shape (length,)."""

    def ask(t: int, point: Vector) -> Exchange[Vector]:
        return aggregate(plan, cipher, t, point)

    return (yield from run_rule(plan, ask, start, on_iteration))


def run_rule(
    plan: GradientPlan,
    ask: Callable[[int, Vector], Exchange[Vector]],
    start: Vector,
    on_iteration: Callable[[int, Vector], None] = lambda t, w: None,
) -> Exchange[Vector]:
    """The update rule over any source of aggregates; the twin runs it without encryption.

    Weights, of the iterations and returned, have the plan's shape.
    """
    rule, shape, first = plan.rule, plan.shape, 0
    preconditioner: Vector = np.ones(plan.length)
    if plan.queries[0] == CURVATURE:
        bound = yield from ask(0, start)
        if rule.curvature is None:
            raise AssertionError("a curvature was asked for a rule that has none")
        inverse = 1 / (rule.curvature.offset + np.maximum(bound, 0.0))
        # One bound of a feature for all classes: the others' places are empty.
        preconditioner, first = np.repeat(inverse[:: plan.outputs], plan.outputs), 1
    state = rule.start(start)
    for t in range(plan.rounds):
        gradient = preconditioner * (yield from ask(first + t, rule.point(state)))
        state = rule.step(rule.gradient_factor(t) * gradient, state, t)
        on_iteration(t, rule.weights(state, t).reshape(shape))
    return rule.weights(state).reshape(shape)
