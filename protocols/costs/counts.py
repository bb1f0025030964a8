"""What a run does, counted from its plan alone: operations of coordinator and parties.

Operations are exact: circuits (`protocols.rows.protocol.CIRCUITS`, `parties.kernel.model`) run on
counters. `units` puts them on one scale, by which layouts are compared and rehearsals carried over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np

from parties.kernel.model.clear_rows import encoded_size, party_circuit
from parties.kernel.model.columns import Columns, Complexes
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.periodic import PeriodicLayout
from protocols.ckks.circuits.rows import REFRESH_LEVEL, advance
from protocols.ckks.circuits.side_by_side import Pair, Parts, SideBySide
from protocols.ckks.circuits.tally import (
    COUNTED,
    CountingContext,
    IterationTally,
    Shadow,
    Tally,
    tally_iterations,
    whole,
)
from protocols.ckks.circuits.work import work
from protocols.ckks.factored import Link
from protocols.ckks.parameters import REFRESH_TOWERS, CkksParameters
from protocols.ckks.shared_keys import ENCODED_ROWS
from protocols.exchange.messages import Exchange
from protocols.gram.plan import GramPlan
from protocols.model.plan import ModelPlan
from protocols.model.protocol import Given
from protocols.numerics.approximation import Polynomial
from protocols.rows.lffr_plan import LffrPlan
from protocols.rows.plan import RowsPlan
from protocols.rows.protocol import circuit_of
from protocols.words import size

Circuit = RowsPlan | GramPlan | LffrPlan
"""A run under threshold CKKS."""
CACHE = ENCODED_ROWS.total
"""Encoded rows that the parties of one process keep together, unless told otherwise [bytes]."""

# -- the coordinator ------------------------------------------------------------------------------


def iterations(plan: Circuit) -> tuple[IterationTally, ...]:
    """Operations of every iteration; but on rows, what comes before the first is part of it."""
    if isinstance(plan, ModelPlan):
        return _of_model(plan)
    if isinstance(plan, RowsPlan):
        return tally_iterations(plan.ckks, plan.layout, plan.link, plan.rule)
    return _counted(plan)


def _counted(plan: Circuit) -> tuple[IterationTally, ...]:
    """The circuit, run on counters; what follows the last iteration is part of it."""
    circuit, context = circuit_of(plan), CountingContext(plan.ckks)
    evaluator = circuit.evaluator(context)  # type: ignore[arg-type]
    first, carried, found = first_mapped(plan), list[int](), list[IterationTally]()

    def fresh(vectors: Sequence[EncryptedVector]) -> Exchange[tuple[EncryptedVector, ...]]:
        yield from ()
        level = REFRESH_LEVEL if len(carried) >= first else 0
        carried.append(sum(len(vector.cts) for vector in vectors))
        return tuple(evaluator.wrap(*[Shadow(level)] * len(vector.cts)) for vector in vectors)

    done = 0

    def on_iteration(_: int) -> None:
        nonlocal done
        found.append(IterationTally(context.take(), sum(carried[done:])))
        done = len(carried)

    list(circuit.train(evaluator, _shadows(plan, evaluator), fresh, on_iteration))
    rest = Counter(found[-1].operations)
    rest.update(context.take())
    found[-1] = IterationTally(rest, found[-1].refreshed + sum(carried[done:]))
    return tuple(found)


def _shadows(plan: Circuit, evaluator: Evaluator) -> Any:
    """What stands in for the parties' ciphertexts, summed."""
    if isinstance(plan, GramPlan):
        return [evaluator.wrap(Shadow(0)) for _ in range(plan.task.num_ciphertexts)]
    layout = plan.layout
    data = [evaluator.wrap(Shadow(0)) for _ in range(layout.num_data_ciphertexts)]
    side = [evaluator.wrap(Shadow(0)) for _ in range(layout.num_side_ciphertexts)]
    return evaluator.grouped(data), side


def first_mapped(plan: Circuit) -> int:
    """The first refresh that goes through a map; all after it do. Their number if none does."""
    steps = range(len(plan.refreshes))
    return next((step for step in steps if None not in plan.column_maps(step)), len(steps))


def units(operations: Tally, params: CkksParameters) -> float:
    """Of `work.Work.units`."""
    return sum(
        count * work(name, params, level).units(params.ring_dim)
        for (name, level), count in operations.items()
    )


def num_ciphertexts(plan: Circuit) -> int:
    """Of all parties, summed; of an encrypted model's coordinator, those of one refresh."""
    if isinstance(plan, ModelPlan):
        return max(plan.refreshes)
    if isinstance(plan, GramPlan):
        return plan.task.num_ciphertexts
    return plan.layout.num_data_ciphertexts + plan.layout.num_side_ciphertexts


# -- of an encrypted model ------------------------------------------------------------------------


class _Counted:
    """Of a party's circuit, on counters."""

    _context: Any

    def _encode(self, slots: Callable[[], Complexes], level: int) -> Any:
        return self._context.encode(np.empty(0), level)


@dataclass(frozen=True, slots=True)
class PartyTally:
    """A party's gradient: operations of its first group of rows, and of every further one."""

    first: Tally
    further: Tally

    def of(self, groups: int) -> Tally:
        """Of so many groups, every row encoded."""
        extra = {key: (groups - 1) * count for key, count in self.further.items()}
        return Counter(self.first) + Counter(extra)


def party_tally(plan: ModelPlan) -> PartyTally:
    """Operations of a gradient; a group of rows costs what any other does."""
    return _party_tally(plan.ckks, plan.layout, plan.link, plan.circuit)


# Every party, and every candidate for the layout, asks for the same.
@lru_cache(maxsize=256)
def _party_tally(
    params: CkksParameters, layout: PeriodicLayout, link: Polynomial, circuit: str
) -> PartyTally:
    context: Any = CountingContext(params)
    counted: Any = type("Counted", (_Counted, party_circuit(circuit)), {})
    columns, factors = Columns.of(layout), Link.of(link.coefficients)

    def count(groups: int) -> Counter[tuple[str, int]]:
        rows = np.empty((groups * layout.rows_per_group, 0))
        weights: Any = [[range(params.num_towers)]] * layout.num_parts
        counted(context, columns, factors, rows, (Shadow(0), Shadow(0)), cache=0)(weights)
        found: Counter[tuple[str, int]] = context.take()
        return found

    one = count(1)
    return PartyTally(one, count(2) - one)


def _of_model(plan: ModelPlan) -> tuple[IterationTally, ...]:
    """The coordinator's operations of every iteration, and ciphertexts of its refresh."""
    counted = min(plan.rounds, COUNTED)
    short: Any = replace(plan.rule, rounds=counted)  # type: ignore[type-var]
    return whole(list(_updates(plan.ckks, plan.layout, short)), plan.rounds)


@lru_cache(maxsize=256)
def _updates(
    params: CkksParameters, layout: PeriodicLayout, rule: Any
) -> tuple[IterationTally, ...]:
    context: Any = CountingContext(params)
    evaluator = _CountedSideBySide(context, layout)
    low: Any = [range(REFRESH_TOWERS)] * 2
    state, found = rule.start(_blank(params, layout)), []
    for t in range(rule.rounds):
        terms: Any = [low] * layout.num_parts
        sums, kept = advance(evaluator, rule, t, state, cast(Any, Given(terms, 1.0, 1.0)))
        own = [evaluator.own_share(total) for total in sums]
        refreshed = sum(len(evaluator.spread(terms, share)) for share in own)
        found.append(IterationTally(context.take(), refreshed))
        state = (*(_blank(params, layout) for _ in sums), *kept)
    return tuple(found)


def _blank(params: CkksParameters, layout: PeriodicLayout) -> Parts:
    whole: Any = range(params.num_towers)
    return Parts([[whole, whole]] * layout.num_parts)


class _CountedSideBySide(SideBySide):
    """The coordinator's circuit, on counters."""

    def _joined(self, pairs: Sequence[Pair]) -> Pair:
        return pairs[0]

    def _parted(self, rest: Any) -> list[Pair] | None:
        return None


def encoded_bytes(plan: ModelPlan, rows: int) -> int:
    """Of a round's encoded rows of a party."""
    params, groups = plan.ckks, plan.layout.groups_of(plan.taken(rows))
    return sum(
        count * encoded_size(params, level)
        for (name, level), count in party_tally(plan).of(groups).items()
        if name == "encode"
    )


def encoded_again(plan: ModelPlan, rows: int, cache: int = CACHE) -> float:
    """Share of a party's rows that every round encodes anew."""
    if plan.taken(rows) < rows:
        return 1.0
    return max(0.0, 1 - cache / encoded_bytes(plan, rows))


def cache_words(plan: ModelPlan, cache: int = CACHE) -> str:
    """What a party keeps of its encoded rows, for a person."""
    rows = max(member.rows for member in plan.members)
    needed, again = encoded_bytes(plan, rows), encoded_again(plan, rows, cache)
    if plan.taken(rows) < rows:
        return f"a party encodes other rows in every round, {size(needed)} of them"
    if not again:
        return f"a party keeps its rows encoded, {size(needed)} at most"
    return (
        f"a party keeps {size(cache)} of its encoded rows, and encodes the other {again:.0%} of "
        f"{size(needed)} again in every round"
    )
