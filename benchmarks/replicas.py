"""What replicas cost: seconds of a run where everybody has a machine, bytes, memory.

Question: at most 1.3 times the wall clock? Everybody is in this process, one after the other, and
each step's seconds are told apart: C the coordinator's before it, P the slowest owner's own part, R
the slowest replica's. On machines of their own a run takes sum (C + P) without replicas, and with
them sum (C + R + P) where replies come beside a request, sum (max(C, wait + R) + P) where they go
ahead, once the coordinator has computed for `PATIENCE`. What the bytes take is not in it.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from benchmarks import session
from benchmarks.cases import Case
from coordinator.relay import PATIENCE, relaying
from protocols.exchange.relayed import parted
from protocols.steps.replica import Replica
from tests.replicas.deviations import with_replicas
from tests.support.helpers import open_session

SHAPE = Case(name="edin", rows=1253, features=9)


def measure(parties: int, protocol: str, rounds: int, *, secure: bool = True) -> dict[str, Any]:
    """One run of owners with replicas."""
    case = replace(SHAPE, parties=parties, protocol=protocol, rounds=rounds, secure=secure)
    plan = session.plan_of(case)
    shards = session.shards(case, [member.rows for member in plan.members])

    def make_plan(common: dict[str, Any]) -> Any:
        return replace(plan, **{**common, "schema": {**plan.schema, **common["schema"]}})

    run = with_replicas(open_session(make_plan, shards, secure=secure))
    laps = {"coordinator": list[float](), "party": list[float](), "replica": list[float]()}
    followed, relayed, answered = [0.0], [0], [time.perf_counter()]
    follow = Replica.follow

    def timed(self: Replica, *given: Any) -> None:
        started = time.perf_counter()
        try:
            follow(self, *given)
        finally:
            followed[0] = time.perf_counter() - started

    def deliver(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        _ = step
        laps["coordinator"].append(time.perf_counter() - answered[0])
        own, replica = list[float](), list[float]()
        read = 0.0
        for name, data in outgoing.items():
            relayed[0] += sum(map(len, parted(data)[1] or ()))
            followed[0], started = 0.0, time.perf_counter()
            reply = run.parties[name].handle(data)
            replica.append(followed[0])
            own.append(time.perf_counter() - started - followed[0])
            started = time.perf_counter()
            yield name, reply
            read += time.perf_counter() - started
        laps["party"].append(max(own))
        laps["replica"].append(max(replica))
        laps["coordinator"][-1] += read
        answered[0] = time.perf_counter()

    with ExitStack() as held:
        held.enter_context(patch.object(Replica, "follow", timed))
        answered[0] = time.perf_counter()
        run.run(relaying(deliver))
    steps = list(zip(*laps.values(), strict=True))
    alone = sum(c + p for c, p, _ in steps)
    beside = sum(c + p + r for c, p, r in steps)
    ahead = sum(p + (max(c, PATIENCE + r) if c > PATIENCE else c + r) for c, p, r in steps)
    return {
        "protocol": protocol,
        "parties": parties,
        "iterations": rounds,
        **{f"{name}_seconds": round(sum(each), 2) for name, each in laps.items()},
        "seconds_without": round(alone, 2),
        "beside": round(beside / alone, 2),
        "ahead": round(ahead / alone, 2),
        "relayed_bytes_by_party": relayed[0] // parties,
        "peak_memory_of_all": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
