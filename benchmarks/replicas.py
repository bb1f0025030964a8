"""What replicas cost: seconds of a run where everybody has a machine, bytes, memory.

Question: at most 1.3 times as long, were each role on a machine of two cores? Everybody is in this
process, one after the other, and each step's seconds are told apart: C the coordinator's before it,
from the last reply on; P the slowest owner's own part; R the slowest replica's; M and N what
coordinator and replica do while owners are at theirs. On machines of their own, of two cores, a run
takes sum (C + max(P, M)) without replicas. With them it takes sum (C + R + max(P, M, N)) where
replies come beside a request, and max(C, wait + R) in the place of C + R where they go ahead: at
once where they are many, else once the coordinator has computed for `PATIENCE`. What the bytes take
is not in it.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any
from unittest.mock import patch

from benchmarks import session
from benchmarks.cases import Case
from coordinator.relay import PATIENCE, relaying
from protocols import exchange
from protocols.exchange.messages import Ask
from protocols.exchange.relayed import PART_BYTES, parted
from protocols.steps.replica import Replica
from tests.replicas.deviations import with_replicas
from tests.support.helpers import open_session
from tests.support.sessions import driven

ROLES = ("coordinator", "party", "replica")
SHAPE = Case(name="edin", rows=1253, features=9)


def measure(parties: int, protocol: str, rounds: int, *, secure: bool = True) -> dict[str, Any]:
    """One run of owners with replicas."""
    case = replace(SHAPE, parties=parties, protocol=protocol, rounds=rounds, secure=secure)
    plan = session.plan_of(case)
    shards = session.shards(case, [member.rows for member in plan.members])

    def make_plan(common: dict[str, Any]) -> Any:
        return replace(plan, **{**common, "schema": {**plan.schema, **common["schema"]}})

    run = with_replicas(open_session(make_plan, shards, secure=secure))
    laps = {name: list[float]() for name in (*ROLES, "read", "wait")}
    beside = {"coordinator": dict[int, float](), "replica": dict[int, float]()}
    followed, many, relayed, answered = [0.0], [0], [0], [time.perf_counter()]
    follow, digests = Replica.follow, dict[str, Any]()

    @contextmanager
    def as_on_its_own(name: str) -> Iterator[None]:
        """With the digests that its machine has made, not those of everybody."""
        if name not in digests:
            digests[name] = lru_cache(maxsize=4)(exchange._digest.__wrapped__)
        with patch.object(exchange, "_digest", digests[name]):
            yield

    def meanwhile(role: str, work: Callable[[], object]) -> None:
        started, step = time.perf_counter(), len(laps["party"])
        work()
        took = time.perf_counter() - started
        beside[role][step] = max(took, beside[role].get(step, 0.0))

    def timed(self: Replica, *given: Any) -> None:
        started = time.perf_counter()
        follow(self, *given)
        followed[0] = time.perf_counter() - started
        if self._asked.meanwhile:
            meanwhile("replica", self._asked.meanwhile)

    def meet(ask: Ask) -> Any:
        work = ask.meanwhile
        own = partial(meanwhile, "coordinator", work) if work else None
        return (yield replace(ask, meanwhile=own))

    def deliver(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        _, done = step, beside["coordinator"].get(len(laps["party"]), 0.0)
        laps["coordinator"].append(time.perf_counter() - answered[0] - done)
        own, replica, read = list[float](), list[float](), 0.0
        for name, data in outgoing.items():
            size = sum(map(len, parted(data)[1] or ()))
            many[0], relayed[0] = max(many[0], size), relayed[0] + size
            followed[0], started = 0.0, time.perf_counter()
            with as_on_its_own(name):
                reply = run.parties[name].handle(data)
            replica.append(followed[0])
            at_side = beside["replica"].get(len(laps["party"]), 0.0)
            own.append(time.perf_counter() - started - followed[0] - at_side)
            started = time.perf_counter()
            yield name, reply
            read += time.perf_counter() - started
        laps["wait"].append(0.0 if size > PART_BYTES else PATIENCE)
        laps["read"].append(read)
        laps["party"].append(max(own))
        laps["replica"].append(max(replica))
        answered[0] = time.perf_counter()

    honest = run.coordinator.protocol
    run.coordinator.protocol = lambda: driven(honest(), meet)  # type: ignore[method-assign]
    with patch.object(Replica, "follow", timed):
        answered[0] = time.perf_counter()
        run.run(relaying(deliver))
    # A replica reads the replies to the step before as well.
    laps["coordinator"] = [
        c + r for c, r in zip(laps["coordinator"], [0.0, *laps["read"]], strict=False)
    ]
    busy = [max(p, beside["coordinator"].get(k, 0.0)) for k, p in enumerate(laps["party"])]
    owners = [max(p, beside["replica"].get(k, 0.0)) for k, p in enumerate(busy)]
    steps = list(zip(laps["coordinator"], laps["replica"], laps["wait"], strict=True))
    alone = sum(busy) + sum(laps["coordinator"])
    with_request = sum(owners) + sum(c + r for c, r, _ in steps)
    ahead = sum(owners) + sum(max(c, wait + r) if c > wait else c + r for c, r, wait in steps)
    return {
        "protocol": protocol,
        "parties": parties,
        "iterations": rounds,
        **{f"{name}_seconds": round(sum(laps[name]), 2) for name in ROLES},
        **{f"{name}_meanwhile": round(sum(each.values()), 2) for name, each in beside.items()},
        "seconds_without": round(alone, 2),
        "beside": round(with_request / alone, 2),
        "ahead": round(ahead / alone, 2),
        "relayed_bytes_by_party": relayed[0] // parties,
        "of_the_largest_step": many[0],
        "peak_memory_of_all": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
