"""What a plan will take, carried over from its rehearsal by counts that the plan itself gives.

Every step of the plan has one of its kind in the rehearsal: the first, the second …, the last, and
for all others the last but one. Its bytes and seconds grow with what its messages carry
(`Step.carries`) and with the parties, the coordinator's circuit with its operations.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ciphercohort.planning.rehearsed import (
    ROUNDS,
    Rehearsal,
    Said,
    Trip,
    cached,
    fingerprint,
    rehearsed,
    shortened,
)
from protocols.costs.counts import iterations, units
from protocols.exchange import COMMIT, commit_of
from protocols.exchange.messages import MAGIC, SIGNATURE_BYTES
from protocols.model import gradient
from protocols.model.counts import party_tally
from protocols.model.plan import ModelPlan
from protocols.names import COORDINATOR, UNDER_CKKS
from protocols.plan.circuit_plan import CircuitPlan
from protocols.plan.protocol import BEFORE, FINISH, PHASES, phase_of, protocol_of
from protocols.plan.run_plan import RunPlan
from protocols.privacy.calibrate.calibration import Calibration
from protocols.steps import second_moment
from protocols.steps.locks import WORDS

Floats = NDArray[np.float64]
_HEX = "0" * 64
_GRADIENT = commit_of(f"{gradient.STEP}/")
"""In which owners of an encrypted model's rows work, and the coordinator beside them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """An owner's line to the coordinator; bandwidth [bit / s]; latency: of a round trip [s]."""

    bandwidth: float = math.inf
    latency: float = 0.0

    def seconds(self, num_bytes: int, trips: int) -> float:
        """Of so many messages and their replies."""
        return 8 * num_bytes / self.bandwidth + trips * self.latency


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """Predicted wall clock.

    by_phase: as a run's costs state them; iteration: the coordinator's own work in one iteration in
    the middle of the run, of Gram sums in the mean of all; waiting: what all parties do in it, one
    after the other; slowest: the slowest of them; beside: of the whole run, what the others do
    while the slowest works, where each has a machine; hidden: of an iteration, the coordinator's
    work while parties are at theirs.
    """

    by_phase: dict[str, float]
    iteration: float
    waiting: float
    slowest: float
    beside: float
    hidden: float = 0.0

    @property
    def total(self) -> float:
        """All phases, every role in turn, without loading libraries and data."""
        return sum(self.by_phase.values())

    @property
    def everybody(self) -> float:
        """An iteration, every role in turn."""
        return self.iteration + self.waiting

    @property
    def path(self) -> float:
        """An iteration of the slowest party and the coordinator."""
        return self.iteration + self.slowest - self.hidden


@dataclass(frozen=True)
class Predicted:
    """A plan and its rehearsal; before: the run that has to come first."""

    plan: RunPlan
    rehearsal: Rehearsal
    before: Predicted | None = None

    @cached_property
    def played(self) -> RunPlan:
        """The plan of the rehearsal."""
        return self.rehearsal.played

    @cached_property
    def steps(self) -> dict[str, Trip | None]:
        """Of the plan, in order, and what stands for each; None: nothing was played."""
        by_name = {trip.step: trip for trip in self.rehearsal.trips}
        names = protocol_of(self.plan).sequence(self.plan)
        due, held = (Counter(map(_kind, each)) for each in (names, by_name))
        for kind in (kind for kind, count in held.items() if count > ROUNDS):
            inner = [by_name[f"{kind}/{k}"] for k in range(2, held[kind] - 1)]
            by_name[inner[-1].step] = _mean(inner)

        def like(name: str) -> Trip | None:
            kind, _, index = name.partition("/")
            k, last = int(index or 0), held[kind] - 1
            found = last if k == due[kind] - 1 else min(k, max(0, last - 1))
            return by_name.get(f"{kind}/{found}" if index else kind)

        return {name: like(name) for name in names}

    @cached_property
    def middle(self) -> dict[str, float]:
        """Steps of an iteration in the middle of the run; below 1: in so many of them."""
        rounds = self.plan.rounds
        names = [name for name in self.steps if phase_of(name) in ("train", "refresh")]
        count = Counter(map(_kind, names))

        def share(name: str) -> float:
            number = count[_kind(name)]
            if number < rounds:
                return 1 / rounds
            return float(_index(name) == number - rounds + rounds // 2)

        return {name: share(name) for name in names if share(name)}

    @property
    def trips(self) -> tuple[int, int]:
        """Messages to a party and back: of an iteration, and of the run."""
        return round(sum(self.middle.values())), len(self.steps)

    @cached_property
    def _carried(self) -> dict[tuple[bool, str, int], Sequence[int]]:
        """What was asked of `Step.carries`."""
        return {}

    def _carries(self, name: str, party: int, *, was_played: bool = False) -> int:
        kind, key = _kind(name), (was_played, _kind(name), party)
        if kind in (*BEFORE, FINISH):
            return 1
        if key not in self._carried:
            plan = self.played if was_played else self.plan
            self._carried[key] = protocol_of(plan).place(name).step.carries(plan, party)
        found = self._carried[key]
        return found[_index(name)] if found else 1

    @cached_property
    def _size(self) -> float:
        """Of a polynomial, over that of the rehearsal: of settings that are only compared."""
        if self.plan.protocol not in UNDER_CKKS:
            return 1.0
        own, was = (cast(CircuitPlan, plan).ckks for plan in (self.plan, self.played))
        return own.num_towers * own.ring_dim / (was.num_towers * was.ring_dim)

    @property
    def costs(self) -> tuple[float, int]:
        """Seconds and bytes of the busiest party, with the run before."""
        seconds, num_bytes = self.before.costs if self.before else (0.0, 0)
        return seconds + self.seconds.total, num_bytes + sum(self.bytes_per_party.values())

    # -- bytes --------------------------------------------------------------------------------

    @cached_property
    def bytes_by_party(self) -> dict[str, dict[str, int]]:
        """Wire bytes of each party in both directions, by party and phase."""
        alike, found = dict[Any, dict[str, int]](), dict[str, dict[str, int]]()
        for party, member in enumerate(self.plan.members):
            like = self._like(party)
            if like not in alike:
                sizes = {name: self._step_bytes(name, party) for name in self.steps}
                alike[like] = {
                    phase: sum(size for name, size in sizes.items() if phase_of(name) == phase)
                    for phase in PHASES
                }
            found[member.name] = alike[like]
        return found

    @property
    def bytes_per_party(self) -> dict[str, int]:
        """Largest party's, by phase; as a run's costs state them."""
        every = self.bytes_by_party.values()
        return {phase: max(by_phase[phase] for by_phase in every) for phase in PHASES}

    @property
    def iteration_bytes(self) -> int:
        """Of a party, in an iteration in the middle of the run."""
        return round(sum(share * self._step_bytes(n, 0) for n, share in self.middle.items()))

    def _like(self, party: int) -> tuple[int, ...]:
        """What the sizes of a party's messages follow from."""
        member, held = self.plan.members[party], tuple(self._held(party))
        return len(member.name), len(str(member.rows)), len(held), len(json.dumps(held))

    @cached_property
    def replica(self) -> tuple[float, int]:
        """What a replica adds at an owner: seconds of computing, and bytes of others' replies."""
        stages = (self._stage(name, trip) for name, trip in self.steps.items() if trip)
        sent = dict[tuple[int, ...], int]()
        for party in self._parties:
            if (like := self._like(party)) not in sent:
                sizes = (self.reply_bytes(name, party) for name in self.steps if name != FINISH)
                sent[like] = sum(sizes)
        every = [sent[self._like(party)] for party in self._parties]
        return sum(own + reading for own, reading, *_ in stages), sum(every) - min(every)

    def reply_bytes(self, step: str, party: int) -> int:
        """Of a party's reply to a step."""
        trip = self.steps[step]
        return self._message(step, trip.replied, party, is_reply=True) if trip else 0

    @property
    def _parties(self) -> range:
        return range(len(self.plan.members))

    def _held(self, party: int) -> Iterable[int]:
        layout: Any = getattr(self.plan, "layout", None)
        return layout.ciphertexts_of(party) if hasattr(layout, "ciphertexts_of") else ()

    def _step_bytes(self, name: str, party: int) -> int:
        trip = self.steps[name]
        asked, replied = (trip.asked, trip.replied) if trip else (self._evidence, Said(meta={}))
        asking = self._message(name, asked, party, is_reply=False)
        return asking + self._message(name, replied, party, is_reply=True)

    @cached_property
    def _evidence(self) -> Said:
        """What owners are shown of the run before: see `second_moment.Evidence`."""
        if self.before is None:
            return Said(meta={})
        first = self.before
        sizes = (first.reply_bytes(step, p) for step in second_moment.SHOWN for p in first._parties)
        reveal = first.steps["reveal"]
        seeds = dict.fromkeys(first.plan.names, reveal.replied.meta["seed"] if reveal else "")
        return Said(meta={"plan": first.plan.to_dict(), "seeds": seeds}, blobs=tuple(sizes))

    def _message(self, name: str, said: Said, party: int, *, is_reply: bool) -> int:
        """Length of a message as `messages.encode` frames it."""
        blobs, trip = said.blobs, self.steps[name]
        before = self._carries(trip.step, 0, was_played=True) if trip else 0
        if before and len(blobs) % before == 0:
            blobs = blobs[: len(blobs) // before] * self._carries(name, party)
        if self._size != 1:
            blobs = tuple(round(self._size * size) for size in blobs)
        ends = (self.plan.names[party], COORDINATOR)
        header = {
            "session": self.plan.session,
            "step": name,
            "sender": ends[not is_reply],
            "recipient": ends[is_reply],
            "answers": _HEX if is_reply else "",
            "seen": _HEX if is_reply else "",
            "meta": self._meta(name, said, party),
            "blobs": [(size, _HEX) for size in blobs],
        }
        head = len(json.dumps(header, separators=(",", ":")))
        return len(MAGIC) + 4 + head + SIGNATURE_BYTES + sum(blobs)

    def _meta(self, name: str, said: Said, party: int) -> dict[str, Any]:
        """Public fields, with this plan's own in their places."""
        plan: Any = self.plan
        names, played = plan.names, set(self.played.names)
        own: dict[str, Any] = {
            "indices": lambda: plan.rotation_chunks[_index(name)],
            "ciphertexts": lambda: list(self._held(party)),
            "others": lambda: dict.fromkeys(plan.member_chunks[_index(name)], [_HEX] * 2),
            WORDS: lambda: {n: _HEX for n in names if n != names[party]},
        }

        def grown(value: Any) -> Any:
            if not isinstance(value, dict):
                return value
            if value and value.keys() == played:
                return dict.fromkeys(names, next(iter(value.values())))
            return {key: own[key]() if key in own else grown(v) for key, v in value.items()}

        found: dict[str, Any] = grown(dict(said.meta))
        if name in BEFORE and "rows" in found:
            found["rows"] = plan.members[party].rows
        if name in BEFORE and isinstance(found.get("plan"), dict):
            found["plan"] = plan.to_dict()
        return found

    # -- seconds ------------------------------------------------------------------------------

    @cached_property
    def seconds(self) -> Seconds:
        """Of the run."""
        found = dict.fromkeys(PHASES, 0.0)
        middle = dict.fromkeys(("iteration", "waiting", "slowest", "hidden"), 0.0)
        charged, beside = "agree", 0.0
        for name, trip in self.steps.items():
            if trip is None:
                continue
            own, reading, waiting, slowest = self._stage(name, trip)
            phase = phase_of(name)
            found[charged] += own
            found[phase] += reading + waiting
            # As the coordinator charges its own work.
            charged = "train" if phase in ("refresh", "encrypt") else phase
            hidden = min(own, slowest) if name.startswith(_GRADIENT) else 0.0
            beside += waiting - slowest + hidden
            parts = zip(middle, (own + reading, waiting, slowest, hidden), strict=True)
            for key, value in parts:
                middle[key] += self.middle.get(name, 0.0) * value
        return Seconds(by_phase=found, beside=beside, **middle)

    def _stage(self, name: str, trip: Trip) -> tuple[float, float, float, float]:
        """Of a step: the coordinator's before it, and in reading; all parties'; the slowest's."""
        before = self._carries(trip.step, 0, was_played=True) or 1
        grown = np.array([self._carries(name, p) / before for p in self._parties])
        if name.startswith(_GRADIENT) and self.plan.gathered == "gradients":
            grown = self._gradients
        elif self._size != 1:
            grown = grown * self._size
        waits, apart = trip.waits, self.rehearsal.apart
        here = waits[:-1] if apart else waits
        # Whoever is first in a process makes what all others share.
        further = float(np.mean(here[1:])) if len(here) > 1 else here[0]
        waiting = here[0] * grown[0] + further * grown[1:].sum()
        slowest = (waits[-1] if apart else max(waits)) * grown.max()
        is_circuit = self.plan.gathered == "copies" and name.startswith(f"{COMMIT}refresh")
        own = trip.own * (self._work if is_circuit else self._size)
        return own, trip.reading * grown.sum(), waiting, slowest

    @cached_property
    def _work(self) -> float:
        """Operations of the coordinator's circuit in an iteration, over those that were played."""
        plans = [cast(CircuitPlan, plan) for plan in (self.plan, self.played)]
        own, played = (
            units(iterations(plan)[plan.rounds // 2].operations, plan.ckks) for plan in plans
        )
        return own / played

    @cached_property
    def _gradients(self) -> Floats:
        """Operations of every party's encrypted gradient, over those of a party that was played."""
        plans = [cast(ModelPlan, plan) for plan in (self.plan, self.played)]
        played, *own = (
            units(party_tally(plan).of(plan.layout.groups_of(plan.taken(rows))), plan.ckks)
            for plan, rows in (
                (plans[1], plans[1].members[0].rows),
                *((plans[0], member.rows) for member in plans[0].members),
            )
        )
        return np.array(own) / played

    # -- memory -------------------------------------------------------------------------------

    @cached_property
    def memory(self) -> dict[str, int]:
        """Largest resident set of each role alone, and of everybody in one process [bytes].

        What was played, and for every further party its rows and its last reply, which it keeps.
        The coordinator's is at most that of one process without what one of the parties takes.
        """
        played = self.rehearsal
        kept = max(sum(trip.replied.blobs) for trip in played.trips if trip.step != FINISH)
        kept += 8 * self.plan.num_features * max(m.rows for m in self.played.members)
        here = len(self.played.members) - played.apart
        together = played.together + max(0, len(self.plan.members) - here) * kept
        party = played.alone or played.together
        return {
            "coordinator": max(played.loaded, played.together - (party - played.loaded)),
            "party": party,
            "together": together,
        }


def _mean(trips: Sequence[Trip]) -> Trip:
    """The last of them, with the mean of all seconds."""
    own, reading = np.mean([(trip.own, trip.reading) for trip in trips], axis=0).tolist()
    waits = tuple(np.mean([trip.waits for trip in trips], axis=0).tolist())
    return replace(trips[-1], own=own, waits=waits, reading=reading)


def _kind(name: str) -> str:
    return name.partition("/")[0]


def _index(name: str) -> int:
    return int(name.partition("/")[2] or 0)


# -- of a calibrated run --------------------------------------------------------------------------

Find = Callable[[RunPlan], Rehearsal | None]


def predict(found: Calibration, find: Find) -> Predicted | None:
    """The run and the one before it, from the rehearsals that are found; None: one is not."""
    own, before = find(found.template), None
    if found.first is not None:
        first = find(found.first)
        before = Predicted(found.first, first) if first else None
        own = own if before else None
    return Predicted(found.template, own, before) if own else None


def played(again: bool = False, told: bool = False) -> Find:
    """Whatever it is asked for, once: see `rehearsed`."""
    done = dict[str, Rehearsal]()

    def find(plan: RunPlan) -> Rehearsal:
        name = fingerprint(shortened(plan))
        if name not in done:
            done[name] = rehearsed(plan, again=again, told=told)
        return done[name]

    return find


def known(plan: RunPlan) -> Rehearsal | None:
    """From the cache alone."""
    return cached(shortened(plan))


def like(told: bool = False) -> Find:
    """One that is known, or that of the first plan of the same kind, which is played."""
    first = dict[str, Rehearsal]()

    def find(plan: RunPlan) -> Rehearsal:
        found = known(plan) or first.get(plan.kind)
        if found is None:
            found = first[plan.kind] = rehearsed(plan, told=told)
        return found

    return find
