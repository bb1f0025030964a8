"""A whole run, from the enrolment to what everyone is told: every request, given every reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from protocols.exchange.messages import Exchange, to_everyone
from protocols.exchange.transcript import Transcript
from protocols.plan.protocol import FINISH, Watch, protocol_of
from protocols.plan.run_plan import Member, RunPlan
from protocols.steps import agree, finish


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run: the agreed plan and the released weights, shape (d,) or (d, outputs).

    missing: parties that vanished, and others stood in for.
    """

    plan: RunPlan
    weights: NDArray[np.float64]
    missing: tuple[str, ...] = ()


def whole_run(
    party_keys: Mapping[str, str],
    make_plan: Callable[[tuple[Member, ...]], RunPlan],
    transcript: Transcript,
    watch: Callable[[RunPlan], Watch],
) -> Exchange[Outcome]:
    """Every step: yields requests, receives replies; a re-execution drives the same (`replay`).

    party_keys: as for `Coordinator`; transcript: of the run so far; watch: of the agreed plan.
    """
    plan = make_plan((yield from agree.enrol(party_keys)))
    seed, seeds = yield from agree.agree(plan)
    watched, missing = watch(plan), list[str]()

    def on_missing(names: tuple[str, ...]) -> None:
        missing[:] = names
        watched.on_missing(names)

    # Goes on in protocols/: protocol.py of rows/, model/ or sums/.
    released = yield from protocol_of(plan).coordinate(
        plan, seed, seeds, replace(watched, on_missing=on_missing)
    )
    present = tuple(name for name in plan.names if name not in missing)
    yield to_everyone(FINISH, present, finish.told(released, transcript.head))
    return Outcome(plan, released, tuple(missing))
