"""What a run of an encrypted model costs, and the packing that costs least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

import numpy as np

from parties.kernel.model import Columns, Complexes
from parties.kernel.model.clear_rows import encoded_size, party_circuit
from protocols.ckks import REFRESH_TOWERS, CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.circuits.periodic import PeriodicLayout, widest
from protocols.ckks.circuits.rows import advance
from protocols.ckks.circuits.side_by_side import Pair, Parts, SideBySide
from protocols.ckks.circuits.tally import (
    COUNTED,
    CountingContext,
    IterationTally,
    Shadow,
    Tally,
    whole,
)
from protocols.ckks.circuits.work import Work
from protocols.ckks.factored import Link
from protocols.ckks.shared_keys import ENCODED_ROWS
from protocols.costs.counts import BANDWIDTH, units
from protocols.model.plan import ModelPlan
from protocols.model.protocol import Given
from protocols.numerics.approximation import Polynomial
from protocols.words import size

Model = TypeVar("Model", bound=ModelPlan)
CACHE = ENCODED_ROWS.total
"""Encoded rows that the parties of one process keep together, unless told otherwise [bytes]."""

UNIT_SECONDS = 1.4e-9
"""One of `work.Work.units`: at ring 2^15 a rotation at level 0, 18 million units, takes 25 ms."""

# In transforms of one prime, measured at ring 2^15: a refreshed ciphertext at a party and at the
# coordinator, and one row of a random element; a part's reply. A product of the subring's, of
# Python integers; signing, checking and adding up a byte [units].
_SHARE, _JOIN, _ELEMENT, _REPLY = 35, 20, 1.4, 25
_OBJECT, _BYTE = 26, 0.4
_ALIKE = 1.02


def num_ciphertexts(plan: ModelPlan) -> int:
    """Of the coordinator's refresh."""
    return max(plan.refreshes)


def described(plan: ModelPlan) -> dict[str, Any]:
    """Polynomial, packing, and what parties keep of their rows."""
    layout = plan.layout
    return {
        "degree": plan.link.degree,
        "interval": plan.link.radius,
        "ckks": {"features_per_ciphertext": layout.num_blocks, "parts": layout.num_parts},
        "encoded_rows": cache_words(plan),
    }


def columns_of(layout: PeriodicLayout) -> Columns:
    """What of a layout a party's kernel is told."""
    return Columns(**{field.name: getattr(layout, field.name) for field in fields(Columns)})


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
    columns, factors = columns_of(layout), Link.of(link.coefficients)

    def count(groups: int) -> Counter[tuple[str, int]]:
        rows = np.empty((groups * layout.rows_per_group, 0))
        weights: Any = [[range(params.num_towers)]] * layout.num_parts
        own = counted(context, columns, factors, rows, (Shadow(0), Shadow(0)), cache=0)
        own.gradient(own.rotated(weights))
        found: Counter[tuple[str, int]] = context.take()
        return found

    one = count(1)
    return PartyTally(one, count(2) - one)


def iterations(plan: ModelPlan) -> tuple[IterationTally, ...]:
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


def cheapest_layout(plan: Model, bandwidth: float) -> Model:
    """Large k: fewer parts to send, to refresh and to keep. Small k: fewer rotations.

    Of layouts alike to _ALIKE, the one with fewest parts.
    """
    most = min(widest(plan.num_features), plan.ckks.num_slots)
    widths = [2 << i for i in range(most.bit_length() - 1)]
    tried = [replace(plan, features_per_ciphertext=width) for width in reversed(widths)]
    costs = [iteration_cost(each, bandwidth) for each in tried]
    good = (each for each, cost in zip(tried, costs, strict=True) if cost <= _ALIKE * min(costs))
    return next(good)


def iteration_cost(plan: ModelPlan, bandwidth: float = BANDWIDTH) -> float:
    """Seconds of the slowest party, the coordinator and the party's line, one after the other.

    On a machine of UNIT_SECONDS; in the middle of the run.
    """
    params, layout, middle = plan.ckks, plan.layout, plan.rounds // 2
    n, parts, fresh = params.ring_dim, layout.num_parts, plan.refreshes[middle]
    rows = max(member.rows for member in plan.members)
    again = encoded_again(plan, rows, CACHE // len(plan.members))
    theirs = party_tally(plan).of(layout.groups_of(plan.taken(rows)))
    operations = Counter(iterations(plan)[middle].operations)
    operations.update({key: n for key, n in theirs.items() if key[0] != "encode"})
    encoding = {key: n for key, n in theirs.items() if key[0] == "encode"}
    found = units(operations, params) + again * units(encoding, params)
    transform = Work(1, 0).units(n)
    found += transform * (fresh * (_SHARE + _JOIN + 2 * _ELEMENT * params.num_towers))
    found += transform * parts * _REPLY
    towers, square = params.num_towers + REFRESH_TOWERS, (2 * layout.period) ** 2 - 4
    # Products of a transform on the subring, for one prime, beyond those for k = 1.
    found += (2 * fresh * towers + parts * REFRESH_TOWERS) * _OBJECT * square
    low, top = (rns.packed_size((0,) * k, n) for k in (REFRESH_TOWERS, params.num_towers))
    asked, replied = parts * top + fresh * low, 2 * parts * low + fresh * (low + top)
    found += _BYTE * (asked + (1 + len(plan.members)) * replied)
    seconds: float = UNIT_SECONDS * found + 8 * (asked + replied) / bandwidth
    return seconds
