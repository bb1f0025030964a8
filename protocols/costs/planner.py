"""What a run will cost, from its plan alone, in operations, seconds, memory; best layout.

Operations under threshold CKKS are exact (`ckks.circuits.tally`, or the circuit itself, run on
counters). Seconds are operations times this machine's unit times, all roles one after the other on
one machine, as in `cohort simulate`. Memory is an estimate: see `memory`. Bytes: `traffic`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeVar, cast

from protocols.ckks.circuits.cost import UnitTimes, work
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.packing import next_power_of_two
from protocols.ckks.circuits.rows import REFRESH_LEVEL
from protocols.ckks.circuits.tally import (
    CountingContext,
    IterationTally,
    Shadow,
    Tally,
    tally_iterations,
)
from protocols.costs import model_cost
from protocols.costs.model_cost import BANDWIDTH, CACHE
from protocols.costs.traffic import Circuit, Exchanged, exchanges, num_ciphertexts, packed
from protocols.exchange.labels import commit_of
from protocols.exchange.messages import Exchange
from protocols.gram.plan import GramPlan
from protocols.model import gradient as model_gradient
from protocols.model.plan import ModelPlan
from protocols.plan.protocol import PHASES, protocol_of
from protocols.plan.run_plan import RunPlan
from protocols.rows.plan import RowsPlan
from protocols.rows.protocol import circuit_of
from protocols.steps import refresh
from protocols.steps.precondition import precondition
from protocols.sums.plan import GradientPlan

Rows = TypeVar("Rows", bound=RowsPlan)
# Copies of a message that exist at once: residues, blobs, frame, transport.
_COPIES = 4
# Copies that the transport makes of a message: record, serialised, delivered, parsed, taken out.
_TRANSPORT_COPIES = 5
# Resident set of a role that has loaded its libraries [bytes], measured.
BASE_MEMORY = 280 << 20


# What a ciphertext's refresh counts in key switches at level 0. Share and join take three of them,
# 48 and 37 ms of one thread at ring 2^15; it counts as seven, because each also moves 3.7 MB per
# party, and who is far away waits for these longer than for the arithmetic.
REFRESH_SWITCHES = 7
NEARLY = 1.1
"""A tenth of an iteration's time for up to half of its bytes."""
# Once a layout costs this much more than the best so far, those with fewer features do, too.
_HOPELESS = 1.5


# -- the cheapest layout --------------------------------------------------------------------------


def cheapest_layout(plan: Rows, bandwidth: float = BANDWIDTH) -> Rows:
    """The plan with the features per ciphertext that make an iteration cheapest, or nearly so.

    Small k: fewer groups of rows, each with less to sum over features. Large k: fewer parts, each
    with its own update, relinearisation and refresh, hence fewer bytes: of layouts that cost the
    same to within NEARLY, the largest k. bandwidth: of an owner's line [bit / s], which counts
    where bytes differ much: of an encrypted model. The choice depends on the plan alone, not on a
    machine, so that whoever makes the plan makes the same.
    """
    if isinstance(plan, ModelPlan):
        return model_cost.cheapest_layout(plan, bandwidth)
    costs = list[tuple[float, Rows]]()
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
    if isinstance(plan, ModelPlan):
        return model_cost.iterations(plan)
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
    waiting: what all parties do in it, one after the other; slowest: the slowest of them; beside:
    of the whole run, what the others do while the slowest works, where each has a machine; hidden:
    of an iteration, the coordinator's work while parties are at theirs; total: the protocol,
    without loading libraries and data.
    """

    by_phase: dict[str, float]
    iteration: float
    waiting: float
    slowest: float
    beside: float
    hidden: float = 0.0

    @property
    def total(self) -> float:
        """All phases, every role in turn."""
        return sum(self.by_phase.values())

    @property
    def everybody(self) -> float:
        """An iteration, every role in turn."""
        return self.iteration + self.waiting

    @property
    def path(self) -> float:
        """An iteration of the slowest party and the coordinator."""
        return self.iteration + self.slowest - self.hidden


def circuit_seconds(operations: Tally, times: UnitTimes) -> float:
    """The coordinator's arithmetic."""
    return sum(
        count * times.of(operation, level) for (operation, level), count in operations.items()
    )


def seconds(plan: Circuit, times: UnitTimes) -> Seconds:
    """Wall clock of a run on one machine that all roles share."""
    params, course, roles = plan.ckks, iterations(plan), _Roles(plan, times)
    found = dict.fromkeys(PHASES, 0.0)
    # Of each step: the coordinator's part; that of all parties together, and of the slowest.
    own, waiting, slowest = (defaultdict[str, float](float) for _ in range(3))
    share = 1 / len(plan.members)
    for member in plan.members:
        for each in exchanges(plan, member.name):
            asked, replied = each.request.size, each.reply.size
            # Requests are signed, and sums reduced, once for all parties.
            sending = asked * times.sign * share + replied * times.check
            reading = replied * (times.unpack + times.add + times.reduce * share)
            party, alone = roles.party(each, member.rows)
            found[each.phase] += times.message + sending + party + reading
            own[each.step] += sending + reading
            waiting[each.step] += party
            slowest[each.step] = max(slowest[each.step], alone)
    # Random elements are expanded once for all roles of a process, while it remembers them.
    keys, element = len(plan.rotations) + 1, times.expand * params.num_towers
    found["keys"] += times.setup + keys * times.key_join
    found["keys"] += times.expand * (keys + 1) * params.key_rows + element
    for k, count in enumerate(plan.refreshes):
        step, again = f"{refresh.STEP}/{k}", roles.expansions(k) * element * count
        own[step] += roles.join(k)
        found["refresh"] += again
        found["train"] += roles.join(k)
        waiting[step] += again
        slowest[step] += element * count
    found["train"] += roles.reading()
    circuits = [inversion(plan), *(iteration.operations for iteration in course)]
    found["train"] += sum(circuit_seconds(operations, times) for operations in circuits)
    found["train"] += sum(roles.once(member.rows) for member in plan.members)
    beside = sum(waiting.values()) - sum(slowest.values())
    if isinstance(plan, GramPlan):
        refreshes = [f"{refresh.STEP}/{k}" for k in range(len(plan.refreshes))]
        steps = _fixed_first(plan, refreshes)
        work, over = sum(circuit_seconds(each, times) for each in circuits), plan.rounds
    else:
        steps, middle = _steps_of(plan, plan.rounds // 2), course[plan.rounds // 2]
        work, over = circuit_seconds(middle.operations, times), 1
    # A rule's own path, and at the same time the gradients.
    gradient = f"{model_gradient.STEP}/{plan.rounds // 2}"
    hidden = min(work, slowest[gradient]) if isinstance(plan, ModelPlan) else 0.0
    return Seconds(
        by_phase=found,
        iteration=(work + sum(own[step] for step in steps)) / over,
        waiting=sum(waiting[step] for step in steps) / over,
        slowest=sum(slowest[step] for step in steps) / over,
        beside=beside + plan.rounds * hidden,
        hidden=hidden,
    )


def _steps_of(plan: Circuit, iteration: int) -> list[str]:
    """In which the parties answer during an iteration."""
    last = f"{refresh.STEP}/{refresh_after(plan, iteration)}"
    asked = [f"{model_gradient.STEP}/{iteration}"] if isinstance(plan, ModelPlan) else []
    return _fixed_first(plan, [*asked, last])


def _fixed_first(plan: Circuit, steps: Sequence[str]) -> list[str]:
    """Steps, and before them those in which their replies are fixed."""
    protocol = protocol_of(plan)
    fixed = (protocol.place(step).fixed for step in steps)
    both = zip(steps, fixed, strict=True)
    return [name for step, is_fixed in both for name in (commit_of(step), step)[not is_fixed :]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """An owner's line to the coordinator; bandwidth [bit / s]; latency: of a round trip [s]."""

    bandwidth: float = math.inf
    latency: float = 0.0

    def seconds(self, num_bytes: int, trips: int) -> float:
        """Of so many messages and their replies."""
        return 8 * num_bytes / self.bandwidth + trips * self.latency


def trips(plan: RunPlan) -> tuple[int, int]:
    """Messages to a party and back: of an iteration in the middle of the run, and of the run."""
    return len(_middle(plan)), sum(1 for _ in exchanges(plan, plan.names[0]))


def iteration_bytes(plan: RunPlan) -> int:
    """Residues that a party moves in an iteration in the middle of the run."""
    middle = _middle(plan)
    return sum(e.blob_bytes for e in exchanges(plan, plan.names[0]) if e.step in middle)


def _middle(plan: RunPlan) -> list[str]:
    if isinstance(plan, GradientPlan):
        return [f"round/{len(plan.queries) // 2}"]
    return _steps_of(cast(Circuit, plan), plan.rounds // 2)


def iteration_seconds(plan: RowsPlan, iteration: int, times: UnitTimes) -> float:
    """The coordinator's circuit, and what it makes of the parties' refresh shares."""
    circuit = circuit_seconds(iterations(plan)[iteration].operations, times)
    return circuit + _Roles(plan, times).join(refresh_after(plan, iteration))


class _Roles:
    """What parties and coordinator compute in a step, beside the circuit."""

    def __init__(self, plan: Circuit, times: UnitTimes) -> None:
        self._plan, self._times = plan, times
        self._first = first_mapped(plan)
        # A simulation's parties share what one party has by itself.
        parties = len(plan.members)
        together = partial(self._gradient, cache=CACHE // parties, sharers=parties)
        self._gradients = [lru_cache(together), lru_cache(partial(self._gradient, cache=CACHE))]

    def _gradient(self, rows: int, is_first: bool, cache: int, sharers: int = 1) -> float:
        t, plan = 0 if is_first else 1, cast(ModelPlan, self._plan)
        return model_cost.gradient_seconds(plan, rows, t, self._times, cache, sharers)

    def party(self, each: Exchanged, rows: int) -> tuple[float, float]:
        """One party's part of a step, and the transport to it: beside the others, and alone.

        What it commits to in one step, and opens in a later one of the same phase, counts as made
        in the later one.
        """
        times, plan = self._times, self._plan
        count, (kind, _, number) = len(each.reply.blobs), each.step.partition("/")
        unit = {
            # The secret key, and both halves of the first round; then two products for the second.
            "keys": times.key_share * 2.5,
            "rotations": times.key_share * count,
            "relinearise": times.key_share * 2,
            "contribute": times.encrypt * count,
            "decrypt": times.decryption_share,
        }
        if kind == refresh.STEP:
            unit[kind] = self._share(int(number), count)
        asked, replied = each.request.size, each.reply.size
        wire = asked * (times.check + times.unpack) + replied * (times.pack + times.sign)
        if kind in ("keys", "contribute"):
            wire += replied * times.sign  # hashed for the commitment as well
        if kind == "public-shares":
            wire += asked * times.add
        wire += unit.get(kind, 0.0) + (asked + replied) * _TRANSPORT_COPIES * times.copy
        if kind == model_gradient.KEYS and int(number) == len(plan.rotation_chunks):
            # Once in a process.
            loading = (len(plan.rotations) + 1) * times.key_join
            return wire + loading / len(plan.members), wire + loading
        if kind != model_gradient.STEP:
            return wire, wire
        beside, alone = (gradient(rows, number == "0") for gradient in self._gradients)
        return wire + beside, wire + alone

    def _share(self, step: int, count: int) -> float:
        times, plan = self._times, self._plan
        if isinstance(plan, ModelPlan):
            return model_cost.share_seconds(plan, step, times)
        share = times.map_share if step >= self._first else times.refresh_share
        return times.read + share * count / 2

    def join(self, step: int) -> float:
        """What the coordinator does with the shares of a refresh, which it reads as one or two.

        Of an encrypted model with the gradients before, too.
        """
        times, plan = self._times, self._plan
        if isinstance(plan, ModelPlan):
            return model_cost.join_seconds(plan, step, times)
        count = plan.refreshes[step]
        if step >= self._first:
            return 2 * times.read + count * times.map_join
        return times.read + count * times.refresh_join

    def reading(self) -> float:
        """What the coordinator takes to have the parties' sums as ciphertexts, one by one."""
        times, plan = self._times, self._plan
        if isinstance(plan, ModelPlan):
            return 0.0
        return num_ciphertexts(plan) * (times.read + 2 * plan.ckks.num_towers * times.load)

    def expansions(self, step: int) -> int:
        """Of each random element of a refresh, in a process with all roles."""
        plan = self._plan
        return model_cost.expansions(plan, step) if isinstance(plan, ModelPlan) else 1

    def once(self, rows: int) -> float:
        """What a party does in the first round alone."""
        plan, cache = self._plan, CACHE // len(self._plan.members)
        if not isinstance(plan, ModelPlan):
            return 0.0
        return model_cost.encoding_seconds(plan, rows, self._times, cache)


# -- memory ---------------------------------------------------------------------------------------


def memory(plan: RunPlan) -> dict[str, int]:
    """Estimated peak resident set of each role [bytes].

    Libraries, plus what stays (evaluation keys, ciphertexts, frames: 8 bytes per residue; rows),
    plus the messages in flight, `_COPIES` of each: one request, one reply, the sum so far. A
    simulation in one process has the libraries once and the rest of all parties.
    """
    flights, alone = Counter[str](), 0
    for each in (one for name in plan.names for one in exchanges(plan, name)):
        flights[each.step] = max(flights[each.step], each.request.size + each.reply.size)
        alone = max(alone, each.blob_bytes)
    frames, kept = _resident(plan) if isinstance(plan, Circuit) else (0, 0)
    own = 8 * max(member.rows for member in plan.members) * plan.num_features
    if isinstance(plan, ModelPlan):
        own += model_cost.keys_bytes(plan) + model_cost.party_bytes(plan)
        own += model_cost.working_bytes(plan)
    return {
        "coordinator": BASE_MEMORY + frames + kept + _COPIES * max(flights.values()),
        "party": BASE_MEMORY + frames + own + _COPIES * alone,
    }


def memory_together(plan: RunPlan) -> int:
    """The same of every role in one process, whose parties answer one after the other [bytes]."""
    parties, every = len(plan.members), list(exchanges(plan, plan.names[0]))
    largest = max(each.blob_bytes for each in every)
    # Every party keeps its last reply for a resend. Rows are encoded after the keys are made.
    keys, own = (
        max((each.reply.size for each in every if (each.phase == "keys") is first), default=0)
        for first in (True, False)
    )
    frames, kept = _resident(plan) if isinstance(plan, Circuit) else (0, 0)
    rows = 8 * plan.num_rows * plan.num_features
    if isinstance(plan, ModelPlan):
        kept += model_cost.keys_bytes(plan) + model_cost.working_bytes(plan)
        own += model_cost.party_bytes(plan, CACHE // parties)
    kept += parties * max(keys, own)
    return BASE_MEMORY + frames + kept + rows + _COPIES * largest


def _resident(plan: Circuit) -> tuple[int, int]:
    """Of a context in every role; of keys and ciphertexts at the coordinator [bytes]."""
    params = plan.ckks
    polynomial = 8 * params.ring_dim
    key, ciphertext = 2 * params.key_rows * polynomial, 2 * params.num_towers * polynomial
    kept = (len(plan.rotations) + 1) * key + num_ciphertexts(plan) * ciphertext
    kept += len(plan.names) * packed(params, params.num_towers)  # shares of the public key
    return 2 * key + 2 * ciphertext, kept
