"""What a run does, counted from its plan alone: operations of coordinator and parties.

Operations are exact: circuits run on counters, those of each kind of plan in a module beside it
(`kinds.Kind.counts`): iterations(plan), num_ciphertexts(plan), and, where packing is chosen,
described(plan), cheapest_layout(plan, bandwidth). `units` puts operations on one scale, by which
layouts are compared and rehearsals carried over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TypeVar

from protocols.ckks import CkksParameters
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.rows import REFRESH_LEVEL
from protocols.ckks.circuits.tally import CountingContext, IterationTally, Shadow, Tally
from protocols.ckks.circuits.work import work
from protocols.exchange.messages import Exchange
from protocols.plan.circuit_plan import CircuitPlan
from protocols.plan.kinds import circuit_kind_of

Plan = TypeVar("Plan", bound=CircuitPlan)
BANDWIDTH = 1e9
"""Of an owner's line, where nobody says otherwise [bit / s]."""
# What a ciphertext's refresh counts in key switches at level 0. Share and join take three of them,
# 48 and 37 ms of one thread at ring 2^15; it counts as seven, because each also moves 3.7 MB per
# party, and who is far away waits for these longer than for the arithmetic.
REFRESH_SWITCHES = 7


def _of(plan: CircuitPlan) -> Any:
    return import_module(circuit_kind_of(plan).counts)


def iterations(plan: CircuitPlan) -> tuple[IterationTally, ...]:
    """Operations of every iteration; but on rows, what comes before the first is part of it."""
    found: tuple[IterationTally, ...] = _of(plan).iterations(plan)
    return found


def num_ciphertexts(plan: CircuitPlan) -> int:
    """Of all parties, summed; of an encrypted model's coordinator, those of one refresh."""
    found: int = _of(plan).num_ciphertexts(plan)
    return found


def described(plan: CircuitPlan) -> dict[str, Any]:
    """Polynomial and packing, where they are chosen, for `cohort plan`; ckks: beside the ring's."""
    found: dict[str, Any] = getattr(_of(plan), "described", lambda plan: {})(plan)
    return found


def cheapest_layout(plan: Plan, bandwidth: float = BANDWIDTH) -> Plan:
    """The plan with the features per ciphertext that make an iteration cheapest, or nearly so.

    bandwidth: of an owner's line [bit / s], which counts where bytes differ much: of an encrypted
    model. The choice depends on the plan alone, not on a machine, so that whoever makes the plan
    makes the same.
    """
    found: Plan = _of(plan).cheapest_layout(plan, bandwidth)
    return found


def iteration_work(plan: CircuitPlan) -> float:
    """The coordinator's in an iteration in the middle of the run, and its wait for refresh shares.

    See `work.Work.units`.
    """
    params, middle = plan.ckks, iterations(plan)[plan.rounds // 2]
    switch = work("rotate", params, 0).units(params.ring_dim)
    return units(middle.operations, params) + REFRESH_SWITCHES * switch * middle.refreshed


def units(operations: Tally, params: CkksParameters) -> float:
    """Of `work.Work.units`."""
    return sum(
        count * work(name, params, level).units(params.ring_dim)
        for (name, level), count in operations.items()
    )


def counted(plan: CircuitPlan, shadows: Callable[[Evaluator], Any]) -> tuple[IterationTally, ...]:
    """The circuit, run on counters; what follows the last iteration is part of it.

    shadows: what stands in for the parties' ciphertexts, summed.
    """
    circuit, context = circuit_kind_of(plan).circuit(plan), CountingContext(plan.ckks)
    evaluator = circuit.evaluator(context)
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

    list(circuit.train(evaluator, shadows(evaluator), fresh, on_iteration))
    rest = Counter(found[-1].operations)
    rest.update(context.take())
    found[-1] = IterationTally(rest, found[-1].refreshed + sum(carried[done:]))
    return tuple(found)


def first_mapped(plan: CircuitPlan) -> int:
    """The first refresh that goes through a map; all after it do. Their number if none does."""
    steps = range(len(plan.refreshes))
    return next((step for step in steps if None not in plan.column_maps(step)), len(steps))
