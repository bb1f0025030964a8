"""What a run will cost, from its plan alone, in operations, seconds, memory; best layout.

Operations under threshold CKKS are exact (`protocols.ckks.tally`, or the circuit itself, run on
counters). Seconds are operations times this machine's unit times, all roles one after the other on
one machine, as in `cohort simulate`. Memory is an estimate: see `memory`. Bytes: `traffic`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocols.circuits import circuit_of
from protocols.ckks.circuit import REFRESH_LEVEL
from protocols.ckks.cost import UnitTimes, work
from protocols.ckks.evaluator import EncryptedVector, Evaluator
from protocols.ckks.packing import next_power_of_two
from protocols.ckks.tally import CountingContext, IterationTally, Shadow, Tally, tally_iterations
from protocols.contribute import grouped
from protocols.gram_plan import GramPlan
from protocols.messages import Exchange
from protocols.plan import RunPlan
from protocols.precondition import precondition
from protocols.protocol import PHASES
from protocols.rows import RowsPlan
from protocols.traffic import Circuit, Exchanged, exchanges, num_ciphertexts, packed

# Copies of a message that exist at once: residues, blobs, frame, transport.
_COPIES = 4
# Copies that the transport makes of a message: record, serialised, delivered, parsed, taken out.
_TRANSPORT_COPIES = 5
# Resident set of a role that has loaded its libraries [bytes], measured.
BASE_MEMORY = 280 << 20


# A ciphertext's refresh through a map in key switches at level 0, 25 ms at ring 2^15: the
# coordinator's 70 ms and one party's 110 ms, for parties work side by side, on machines of their
# own. What a refresh costs once for all its ciphertexts is the same for every layout.
REFRESH_SWITCHES = 7
NEARLY = 1.1
"""A tenth of an iteration's time for up to half of its bytes."""
# Once a layout costs this much more than the best so far, those with fewer features do, too.
_HOPELESS = 1.5


# -- the cheapest layout --------------------------------------------------------------------------


def cheapest_layout(plan: RowsPlan) -> RowsPlan:
    """The plan with the features per ciphertext that make an iteration cheapest, or nearly so.

    Small k: fewer groups of rows, each with less to sum over features. Large k: fewer parts, each
    with its own update, relinearisation and refresh, hence fewer bytes: of layouts that cost the
    same to within NEARLY, the largest k. The choice depends on the plan alone, not on a
    machine, so that whoever makes the plan makes the same.
    """
    costs = list[tuple[float, RowsPlan]]()
    least, width = float("inf"), next_power_of_two(plan.num_features)
    while width:
        tried = replace(plan, features_per_ciphertext=width)
        cost = iteration_work(tried)
        costs.append((cost, tried))
        least = min(least, cost)
        if cost > _HOPELESS * least:
            break
        width //= 2
    return next(tried for cost, tried in costs if cost <= NEARLY * least)


def iteration_work(plan: RowsPlan) -> float:
    """The coordinator's in an iteration in the middle of the run, and its wait for refresh shares.

    See `cost.Work.units`.
    """
    params, middle = plan.ckks, iterations(plan)[plan.rounds // 2]
    circuit = sum(
        count * work(operation, params, level).units(params.ring_dim)
        for (operation, level), count in middle.operations.items()
    )
    switch = work("rotate", params, 0).units(params.ring_dim)
    return circuit + REFRESH_SWITCHES * switch * middle.refreshed


# -- operations -----------------------------------------------------------------------------------


def iterations(plan: Circuit) -> tuple[IterationTally, ...]:
    """Operations of every iteration; but on rows, what comes before the first is part of it."""
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
    return grouped(evaluator, data), side


def inversion(plan: Circuit) -> Tally:
    """Operations of the curvature's inversion, where no iteration has them."""
    if not isinstance(plan, RowsPlan) or plan.curvature is None:
        return {}
    context: Any = CountingContext(plan.ckks)
    evaluator = Evaluator(context, plan.layout)

    def refresh(vectors: Sequence[EncryptedVector]) -> Exchange[tuple[EncryptedVector, ...]]:
        yield from ()
        return tuple(evaluator.wrap(*[Shadow(0)] * len(vector.cts)) for vector in vectors)

    list(precondition(evaluator, plan.curvature, evaluator.wrap(Shadow(0)), refresh))
    counts: Tally = context.take()
    return counts


def first_mapped(plan: Circuit) -> int:
    """The first refresh that goes through a map; all after it do. Their number if none does."""
    steps = range(len(plan.refreshes))
    return next((step for step in steps if None not in plan.column_maps(step)), len(steps))


def refresh_after(plan: Circuit, iteration: int) -> int:
    """The refresh that ends an iteration on rows, in the numbering of `plan.refreshes`."""
    return len(plan.refreshes) - plan.rounds + iteration


# -- seconds --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """Predicted wall clock.

    by_phase: as a run's costs state them; iteration: the coordinator's own work in one iteration in
    the middle of the run, its part of the refresh included, of Gram sums in the mean of all;
    waiting: what all parties do in it, one after the other; total: the protocol, without loading
    libraries and data.
    """

    by_phase: dict[str, float]
    iteration: float
    waiting: float

    @property
    def total(self) -> float:
        """All phases."""
        return sum(self.by_phase.values())


def circuit_seconds(operations: Tally, times: UnitTimes) -> float:
    """The coordinator's arithmetic."""
    return sum(
        count * times.of(operation, level) for (operation, level), count in operations.items()
    )


def seconds(plan: Circuit, times: UnitTimes) -> Seconds:
    """Wall clock of a run on one machine that all roles share."""
    params, course, first = plan.ckks, iterations(plan), first_mapped(plan)
    found = dict.fromkeys(PHASES, 0.0)
    # Of each refresh: the coordinator's part, and all parties' together.
    own, waiting = [0.0] * len(plan.refreshes), [0.0] * len(plan.refreshes)
    share = 1 / len(plan.members)
    for name in plan.names:
        for each in exchanges(plan, name):
            asked, replied = each.request.size, each.reply.size
            # Requests are signed, and sums reduced, once for all parties.
            sending = asked * times.sign * share + replied * times.check
            reading = replied * (times.unpack + times.add + times.reduce * share)
            party = _party_work(each, times, first)
            found[each.phase] += times.message + sending + party + reading
            if each.phase == "refresh":
                step = int(each.step.partition("/")[2])
                own[step] += sending + reading
                waiting[step] += party
    # Random elements are expanded once for all roles of a process.
    keys, element = len(plan.rotations) + 1, times.expand * params.num_towers
    found["keys"] += times.setup + keys * times.key_join
    found["keys"] += times.expand * (keys + 1) * params.key_rows + element
    found["refresh"] += element * sum(plan.refreshes)
    circuits = [inversion(plan), *(iteration.operations for iteration in course)]
    joins = [_join_seconds(plan, k, times, first) for k in range(len(plan.refreshes))]
    found["train"] += sum(circuit_seconds(operations, times) for operations in circuits)
    found["train"] += sum(joins)
    waiting = [each + element * count for each, count in zip(waiting, plan.refreshes, strict=True)]
    if isinstance(plan, GramPlan):
        work, waits = found["train"] + sum(own), sum(waiting)
        iteration, wait = work / plan.rounds, waits / plan.rounds
    else:
        step = refresh_after(plan, plan.rounds // 2)
        iteration = circuit_seconds(course[plan.rounds // 2].operations, times)
        iteration, wait = iteration + joins[step] + own[step], waiting[step]
    return Seconds(by_phase=found, iteration=iteration, waiting=wait)


def iteration_seconds(plan: RowsPlan, iteration: int, times: UnitTimes) -> float:
    """The coordinator's circuit, and what it makes of the parties' refresh shares."""
    circuit = circuit_seconds(iterations(plan)[iteration].operations, times)
    step = refresh_after(plan, iteration)
    return circuit + _join_seconds(plan, step, times, first_mapped(plan))


def _join_seconds(plan: Circuit, step: int, times: UnitTimes, first: int) -> float:
    """What the coordinator does with the shares of one refresh, which it reads as one or two."""
    count = plan.refreshes[step]
    if step >= first:
        return 2 * times.read + count * times.map_join
    return times.read + count * times.refresh_join


def _party_work(each: Exchanged, times: UnitTimes, first: int) -> float:
    """What one party does for one step, and the transport to it; first: see `first_mapped`.

    What it commits to in one step, and opens in a later one of the same phase, counts as made in
    the later one.
    """
    count, (kind, _, number) = len(each.reply.blobs), each.step.partition("/")
    unit = {
        # The secret key, and both halves of the first round; then two products for the second.
        "keys": times.key_share * 2.5,
        "rotations": times.key_share * count,
        "relinearise": times.key_share * 2,
        "contribute": times.encrypt * count,
        "decrypt": times.decryption_share,
    }
    if kind == "refresh":
        mapped = int(number) >= first
        unit[kind] = (times.map_share if mapped else times.refresh_share) * count / 2
    asked, replied = each.request.size, each.reply.size
    wire = asked * (times.check + times.unpack) + replied * (times.pack + times.sign)
    if kind in ("keys", "contribute"):
        wire += replied * times.sign  # hashed for the commitment as well
    if kind == "public-shares":
        wire += asked * times.add
    return unit.get(kind, 0.0) + wire + (asked + replied) * _TRANSPORT_COPIES * times.copy


# -- memory ---------------------------------------------------------------------------------------


def memory(plan: RunPlan) -> dict[str, int]:
    """Estimated peak resident set of each role [bytes].

    Libraries, plus what stays (evaluation keys, ciphertexts, frames: 8 bytes per residue; rows),
    plus the messages in flight, `_COPIES` of each: a step's requests, one reply, the sum so far. A
    simulation in one process has the libraries once and the rest of all parties.
    """
    flights, replies = Counter[str](), Counter[str]()
    alone = 0
    for name in plan.names:
        for each in exchanges(plan, name):
            flights[each.step] += each.request.size
            replies[each.step] = max(replies[each.step], each.reply.size)
            alone = max(alone, each.blob_bytes)
    frames, kept = _resident(plan) if isinstance(plan, Circuit) else (0, 0)
    rows = 8 * max(member.rows for member in plan.members) * plan.num_features
    return {
        "coordinator": BASE_MEMORY + frames + kept + _COPIES * max((flights + replies).values()),
        "party": BASE_MEMORY + frames + rows + _COPIES * alone,
    }


def _resident(plan: Circuit) -> tuple[int, int]:
    """Of a context in every role; of keys and ciphertexts at the coordinator [bytes]."""
    params = plan.ckks
    polynomial = 8 * params.ring_dim
    key, ciphertext = 2 * params.key_rows * polynomial, 2 * params.num_towers * polynomial
    kept = (len(plan.rotations) + 1) * key + num_ciphertexts(plan) * ciphertext
    kept += len(plan.names) * packed(params, params.num_towers)  # shares of the public key
    return 2 * key + 2 * ciphertext, kept
