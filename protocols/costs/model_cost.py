"""What an encrypted model costs, from its plan alone: operations, seconds, memory, layout.

Operations are exact: the party's circuit (`parties.kernel.model.clear_rows`) and the coordinator's
updates, run on counters. Seconds are operations times unit times (`ckks.cost`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

import numpy as np

from parties.kernel.model.clear_rows import CIRCUITS, encoded_size
from parties.kernel.model.columns import Columns, Complexes
from protocols.ckks import residues as rns
from protocols.ckks.circuits.cost import UnitTimes, Work, work
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
from protocols.ckks.factored import Link
from protocols.ckks.parameters import REFRESH_TOWERS, CkksParameters
from protocols.ckks.shared_keys import ENCODED_ROWS
from protocols.costs import traffic
from protocols.exchange.labels import commit_of
from protocols.model import gradient as model_gradient
from protocols.model import refresh as model_refresh
from protocols.model.plan import ModelPlan
from protocols.model.protocol import Given
from protocols.numerics.approximation import Polynomial
from protocols.words import size

Plan = TypeVar("Plan", bound=ModelPlan)
OF_THE_POINT = ("raise", "hoisted")
"""Operations on the point, before any row."""
CACHE = ENCODED_ROWS.total
"""Encoded rows that the parties of one process keep together, unless told otherwise [bytes]."""

# -- operations -----------------------------------------------------------------------------------


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
    counted: Any = type("Counted", (_Counted, CIRCUITS[circuit]), {})
    columns, factors = Columns.of(layout), Link.of(link.coefficients)

    def count(groups: int) -> Counter[tuple[str, int]]:
        rows = np.empty((groups * layout.rows_per_group, 0))
        weights: Any = [[range(params.num_towers)]] * layout.num_parts
        counted(context, columns, factors, rows, (Shadow(0), Shadow(0)), cache=0)(weights)
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
    state, found = rule.start(_shadows(params, layout)), []
    for t in range(rule.rounds):
        terms: Any = [low] * layout.num_parts
        sums, kept = advance(evaluator, rule, t, state, cast(Any, Given(terms, 1.0, 1.0)))
        own = [evaluator.own_share(total) for total in sums]
        refreshed = sum(len(evaluator.spread(terms, share)) for share in own)
        found.append(IterationTally(context.take(), refreshed))
        state = (*(_shadows(params, layout) for _ in sums), *kept)
    return tuple(found)


def _shadows(params: CkksParameters, layout: PeriodicLayout) -> Parts:
    whole: Any = range(params.num_towers)
    return Parts([[whole, whole]] * layout.num_parts)


class _CountedSideBySide(SideBySide):
    """The coordinator's circuit, on counters."""

    def _joined(self, pairs: Sequence[Pair]) -> Pair:
        return pairs[0]

    def _parted(self, rest: Any) -> list[Pair] | None:
        return None


# -- memory ---------------------------------------------------------------------------------------


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


def keys_bytes(plan: ModelPlan) -> int:
    """The joint evaluation keys, once in a process: OpenFHE's, beside the halves that came."""
    half = plan.ckks.key_rows * 8 * plan.ckks.ring_dim
    return (3 * len(plan.rotations) + 4) * half


def party_bytes(plan: ModelPlan, cache: int = CACHE) -> int:
    """What a party keeps beside a context and keys: encoded rows, its key share's residues."""
    params = plan.ckks
    rows = max(member.rows for member in plan.members)
    shares = 4 * params.num_towers * 8 * params.ring_dim
    kept = 1 - encoded_again(plan, rows, cache)
    return shares + round(kept * encoded_bytes(plan, rows))


def working_bytes(plan: ModelPlan) -> int:
    """Ciphertexts of a party's circuit, while it runs."""
    params, layout = plan.ckks, plan.layout
    ciphertext = 2 * params.num_towers * 8 * params.ring_dim
    working = layout.num_parts * (layout.turns + layout.rows_of_column) + len(layout.steps) + 5
    found: int = working * ciphertext
    return found


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


# -- seconds --------------------------------------------------------------------------------------


def gradient_seconds(
    plan: ModelPlan, rows: int, t: int, times: UnitTimes, cache: int = CACHE, sharers: int = 1
) -> float:
    """A party's gradient of round t, messages apart; what it encodes once is left out.

    sharers: parties of one process, who read the point and rotate it once.
    """
    layout, params = plan.layout, plan.ckks
    hidden = times.fresh_reply + REFRESH_TOWERS * _square(layout) * times.subring
    found: float = layout.num_parts * (hidden + (len(plan.members) - 1) * times.pad)
    if not t:
        return found
    found += (times.read + 2 * params.num_towers * layout.num_parts * times.load) / sharers
    again = encoded_again(plan, rows, cache)
    shares = {"encode": again, **dict.fromkeys(OF_THE_POINT, 1 / sharers)}
    groups = layout.groups_of(plan.taken(rows))
    for (name, level), count in party_tally(plan).of(groups).items():
        found += count * times.of(name, level) * shares.get(name, 1.0)
    return found


def encoding_seconds(plan: ModelPlan, rows: int, times: UnitTimes, cache: int = CACHE) -> float:
    """What a party encodes once."""
    if plan.rounds < 2:
        return 0.0
    kept = 1 - encoded_again(plan, rows, cache)
    tally = party_tally(plan).of(plan.layout.groups_of(plan.taken(rows)))
    return kept * sum(
        count * times.of(name, level) for (name, level), count in tally.items() if name == "encode"
    )


def share_seconds(plan: ModelPlan, step: int, times: UnitTimes) -> float:
    """A party's share of a refresh."""
    rows = plan.ckks.num_towers + REFRESH_TOWERS
    each: float = times.trace_share + rows * _square(plan.layout) * times.subring
    return plan.refreshes[step] * each


def join_seconds(plan: ModelPlan, step: int, times: UnitTimes) -> float:
    """What the coordinator makes of all shares of a refresh, and of the gradients before it."""
    rows = plan.ckks.num_towers + REFRESH_TOWERS
    each: float = times.trace_join + rows * _square(plan.layout) * times.subring
    # The state, side by side and by part; products with V take a row as long as loading it does.
    beside: float = 2 * (plan.ckks.num_towers + REFRESH_TOWERS) * plan.layout.num_parts * times.load
    return 2 * times.read + beside + plan.refreshes[step] * each


def _square(layout: PeriodicLayout) -> int:
    """Products of a transform on the subring, for one prime, beyond those for k = 1."""
    return (2 * layout.period) ** 2 - 4


def expansions(plan: ModelPlan, step: int) -> int:
    """How often a process with all roles expands the random elements of a refresh.

    Coordinator and parties use them one after the other; parties in the next gradient once more.
    """
    fits = plan.refreshes[step] * plan.ckks.num_towers <= rns.REMEMBERED
    return 1 if fits else 2 * len(plan.members) + 1


# -- the cheapest layout --------------------------------------------------------------------------

BANDWIDTH = 1e9
"""Of an owner's line, where nobody says otherwise [bit / s]."""
UNIT_SECONDS = 1.4e-9
"""One of `cost.Work.units`: at ring 2^15 a rotation at level 0, 18 million units, takes 25 ms."""
# In transforms of one prime, measured at ring 2^15: a refreshed ciphertext at a party and at the
# coordinator, and one row of a random element; a part's reply. A product of the subring's, of
# Python integers; signing, checking and adding up a byte [units].
_SHARE, _JOIN, _ELEMENT, _REPLY = 35, 20, 1.4, 25
_OBJECT, _BYTE = 26, 0.4
_ALIKE = 1.02


def cheapest_layout(plan: Plan, bandwidth: float = BANDWIDTH) -> Plan:
    """The plan with the features per ciphertext that make an iteration shortest.

    Large k: fewer parts to send, to refresh and to keep. Small k: fewer rotations. Of layouts alike
    to _ALIKE, the one with fewest parts. The choice depends on the plan alone, not on a machine, so
    that whoever makes the plan makes the same.
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
    operations = Counter(party_tally(plan).of(layout.groups_of(plan.taken(rows))))
    operations.update(iterations(plan)[middle].operations)
    units = sum(
        count * work(name, params, level).units(n) * (again if name == "encode" else 1)
        for (name, level), count in operations.items()
    )
    transform = Work(1, 0).units(n)
    units += transform * (fresh * (_SHARE + _JOIN + 2 * _ELEMENT * params.num_towers))
    units += transform * parts * _REPLY
    towers = params.num_towers + REFRESH_TOWERS
    units += (2 * fresh * towers + parts * REFRESH_TOWERS) * _OBJECT * _square(layout)
    asked, replied = _round_bytes(plan, middle)
    units += _BYTE * (asked + (1 + len(plan.members)) * replied)
    found: float = UNIT_SECONDS * units + 8 * (asked + replied) / bandwidth
    return found


def _round_bytes(plan: ModelPlan, t: int) -> tuple[int, int]:
    """Residues to a party and back, in an iteration."""
    gradient = f"{model_gradient.STEP}/{t}"
    steps = (commit_of(gradient), gradient, f"{model_refresh.STEP}/{t}")
    found = [each for each in traffic.exchanges(plan, plan.names[0]) if each.step in steps]
    return sum(each.request.size for each in found), sum(each.reply.size for each in found)
