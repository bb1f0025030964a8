"""An attack on encrypted sums: which of two rows does an owner have?

**Neighbours.** One honest owner's row is one of two; all other rows are zero, which moves nothing.
What either row adds to every opened sum comes from the owner's own code
(`objectives.open_contributor`), at the points of a run without noise. `candidates` are rows
along an axis, along the diagonal (long in L1, short in L2), and on two axes, in every public batch;
the pair that costs most at the plan's noise is played. `steady` says whether the row adds the same
at the points of noisy runs: clips see to that, and without it the attack would be another one.

**Who looks.** The coordinator and t owners. They see every sum, subtract their noise, and are left
with the honest owners' P - t shares: Gaussian of the plan's std, by the exact law
(`tests/lab/studies/test_epsilon.py` compares it with the sampler).
Secret coins are unknown to them.

**Statistic and bounds.** The log-likelihood ratio of all sums, most powerful by Neyman and Pearson;
`privacy.lower_bounds` turns hits and alarms into an epsilon. The Gaussian trade-off is used
where there are no coins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parties.reader.schema import Classes, Label, NumericColumn, Schema
from parties.reader.shard import ClampCounts, Shard
from parties.verifier.objectives import open_contributor
from protocols.errors import ParameterError
from protocols.exchange.messages import Exchange
from protocols.privacy.laws import RandomSource, Words
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.loss import epsilon_for_mu
from protocols.sums.dual import DualObjective
from protocols.sums.plan import GradientPlan, run_rule
from sims.lab.audits import second_accountant as second
from sims.lab.audits.privacy import chunks, lower_bounds

Floats = NDArray[np.float64]
_CHUNK = 100_000


Row = tuple[Floats, float]


@dataclass(frozen=True, kw_only=True, eq=False)
class Pair:
    """Two rows with their labels, and what each adds to every sum, shape (queries, d).

    party, place: whose row, and where it stands among the owner's.
    """

    name: str
    party: int
    place: int
    rows: tuple[Row, Row]
    own: Floats
    other: Floats

    @property
    def moves(self) -> Floats:
        """By how much replacing the row moves each sum."""
        return self.own - self.other


class _EveryCoin:
    """A source under which every row joins: what it adds when it does."""

    def words(self, count: int) -> Words:
        """Zeros."""
        return np.zeros(count, dtype=np.uint64)


def candidates(plan: GradientPlan) -> Iterator[Pair]:
    """Pairs of rows of norm 1, played through the owner's code."""
    d = plan.num_features
    axis, second_axis = np.eye(d)[0], np.eye(d)[min(1, d - 1)]
    diagonal = np.full(d, 1 / math.sqrt(d))
    shapes: dict[str, tuple[Row, Row]] = {
        "axis": ((axis, 1.0), (axis, 0.0)),
        "diagonal": ((diagonal, 1.0), (diagonal, 0.0)),
        "two axes": ((axis, 1.0), (second_axis, 0.0)),
    }
    task = plan.task
    batches = task.public_batches if isinstance(task, DualObjective) else 1
    party = max(range(len(plan.members)), key=plan.row_weight)
    parts = np.array_split(np.arange(plan.members[party].rows), batches)
    for name, rows in shapes.items():
        for k, part in enumerate(parts[: len(plan.queries)]):
            place = int(part[0])
            own, other = (_added(plan, party, place, row) for row in rows)
            yield Pair(
                name=f"{name}, batch {k}" if batches > 1 else name,
                party=party,
                place=place,
                rows=rows,
                own=own,
                other=other,
            )


def worst_pair(plan: GradientPlan) -> Pair:
    """That which costs most at the plan's noise; of equal ones that on the fewest coordinates."""
    scales = np.array(plan.noise_scales)

    def cost(pair: Pair) -> tuple[float, int]:
        norms = np.linalg.norm(pair.moves, ord=plan.noise.norm, axis=1)
        return round(plan.noise.cost(norms / scales), 9), -int(np.count_nonzero(pair.moves))

    return max(candidates(plan), key=cost)


def pair_epsilon(plan: GradientPlan, pair: Pair, *, delta: float) -> float:
    """Epsilon of this very pair by dp-accounting, at its measured moves."""
    scales = np.array(plan.noise_scales)
    ratios = np.linalg.norm(pair.moves, axis=1) / scales
    if _rate(plan) < 1:
        return second.poisson_epsilon([float(r) for r in ratios], rate=_rate(plan), delta=delta)
    return second.gaussian_epsilon([float(r) for r in ratios], delta=delta)


def attack(
    plan: GradientPlan,
    pair: Pair,
    *,
    runs: int,
    delta: float,
    confidence: float,
    rng: np.random.Generator,
) -> float:
    """A lower bound on epsilon at delta; each of two binomial bounds fails with (1 - c) / 4.

    runs: of both tables together. rng: of the noise; a simulation, NOT PRIVATE.
    """
    half = runs // 2
    own, other = (_scores(plan, pair, half, present, rng) for present in (True, False))
    direct, mu = lower_bounds(own, other, delta=delta, additive=0.0, error=(1 - confidence) / 4)
    always = _rate(plan) == 1 and mu > 0
    return max(direct, epsilon_for_mu(mu=mu, delta=delta) if always else 0.0)


def steady(plan: GradientPlan, pair: Pair) -> bool:
    """Whether both rows add the same at the points of a noisy run, to within 1e-9 of the move."""
    slack = 1e-9 * float(np.abs(pair.moves).max())
    for row, before in zip(pair.rows, (pair.own, pair.other), strict=True):
        noise = [SeededRandomness(0, name) for name in plan.names]
        added = _added(plan, pair.party, pair.place, row, noise)
        if float(np.abs(added - before).max()) > slack:
            return False
    return True


def _rate(plan: GradientPlan) -> float:
    return plan.task.rate if isinstance(plan.task, DualObjective) else 1.0


def _added(
    plan: GradientPlan,
    party: int,
    place: int,
    row: Row,
    noise: Sequence[RandomSource] = (),
) -> Floats:
    """What the row adds to every sum, by its owner's code, shape (queries, d)."""
    count, name = plan.members[party].rows, plan.names[party]
    # A zero row adds nothing, whatever its label.
    x: Floats = np.zeros((count, plan.num_features))
    y: Floats = np.zeros(count)
    x[place], y[place] = row
    schema = unit_schema(plan.num_features, plan.outputs)
    if plan.outputs > 1:
        y = np.eye(plan.outputs)[y.astype(np.intp)]
    shard = Shard(x=x, y=y, counts=ClampCounts(rows=count), schema=schema)
    owner = open_contributor(plan, name, shard, _EveryCoin())
    found: list[Floats] = []

    def ask(t: int, point: Floats) -> Exchange[Floats]:
        added = owner.contribution(plan.queries[t], t, point)
        found.append(added)
        return added + sum((plan.draw_noise(t, source) for source in noise), np.zeros(plan.length))
        yield  # a source of aggregates is a generator; this one asks nobody

    try:
        next(run_rule(plan, ask, np.zeros(plan.length)))
    except StopIteration:
        return np.array(found)
    raise ParameterError("the rule asked a party")


def unit_schema(length: int, classes: int = 1) -> Schema:
    """So many features, rows clipped to norm 1; classes: of the label, 1: two values."""
    columns = tuple(NumericColumn(name=f"c{k}", low=0.0, high=1.0) for k in range(length - 1))
    label: Label | Classes = Label(name="y", negative="0", positive="1")
    if classes > 1:
        label = Classes(name="y", classes=tuple(map(str, range(classes))))
    return Schema(columns=columns, label=label, scaling="range", row_norm=1.0)


def _scores(
    plan: GradientPlan, pair: Pair, runs: int, present: bool, rng: np.random.Generator
) -> Floats:
    """Log-likelihood ratios of `runs` runs with the one row or the other."""
    return np.concatenate([_chunk(plan, pair, n, present, rng) for n in chunks(runs, _CHUNK)])


def _chunk(
    plan: GradientPlan, pair: Pair, runs: int, present: bool, rng: np.random.Generator
) -> Floats:
    scores, rate = np.zeros(runs), _rate(plan)
    for own, other, scale in zip(pair.own, pair.other, plan.noise_scales, strict=True):
        joins = 1.0 if rate == 1 else (rng.random(runs) < rate).astype(float)
        logs = [np.zeros(runs), np.zeros(runs)]
        # Coordinates that tell nothing are left out.
        for a, b in zip(own, other, strict=True):
            if a == b:
                continue
            seen = joins * (a if present else b) + scale * rng.standard_normal(runs)
            for log, value in zip(logs, (a, b), strict=True):
                # Over the likelihood of a sum without the row.
                log += (seen * value - value * value / 2) / scale**2
        if rate < 1:
            logs = [np.log1p(rate * np.expm1(np.minimum(log, 700.0))) for log in logs]
        scores += logs[0] - logs[1]
    return scores
