"""The untrusted coordinator: drives the protocol's steps and evaluates the circuit.

It holds no secret: only its own signing key, which authenticates its requests. How messages reach
the parties is a function `ask`, given by the Flower adapter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from coordinator.conduct import Watch, conduct
from coordinator.costs import Costs, LapClock, phase_of
from protocols import agree
from protocols.errors import MessageError, ProtocolError
from protocols.messages import (
    COORDINATOR,
    DEFAULT_SIZE_CAP,
    Ask,
    Body,
    Envelope,
    Exchange,
    decode,
    digest,
    encode,
    to_everyone,
)
from protocols.plan import Member, RunPlan
from protocols.transcript import Transcript

T = TypeVar("T")
# Delivers one message to each party and returns one reply from each, by party name.
AskParties = Callable[[str, Mapping[str, bytes]], Mapping[str, bytes]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run: the agreed plan and the released weights, shape (d,) or (d, outputs)."""

    plan: RunPlan
    weights: NDArray[np.float64]


@dataclass(slots=True)
class Observer:
    """Called as a run goes on; all default to nothing.

    on_phase(phase), on_progress(phase, done, total) for progress bars; on_weights(t, w): every
    iterate of the encrypted-gradient protocol, public there.
    """

    on_phase: Callable[[str], None] = lambda phase: None
    on_progress: Callable[[str, int, int], None] = lambda phase, done, total: None
    on_weights: Callable[[int, NDArray[np.float64]], None] = lambda t, w: None


class Coordinator:
    """One session.

    session: unique name; signing_key: the coordinator's identity; party_keys: verification keys
    (hex) by party name; make_plan: the run plan once the members are known; start: public weights
    that the encrypted-gradient protocol starts from, zeros by default.
    """

    def __init__(
        self,
        *,
        session: str,
        signing_key: Ed25519PrivateKey,
        party_keys: Mapping[str, str],
        make_plan: Callable[[tuple[Member, ...]], RunPlan],
        transcript: Transcript,
        observer: Observer | None = None,
        size_cap: int = DEFAULT_SIZE_CAP,
        start: NDArray[np.float64] | None = None,
    ) -> None:
        self.session = session
        self.costs = Costs()
        self._signing_key = signing_key
        self._party_keys = dict(party_keys)
        self._make_plan = make_plan
        self._transcript = transcript
        self._observer = observer or Observer()
        self._size_cap = size_cap
        self._start = start

    @property
    def parties(self) -> tuple[str, ...]:
        """Party names."""
        return tuple(self._party_keys)

    def run(self, ask: AskParties) -> Outcome:
        """The whole protocol over a transport.

        Raises:
            ProtocolError: a party failed, refused or lied; `culprit` names it.
        """
        return self._drive(self.protocol(), ask)

    # -- the protocol ---------------------------------------------------------------------------

    def protocol(self) -> Exchange[Outcome]:
        """Every step of the run: yields requests, receives replies, returns the outcome."""
        observer = self._observer
        observer.on_phase("agree")
        plan, seeds = yield from agree.agree(self.parties, self._party_keys, self._make_plan)
        clock: list[LapClock] = []

        def on_phase(phase: str) -> None:
            observer.on_phase(phase)
            if phase == "train":
                clock.append(LapClock(self.costs))

        def on_iteration(t: int) -> None:
            clock[0].lap()
            observer.on_progress("train", t + 1, plan.rounds)

        watch = Watch(on_phase, on_iteration, self._start, observer.on_weights)
        released = yield from conduct(plan, agree.joint_seed(plan, seeds), seeds, watch)
        summary = {"weights": released.tolist(), "transcript": self._transcript.head}
        yield to_everyone("finish", plan.names, Body(summary))
        return Outcome(plan, released)

    # -- driving it -----------------------------------------------------------------------------

    def _drive(self, exchange: Exchange[T], ask: AskParties) -> T:
        replies: Mapping[str, Body] | None = None
        phase, since = "agree", time.perf_counter()
        try:
            while True:
                # A generator starts with None, then receives replies.
                request = exchange.send(replies)  # type: ignore[arg-type]
                phase, since = self._charge(phase, request.step, since)
                replies = self._exchange(request, ask)
                now = time.perf_counter()
                self.costs.seconds[phase] += now - since
                since = now
                # What follows a refresh, or the contributions, is training.
                phase = "train" if phase in ("refresh", "encrypt") else phase
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            exchange.close()

    def _charge(self, phase: str, step: str, since: float) -> tuple[str, float]:
        """Charge local work up to now to `phase`; return the new step's phase."""
        now = time.perf_counter()
        self.costs.seconds[phase] += now - since
        return phase_of(step), now

    def _exchange(self, request: Ask, ask: AskParties) -> Mapping[str, Body]:
        phase = phase_of(request.step)
        outgoing: dict[str, bytes] = {}
        for name, body in request.bodies.items():
            envelope = Envelope(self.session, request.step, COORDINATOR, name, body)
            outgoing[name] = encode(envelope, self._signing_key)
            self._log(phase, request.step, COORDINATOR, name, name, outgoing[name])
        asked = time.perf_counter()
        incoming = ask(request.step, outgoing)
        self.costs.waiting_seconds += time.perf_counter() - asked
        replies = {}
        for name, data in outgoing.items():
            if name not in incoming:
                raise ProtocolError(f"no reply from party {name!r}", culprit=name)
            replies[name] = self._read(name, request.step, digest(data), incoming[name])
            self._log(phase, request.step, name, COORDINATOR, name, incoming[name])
        return replies

    def _read(self, name: str, step: str, answers: str, data: bytes) -> Body:
        try:
            reply = decode(data, self._party_keys[name], size_cap=self._size_cap)
        except MessageError as error:
            raise ProtocolError(f"party {name!r}: {error}", culprit=name) from None
        address = (reply.session, reply.step, reply.sender, reply.recipient, reply.answers)
        if address != (self.session, step, name, COORDINATOR, answers):
            raise ProtocolError(
                f"party {name!r} answered another request than {step!r} "
                f"(its reply is for step {reply.step!r})",
                culprit=name,
            )
        if "error" in reply.body.meta:
            raise ProtocolError(
                f"party {name!r} refuses step {step!r}: {reply.body.meta['error']}", culprit=name
            )
        return reply.body

    def _log(
        self, phase: str, step: str, sender: str, recipient: str, party: str, data: bytes
    ) -> None:
        self.costs.count(phase, party, len(data))
        self._transcript.add(
            step=step, sender=sender, recipient=recipient, size=len(data), message=digest(data)
        )
