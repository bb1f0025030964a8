"""What a protocol is: its steps in order, and the coordinator's way through them.

A step is one file: its message, the party's half, the coordinator's half. The party's halves stand
in the protocol's list, `Protocol.steps`. The coordinator's halves are generators: they yield
requests (`messages.Ask`) and are sent the replies. `Protocol.coordinate` joins them, because what a
refresh asks follows from what was computed since the last one. Everything else drives these two:

| driver | drives |
|---|---|
| `coordinator.coordinator` | `coordinate`, over a transport |
| `coordinator.replay`, `coordinator.log` | `coordinate`, on recorded replies |
| `parties.verifier.party` | `steps`, one request after the other |
| `sims.simulation` | both, in one process |
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protocols.errors import PolicyError, ProtocolError
from protocols.exchange import COMMIT, COVERED, commit_of, repeated
from protocols.exchange.messages import Body, Exchange
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS, SECURE_AGGREGATION

if TYPE_CHECKING:
    from protocols.plan.run_plan import RunPlan
from protocols.steps.rounds import Hold

Weights = NDArray[np.float64]
BEFORE, FINISH = ("enrol", "agree", "reveal"), "finish"
"""Steps of every protocol: see `agree`; the last one tells the model."""
ABORT = "abort"
"""No step: tells a party agent that the run is given up."""
PHASES = ("agree", "keys", "encrypt", "train", "refresh", "decrypt")
"""What costs are charged to."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a party is asked in one step; kind, index: the step is called kind/index."""

    kind: str
    index: int
    body: Body


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a protocol.

    name: of its messages; answer(half, request): the party's reply, half: the party's state (see
    `verifier.party_protocol`); phase: what its costs are charged to; leaves: what leaves the
    owner with it, for the person who consents; count(plan): how often it is asked, as name/0,
    name/1, …, None: once, without a number; asked(plan): whether the plan has it at all;
    shows_rows: private data leave their owner here for the first time; repeats: others may repeat
    it without parties that have vanished, where the plan has cover; opens: it decrypts; committed:
    its replies are fixed before any is seen, in a step commit-name of its own; endorsed: everyone
    signs the set of what was fixed as well, and the next step hands that out; silent: nothing
    leaves, so that a repetition fixes nothing either; alike: everyone is asked the same; noisy:
    the owner adds its noise where the plan has privacy; carries(plan, party): what bytes and
    seconds of its messages grow with, one by one: how many keys, shares or ciphertexts they hold,
    or how many others a party works for; empty: each as any other. told, sends, learns: what a
    party is asked with, what it answers, and who learns what of that, in the table of README.md;
    of a reply that is fixed first, of its opening.
    """

    name: str
    answer: Callable[[Any, Request], Body | Hold]
    phase: str
    leaves: str
    count: Callable[[Any], int] | None = None
    asked: Callable[[Any], bool] = lambda plan: True
    shows_rows: bool = False
    repeats: bool = False
    opens: bool = False
    committed: bool = False
    endorsed: bool = True
    silent: bool = False
    alike: bool = True
    noisy: bool = False
    carries: Callable[[Any, int], Sequence[int]] = lambda plan, party: ()
    told: str = "nothing"
    sends: str = "nothing"
    learns: str = "nothing"

    def turns(self, plan: Any) -> Iterator[tuple[str, ...]]:
        """Names of its messages in a run, those that belong together in one."""
        if not self.asked(plan):
            return
        before = (COMMIT,) if self.committed else ()
        ends = [""] if self.count is None else [f"/{k}" for k in range(self.count(plan))]
        for end in ends:
            yield tuple(f"{prefix}{self.name}{end}" for prefix in (*before, ""))


def other_parties(plan: RunPlan, party: int) -> Sequence[int]:
    """All but one: see `Step.carries`."""
    _ = party
    return (len(plan.members) - 1,)


@dataclass(frozen=True, slots=True)
class Place:
    """What a message's name says.

    step: whose reply it is about; opened: name under which that reply is sent, such as
    "cover-refresh/3"; covers: without parties that have vanished; commits: the reply is fixed, and
    not sent yet; fixed: it was, or is to be, before it is sent.
    """

    step: Step
    opened: str
    covers: bool
    commits: bool

    @property
    def fixed(self) -> bool:
        """Whether the reply is committed to before it is sent."""
        return not self.step.silent if self.covers else self.step.committed


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

    def place(self, name: str) -> Place:
        """What a message's name says.

        Raises:
            PolicyError: the protocol has no such step.
        """
        kind, covers, commits = name.partition("/")[0], False, False
        if kind not in self.by_name and kind.startswith(COVERED):
            kind, covers = kind.removeprefix(COVERED), True
        if kind not in self.by_name and kind.startswith(COMMIT):
            kind, commits = kind.removeprefix(COMMIT), True
        if kind not in self.by_name:
            raise PolicyError(f"step {name!r} is none of the protocol {self.name}")
        opened = name.replace(COMMIT, "", 1) if commits else name
        return Place(self.by_name[kind], opened, covers, commits)

    def is_alike(self, name: str) -> bool:
        """Whether everyone is asked the same in a step."""
        return self.place(name).step.alike

    def answer(self, half: Any, name: str, body: Body) -> Body:
        """A party's reply to a step, whose turn it is; half: see `Step`.

        Raises:
            CohortError: it refuses.
        """
        place, rounds = self.place(name), half.rounds
        kind, _, index = place.opened.partition("/")
        request, before = Request(kind, int(index or 0), body), rounds.view.digest
        if place.step.alike:
            rounds.view.note(name, body)
        try:
            if place.fixed and not place.commits:
                opened: Body = rounds.open(body)
                if not place.step.endorsed:
                    rounds.forget()
                return opened
            rounds.confirm(place.opened, body)
            # For missing parties as well, from now on, unless the step is refused.
            take_back = half.stand_in(body) if place.covers else lambda: None
            try:
                reply = place.step.answer(half, request)
                if not place.fixed:
                    assert isinstance(reply, Body)  # noqa: S101 (kept replies are committed to)
                    return reply
                found: Body = rounds.commit(place.opened, reply, half.missing, before, body)
                return found
            except BaseException:
                take_back()
                raise
        except BaseException:
            rounds.view.digest = before
            raise

    def sequence(self, plan: Any, lost: Collection[str] = ()) -> tuple[str, ...]:
        """Every step of a run, the common ones included; lost: steps with replies that never came.

        What a lost step fixed is not opened: the repetition comes in its place.
        """
        turns = [turn for step in self.steps for turn in step.turns(plan)]
        if self.rounds:
            taken = [list(self.by_name[name].turns(plan)) for name in self.rounds]
            first = turns.index(taken[0][0])
            in_turn = [turn for round_ in zip(*taken, strict=True) for turn in round_]
            turns[first : first + len(in_turn)] = in_turn
        own = list[str]()
        for turn in turns:
            for name in turn:
                own.append(name)
                if name in lost and (again := self.repetition(plan, name)):
                    own += again
                    break
        return (*BEFORE, *own, FINISH)

    def shows_rows(self, name: str) -> bool:
        """Whether private data leave their owner in this step for the first time."""
        try:
            place = self.place(name)
        except PolicyError:
            return False
        first = name.partition("/")[2] in ("", "0") and not place.covers
        return first and place.step.shows_rows and place.commits == place.step.committed

    def repetition(self, plan: Any, name: str) -> tuple[str, ...]:
        """Steps that repeat this one without missing parties; none where none may."""
        try:
            place = self.place(name)
        except PolicyError:
            return ()
        if place.covers or not place.step.repeats or plan.cover is None:
            return ()
        again = COVERED + place.opened
        return (again,) if place.step.silent else (commit_of(again), again)


# -- by name --------------------------------------------------------------------------------------

PROTOCOLS: Mapping[str, str] = {
    ENCRYPTED_ROWS: "protocols.rows.protocol:PROTOCOL",
    ENCRYPTED_MODEL: "protocols.model.protocol:PROTOCOL",
    SECURE_AGGREGATION: "protocols.sums.protocol:PROTOCOL",
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
    names = (kind, repeated(kind), repeated(kind).removeprefix(COMMIT))
    return steps[next((name for name in names if name in steps), kind)].phase


def may_repeat(step: str) -> bool:
    """Whether others may repeat a step of any protocol without parties that have vanished."""
    steps, kind = _steps(), step.partition("/")[0]
    found = steps.get(kind) or steps.get(kind.removeprefix(COMMIT))
    return found is not None and found.repeats


@cache
def _steps() -> Mapping[str, Step]:
    """Of all protocols by name."""
    return {step.name: step for name in PROTOCOLS for step in protocol(name).steps}
