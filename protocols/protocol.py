"""What a protocol is: its steps in order, and the coordinator's way through them.

A step is one file: its message, the party's half, the coordinator's half. The party's halves stand
in the protocol's list, `Protocol.steps`. The coordinator's halves are generators: they yield
requests (`messages.Ask`) and are sent the replies. `Protocol.coordinate` joins them, because what a
refresh asks follows from what was computed since the last one. Everything else drives these two:

| driver | drives |
|---|---|
| `coordinator.coordinator` | `coordinate`, over a transport |
| `coordinator.replay`, `coordinator.log` | `coordinate`, on recorded replies |
| `parties.party` | `steps`, one request after the other |
| `sims.simulation` | both, in one process |
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protocols.errors import PolicyError, ProtocolError
from protocols.messages import Body, Exchange
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS, SECURE_AGGREGATION

if TYPE_CHECKING:
    from protocols.plan import RunPlan

Weights = NDArray[np.float64]
BEFORE, FINISH = ("enrol", "agree", "reveal"), "finish"
"""Steps of every protocol: see `agree`; the last one tells the model."""
ABORT = "abort"
"""No step: tells a party agent that the run is given up."""
PHASES = ("agree", "keys", "encrypt", "train", "refresh", "decrypt")
"""What costs are charged to."""
COVERED = "cover-"
"""Prefix of a step that repeats another one without the parties that have vanished."""


def repeated(step: str) -> str:
    """The step that `step` repeats, itself if it repeats none."""
    return step.removeprefix(COVERED)


@dataclass(frozen=True, slots=True)
class Request:
    """What a party is asked in one step; kind, index: the step is called kind/index."""

    kind: str
    index: int
    body: Body

    @classmethod
    def of(cls, step: str, body: Body) -> Request:
        """Of a step's whole name."""
        kind, _, index = step.partition("/")
        return cls(kind, int(index or 0), body)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a protocol.

    name: of its messages; answer(half, request): the party's reply, half: the party's state (see
    `parties.party_protocol`); phase: what its costs are charged to; leaves: what leaves the
    owner with it, for the person who consents; count(plan): how often it is asked, as name/0,
    name/1, …, None: once, without a number; asked(plan): whether the plan has it at all;
    shows_rows: private data leave their owner here for the first time; repeats: others may repeat
    it without parties that have vanished, where the plan has cover; opens: it decrypts.
    """

    name: str
    answer: Callable[[Any, Request], Body]
    phase: str
    leaves: str
    count: Callable[[Any], int] | None = None
    asked: Callable[[Any], bool] = lambda plan: True
    shows_rows: bool = False
    repeats: bool = False
    opens: bool = False

    def names(self, plan: Any) -> Iterator[str]:
        """Of its messages in a run."""
        if not self.asked(plan):
            return
        if self.count is None:
            yield self.name
            return
        for k in range(self.count(plan)):
            yield f"{self.name}/{k}"


@dataclass(frozen=True, slots=True)
class Watch:
    """Called as a run goes on: on_phase(phase), on_iteration(t), on_missing(all covered parties).

    Of the secure-aggregation protocol: start: public weights to start from, zeros by default;
    on_weights(t, w): every iterate, which is public there. Under threshold CKKS: on_refresh(before,
    after): the vectors of each refresh, as the coordinator has them; evidence: of the second moment
    that rows are whitened by, `second_moment.Evidence`; engine: workers for groups of rows,
    `workers.Engine`.
    """

    on_phase: Callable[[str], None] = lambda phase: None
    on_iteration: Callable[[int], None] = lambda t: None
    start: Weights | None = None
    on_weights: Callable[[int, Weights], None] = lambda t, w: None
    on_missing: Callable[[tuple[str, ...]], None] = lambda names: None
    on_refresh: Callable[[Sequence[Any], Sequence[Any]], None] = lambda before, after: None
    evidence: Any = None
    engine: Any = None


# (plan, joint seed, every party's seed as hexadecimal, watch) -> the released weights
Coordinate = Callable[[Any, bytes, Mapping[str, str], Watch], Exchange[Weights]]


@dataclass(frozen=True, slots=True)
class Protocol:
    """Steps between the agreement and `finish`, in the only order in which parties answer.

    name: as users know it; coordinate: everything from the agreement to the released weights;
    release_error(plan): std of the noise that opening adds to each of them; rounds: steps that take
    turns, name/0 of each, then name/1.
    """

    name: str
    steps: tuple[Step, ...]
    coordinate: Coordinate
    release_error: Callable[[Any], float] = lambda plan: 0.0
    rounds: tuple[str, ...] = ()
    by_name: Mapping[str, Step] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {step.name: step for step in self.steps})

    def step(self, name: str) -> Step:
        """The step of a message, the one that is repeated for a repetition.

        Raises:
            PolicyError: there is none.
        """
        kind = name.partition("/")[0]
        for known in (kind, kind.removeprefix(COVERED)):
            if known in self.by_name:
                return self.by_name[known]
        raise PolicyError(f"step {name!r} is none of the protocol {self.name}")

    def answer(self, half: Any, name: str, body: Body) -> Body:
        """A party's reply to a step, whose turn it is; half: see `Step`.

        Raises:
            CohortError: it refuses.
        """
        step, request = self.step(name), Request.of(name, body)
        # For missing parties as well, from now on, unless the step is refused.
        take_back = half.stand_in(body) if request.kind != step.name else lambda: None
        try:
            return step.answer(half, request)
        except Exception:
            take_back()
            raise

    def sequence(self, plan: Any) -> tuple[str, ...]:
        """Every step of a run, the common ones included."""
        own = [name for step in self.steps for name in step.names(plan)]
        if self.rounds:
            turns = [self.by_name[name].names(plan) for name in self.rounds]
            first = own.index(f"{self.rounds[0]}/0")
            taken = [name for turn in zip(*turns, strict=True) for name in turn]
            own[first : first + len(taken)] = taken
        return (*BEFORE, *own, FINISH)

    def shows_rows(self, name: str) -> bool:
        """Whether private data leave their owner in this step for the first time."""
        kind, _, index = name.partition("/")
        return index in ("", "0") and kind in self.by_name and self.by_name[kind].shows_rows

    def repetition(self, plan: Any, name: str) -> str | None:
        """Name of the step that repeats this one without missing parties; None where none may."""
        step = self.by_name.get(name.partition("/")[0])
        covers = step is not None and step.repeats and plan.cover is not None
        return COVERED + name if covers else None


# -- by name --------------------------------------------------------------------------------------

PROTOCOLS: Mapping[str, str] = {
    ENCRYPTED_ROWS: "protocols.encrypted_rows:PROTOCOL",
    ENCRYPTED_MODEL: "protocols.encrypted_model:PROTOCOL",
    SECURE_AGGREGATION: "protocols.secure_aggregation:PROTOCOL",
}
"""By name; the code of one is loaded when a plan names it."""
_COMMON = {**dict.fromkeys(BEFORE, "agree"), FINISH: "decrypt"}
"""Phases of the steps that every protocol has."""


def protocol(name: str) -> Protocol:
    """The protocol of this name.

    Raises:
        ProtocolError: there is none.
    """
    if name not in PROTOCOLS:
        raise ProtocolError(f"protocol={name!r} is not one of {', '.join(PROTOCOLS)}")
    found: Protocol = pkgutil.resolve_name(PROTOCOLS[name])
    return found


def protocol_of(plan: RunPlan) -> Protocol:
    """The protocol of a plan, in the file of its name."""
    return protocol(plan.protocol)


def sequence(plan: RunPlan) -> tuple[str, ...]:
    """Every step of a run, in the only order in which a party answers."""
    return protocol_of(plan).sequence(plan)


def phase_of(step: str) -> str:
    """Phase that a step of any protocol, such as "refresh/3", is charged to.

    Raises:
        KeyError: no protocol has it.
    """
    kind = step.partition("/")[0]
    if kind in _COMMON:
        return _COMMON[kind]
    steps = _steps()
    return steps[kind if kind in steps else repeated(kind)].phase


def may_repeat(step: str) -> bool:
    """Whether others may repeat a step of any protocol without parties that have vanished."""
    found = _steps().get(step.partition("/")[0])
    return found is not None and found.repeats


@cache
def _steps() -> Mapping[str, Step]:
    """Of all protocols by name."""
    return {step.name: step for name in PROTOCOLS for step in protocol(name).steps}
