"""The twin of a plan: the same run in plaintext, on all rows, with the same noise."""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ciphercohort.results.result import (
    FAR,
    UNCONVERGED,
    Course,
    Figures,
    shifted,
    targets_of,
    with_offset,
)
from parties.kernel.integers.symmetric import square
from parties.verifier.objectives import open_contributor
from protocols.errors import ParameterError
from protocols.models.registry import model_named
from protocols.plan import kinds
from protocols.plan.run_plan import RunPlan
from protocols.privacy.calibrate.whitened import Moment
from protocols.rows.plan import RowsPlan
from protocols.sums.objectives import RowObjective
from protocols.sums.plain import run_in_plain
from protocols.sums.plan import GradientPlan
from protocols.words import count
from sims.distance import MOST_ERRORS, farthest
from sims.party_process import PartySpec
from sims.prepare import PreparedData
from sims.twin import OPTIMA, run_twin

Floats = NDArray[np.float64]
MOST_UNLEARNT = 0.02
"""Of R^2 on the training rows, before a reader is told."""
MOST_LOSS = 0.005
"""Of the mean loss on the training rows [nats], likewise."""
LONGER = 10
"""Times the iterations that LFFR and sums, without a closed form, are compared with."""
MOST_MOVED = 0.05
"""Root mean square of a change of scores over that of scores, before a reader is told."""
DOUBLINGS = 5
"""Of the iterations, in search of how many are enough."""
MOST_WORK, OVERHEAD = 5e7, 2e4
"""Of that search for one number: iterations times entries of the rows, and as much for each."""
KNOWN_ERRORS = ("logistic", "linear", "poisson")
Specs = Mapping[str, PartySpec]


@contextmanager
def _tried() -> Iterator[None]:
    """For runs that are only compared with: one that diverges is no good, and no alarm."""
    with np.errstate(over="ignore", invalid="ignore"):
        yield


@dataclass(frozen=True, kw_only=True)
class Twin:
    """The same run in plaintext.

    weights: shape (d,), or (d, c) for c outputs; iterations: its course, in the metrics of the
    model's result; warnings: sentences for the reader.
    """

    weights: Floats
    iterations: tuple[Figures, ...]
    warnings: tuple[str, ...] = ()


def twin_of(plan: RunPlan, data: PreparedData, specs: Specs) -> Twin:
    """The plan in float64, with the parties' own noise."""
    found: Twin = pkgutil.resolve_name(_TWINS[plan.kind])(plan, data, specs)
    return replace(found, warnings=(*_far(plan, data, found.weights), *found.warnings))


def _far(plan: RunPlan, data: PreparedData, weights: Floats) -> tuple[str, ...]:
    """Without noise, of models whose standard errors are known: how far coefficients are off.

    A mean loss is near its least long before they are.
    """
    known = plan.model in KNOWN_ERRORS and plan.privacy is None
    if not known or data.offsets.any() or len(weights) != data.rows.shape[1]:
        return ()
    best = OPTIMA[plan.model](data.rows, data.labels, data.row_weights).reshape(weights.shape)
    counts = data.schema.label if plan.model == "poisson" else None
    high = float((targets_of(counts).low + targets_of(counts).width)[0]) if counts else 1.0
    found = farthest(plan.model, data.rows, data.labels, weights, best, data.row_weights, high)
    if found is None or found.errors <= MOST_ERRORS:
        return ()
    return (
        f"{FAR}: after {count(plan.rounds, 'iteration')} of {kinds.figures(plan)['update']} "
        f"{found.words(data.schema.feature_names, weights, best)}; take --inference, which ends at "
        "the maximum, more --iterations, or leave --update and --ridge out",
    )


def moment_in_plain(plan: GradientPlan, specs: Specs) -> Moment:
    """What a run that sums a second moment opens, in float64, with the parties' own noise."""
    sources = {name: plan.randomness(spec.noise_source()) for name, spec in specs.items()}
    owners = {
        name: open_contributor(plan, name, spec.shard, sources[name])
        for name, spec in specs.items()
    }
    summed = run_in_plain(plan, owners, sources, np.zeros(plan.length), lambda t, w: None)
    return Moment.of(square(summed), plan)


def course_of(plan: RunPlan, data: PreparedData) -> Course:
    """On training and test rows."""
    train = shifted(data.rows, data.offsets), data.labels
    test = shifted(data.test.x, data.test.offset), data.test.y
    return Course(model_named(plan.model), train, test)


def summed_noise(plan: Any, specs: Specs) -> Floats:
    """Of all parties, as they draw it."""
    total: Floats = np.sum([plan.draw_noise(s.noise_source()) for s in specs.values()], axis=0)
    return total


def warned(what: str, largest: float, radius: float, cure: str) -> tuple[str, ...]:
    """Of scores beyond the range in which the polynomial stands in."""
    if largest <= radius:
        return ()
    return (
        f"the largest {what} of the twin, {largest:.3g}, left the polynomial's interval "
        f"[-{radius:g}, {radius:g}]: {cure}",
    )


def _rows(plan: RowsPlan, data: PreparedData, specs: Specs) -> Twin:
    test, noise = data.test, summed_noise(plan, specs)
    weights, iterations = run_twin(
        plan,
        data.rows,
        data.labels,
        noise,
        shifted(test.x, test.offset),
        test.y,
        weight=data.row_weights,
        offset=data.offsets,
        sources=[specs[name].noise_source() for name in plan.names],
    )
    cure = "take fewer iterations or a smaller learning rate"
    cure = cure if plan.outputs else f"widen it (--interval), {cure}"
    warnings: tuple[str, ...] = ()
    if plan.link.degree > 1:  # else the polynomial is the score, wherever
        what, largest = "score" if plan.outputs else "logit", iterations[-1].largest_logit
        warnings = warned(what, largest, plan.link.radius, cure)
    warnings = _stopped_short(plan, data, specs, noise, weights) + warnings
    return Twin(weights=weights, iterations=iterations, warnings=warnings)


def _stopped_short(
    plan: RowsPlan, data: PreparedData, specs: Specs, noise: Floats, weights: Floats
) -> tuple[str, ...]:
    """Without noise, which is no reason then to stop early."""
    if plan.privacy is not None:
        return ()
    model, kind = plan.fitted, plan.update["kind"]
    best = _best(plan, data)
    x = shifted(data.rows, data.offsets)
    reached, least, start = (
        float(np.average(losses.reshape(len(x), -1).mean(axis=1), weights=data.row_weights))
        for losses in (
            model.loss(x @ with_offset(w, x), data.labels) for w in (weights, best, 0 * best)
        )
    )
    # Losses of numeric targets are in parts of their range, which may be wide.
    most = MOST_UNLEARNT * (start - least) if model.numeric else MOST_LOSS
    if not reached > least + most:
        return ()

    def fine(rounds: int) -> bool:
        longer = replace(plan, update={**plan.update, "rounds": rounds})
        nothing = np.zeros((rounds, *noise.shape[1:]))
        w, course = run_twin(
            longer,
            data.rows,
            data.labels,
            nothing,
            *(x[:1], data.labels[:1]),
            weight=data.row_weights,
            offset=data.offsets,
            sources=[spec.noise_source() for spec in specs.values()],
        )
        losses = model.loss(x @ with_offset(w, x), data.labels).reshape(len(x), -1).mean(axis=1)
        within = plan.link.degree == 1 or course[-1].largest_logit <= plan.link.radius
        return within and float(np.average(losses, weights=data.row_weights)) <= least + most

    fastest = "nag" if plan.outputs or plan.gathered == "gradients" else "quadratic-nag"
    other = "another --update" if model.numeric else "a wider --interval"
    other = other if kind == fastest else f"--update {fastest}"
    return (
        f"{UNCONVERGED}: {plan.rounds} iterations of {kind} leave a mean loss of "
        f"{reached:.4f} on the training rows, and {least:.4f} is possible; "
        f"{more_rounds(plan, data, fine, other=other)}",
    )


@_tried()
def more_rounds(
    plan: RunPlan,
    data: PreparedData,
    fine: Callable[[int], bool],
    times: int = 1,
    other: str = "another --update",
) -> str:
    """What to do about training that has not converged: a number of iterations that was tried.

    fine: whether so many would do, at the plan's steps; times: iterations that it runs for each;
    other: what else might help.
    """
    rounds = tried = plan.rounds
    # Steps of the barrier follow from the number of iterations.
    doublings = 0 if kinds.figures(plan)["update"] == "barrier" else DOUBLINGS
    for more in (rounds << k for k in range(1, doublings + 1)):
        if more * times * (data.rows.size + OVERHEAD) > MOST_WORK:
            break
        try:
            enough = fine(more)
        except ParameterError:  # of a plan whose ring has no room for them
            break
        if enough:
            return f"take --iterations {more}"
        tried = more
    said = f"not even {tried} of them would be enough" if tried > rounds else "more of them may do"
    return f"{said}, {other} may"


@_tried()
def _best(plan: RowsPlan, data: PreparedData) -> Floats:
    """The optimum; of LFFR, which has no closed form, what many more iterations make."""
    if plan.model in OPTIMA:
        return OPTIMA[plan.model](data.rows, data.labels, data.row_weights, data.offsets)
    whole: Any = replace(plan, batches=1)  # type: ignore[call-arg]
    longer = replace(whole, update={**plan.update, "rounds": LONGER * plan.rounds})
    nothing = np.zeros((longer.rounds, *plan.fitted_shape))  # type: ignore[attr-defined]
    rows, labels = data.rows[:1], data.labels[:1]
    return run_twin(longer, data.rows, data.labels, nothing, rows, labels)[0]


def unconverged(plan: RunPlan, names: Sequence[str], left: Floats, cure: str) -> tuple[str, ...]:
    """left: share of each target's variance, on the training rows."""
    worst = int(np.argmax(left))
    if left[worst] <= MOST_UNLEARNT:
        return ()
    return (
        f"{UNCONVERGED}: {plan.rounds} iterations leave {left[worst]:.3f} of the "
        f"variance of {names[worst]} unexplained that more of them explain; {cure}",
    )


def _sums(plan: GradientPlan, data: PreparedData, specs: Specs) -> Twin:
    course = course_of(plan, data)
    weights = _run_sums(plan, specs, course.record)
    warnings = _moves_on(plan, data, specs, weights)
    return Twin(weights=weights, iterations=tuple(course.metrics), warnings=warnings)


def _run_sums(plan: GradientPlan, specs: Specs, record: Callable[[int, Any], None]) -> Floats:
    sources = {name: spec.noise_source() for name, spec in specs.items()}
    owners = {
        name: open_contributor(plan, name, spec.shard, sources[name])
        for name, spec in specs.items()
    }
    return run_in_plain(plan, owners, sources, np.zeros(plan.length), record)


def _moves_on(
    plan: GradientPlan, data: PreparedData, specs: Specs, weights: Floats
) -> tuple[str, ...]:
    """Without noise: whether many more rounds would score the training rows otherwise."""
    if plan.privacy is not None or not isinstance(plan.task, RowObjective):
        return ()

    def scores(rounds: int) -> Floats:
        longer = replace(plan, update={**plan.update, "rounds": rounds})
        found = _run_sums(longer, specs, lambda t, w: None)
        return data.rows @ found.reshape(data.rows.shape[1], -1)

    @_tried()
    def moved(ours: Floats, rounds: int) -> float:
        theirs = scores(LONGER * rounds)
        return float(np.linalg.norm(ours - theirs)) / max(float(np.linalg.norm(theirs)), 1e-300)

    share = moved(data.rows @ weights.reshape(data.rows.shape[1], -1), plan.rounds)
    if share <= MOST_MOVED:
        return ()
    if not math.isfinite(share):
        return (
            f"training does not converge: {LONGER} times the {plan.rounds} iterations of "
            f"{plan.update['kind']} diverge; take a smaller learning rate or another --update",
        )

    def fine(rounds: int) -> bool:
        return moved(scores(rounds), rounds) <= MOST_MOVED

    return (
        f"{UNCONVERGED}: {LONGER} times the {plan.rounds} iterations of "
        f"{plan.update['kind']} would change scores of the training rows by {share:.0%}; "
        f"{more_rounds(plan, data, fine, LONGER + 1)}",
    )


_TWINS: Mapping[str, str] = {
    "rows": "sims.twins:_rows",
    "model": "sims.twins:_rows",
    "model-lffr": "sims.twins:_rows",
    "gradients": "sims.twins:_sums",
    "lffr": "sims.lffr_twin:twin",
    "gram": "sims.gram_twin:twin",
}
"""By kind of plan."""
