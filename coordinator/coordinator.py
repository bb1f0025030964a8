"""The untrusted coordinator: drives the protocol's steps and evaluates the circuit.

It holds no secret: only its own signing key, which authenticates its requests. How messages reach
the parties is a function `ask`, given by the Flower adapter.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from coordinator.costs import Costs, LapClock
from coordinator.errors import LostError
from protocols.errors import CohortError, MessageError, ProtocolError
from protocols.exchange.messages import (
    DEFAULT_SIZE_CAP,
    Ask,
    Body,
    Envelope,
    Exchange,
    decode,
    digest,
    public_bytes,
    signed_head,
    whole,
)
from protocols.exchange.transcript import LOST, Transcript
from protocols.names import COORDINATOR
from protocols.plan.protocol import Watch, phase_of
from protocols.plan.run_plan import Member, RunPlan
from protocols.steps.whole import Outcome, whole_run
from protocols.words import printable

log = logging.getLogger(__name__)

T = TypeVar("T")
# (party, message) as they arrive, or all of them at once.
Replies = Iterable[tuple[str, bytes]] | Mapping[str, bytes]
# Delivers one message to each party, and one reply from each. Nothing is delivered before the
# replies are iterated.
AskParties = Callable[[str, Mapping[str, bytes]], Replies]


def arrivals(replies: Replies) -> Iterator[tuple[str, bytes]]:
    """(party, message), one after the other."""
    return iter(replies.items() if isinstance(replies, Mapping) else replies)


@contextmanager
def beside(work: Callable[[], object] | None) -> Iterator[None]:
    """Done by another thread at the same time, and at the end."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work) if work else None
        yield
    if done:
        done.result()


class Requests(Mapping[str, bytes]):
    """Messages by party, each made when it is asked for: what many are sent alike is held once."""

    def __init__(self, names: Iterable[str], make: Callable[[str], bytes]) -> None:
        self._names, self._make = dict.fromkeys(names), make

    def __getitem__(self, name: str) -> bytes:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(slots=True)
class Observer:
    """Called as a run goes on; all default to nothing.

    on_phase(phase), on_progress(phase, done, total) for progress bars; on_weights(t, w): every
    iterate of the secure-aggregation protocol, public there; on_missing(names): all parties that
    others stand in for, whenever one more has vanished.
    """

    on_phase: Callable[[str], None] = lambda phase: None
    on_progress: Callable[[str, int, int], None] = lambda phase, done, total: None
    on_weights: Callable[[int, NDArray[np.float64]], None] = lambda t, w: None
    on_missing: Callable[[tuple[str, ...]], None] = lambda names: None


class Coordinator:
    """One session.

    session: unique name; signing_key: the coordinator's identity; party_keys: verification keys
    (hex) by party name; make_plan: the run plan once the members are known; start: public weights
    that the secure-aggregation protocol starts from, zeros by default; evidence: of the second
    moment that rows are whitened by, see `second_moment.Evidence`; engine: workers for groups of
    encrypted rows, see `workers.Engine`; apart: whether parties compute elsewhere.
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
        evidence: Any = None,
        engine: Any = None,
        apart: bool = False,
    ) -> None:
        self.session = session
        self.costs = Costs()
        self._signing_key = signing_key
        self.party_keys = dict(party_keys)
        self._make_plan = make_plan
        self.transcript = transcript
        self._observer = observer or Observer()
        self._size_cap = size_cap
        self._start = start
        self._evidence, self._engine, self._apart = evidence, engine, apart

    @property
    def verify_key(self) -> str:
        """Of its signatures, hexadecimal."""
        return public_bytes(self._signing_key)

    def run(self, ask: AskParties) -> Outcome:
        """The whole protocol over a transport.

        Raises:
            ProtocolError: a party failed, refused or lied; `culprit` names it. Its words are
                printable, whatever the party said.
        """
        try:
            return self._drive(self.protocol(), ask)
        except CohortError as error:
            error.args = (printable(str(error)),)
            raise

    # -- the protocol ---------------------------------------------------------------------------

    def protocol(self) -> Exchange[Outcome]:
        """Every step of the run: yields requests, receives replies, returns the outcome."""
        observer = self._observer
        observer.on_phase("agree")
        clock: list[LapClock] = []

        def on_phase(phase: str) -> None:
            observer.on_phase(phase)
            if phase == "train":
                clock.append(LapClock(self.costs))

        def on_missing(names: tuple[str, ...]) -> None:
            log.warning("others stand in for %s, who do not reply", ", ".join(names))
            observer.on_missing(names)

        def watch(plan: RunPlan) -> Watch:
            def on_iteration(t: int) -> None:
                clock[0].lap()
                observer.on_progress("train", t + 1, plan.rounds)

            return Watch(
                on_phase,
                on_iteration,
                self._start,
                observer.on_weights,
                on_missing,
                evidence=self._evidence,
                engine=self._engine,
            )

        return (yield from whole_run(self.party_keys, self._make_plan, self.transcript, watch))

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
        heads: dict[str, bytes] = {}
        for name, body in request.bodies.items():
            envelope = Envelope(self.session, request.step, COORDINATOR, name, body)
            head = heads[name] = signed_head(envelope, self._signing_key)
            size = len(head) + sum(map(len, body.blobs))
            self._log(phase, request.step, COORDINATOR, name, size, digest(head))
        outgoing = Requests(heads, lambda name: whole(heads[name], request.bodies[name]))
        answers = {name: digest(head) for name, head in heads.items()}
        unlogged, due = dict[str, tuple[int, str]](), list(outgoing)
        replies: dict[str, Body] = {}

        def log_arrived() -> None:
            # In the plan's order, whatever the order of arrival.
            while due and due[0] in unlogged:
                first = due.pop(0)
                self._log(phase, request.step, first, COORDINATOR, *unlogged.pop(first))

        try:
            waited = self._waited(lambda: ask(request.step, outgoing), request.meanwhile)
            for name, data in waited:
                if name not in answers or name in replies:
                    continue  # not asked, or a second copy
                arrived = time.perf_counter()
                body = self._read(name, request.step, answers[name], data)
                unlogged[name] = len(data), digest(data)
                log_arrived()
                replies[name] = request.fold(name, body) if request.fold else body
                self.costs.read_seconds += time.perf_counter() - arrived
                del data, body  # before the next one arrives
        except LostError as error:
            if not request.lossy or (outgoing.keys() - replies.keys() - set(error.parties)):
                raise
        lost = [name for name in outgoing if name not in replies]
        if lost and not request.lossy:
            raise ProtocolError(f"no reply from party {lost[0]!r}", culprit=lost[0])
        unlogged.update(dict.fromkeys(lost, LOST))
        log_arrived()
        return {name: replies[name] for name in outgoing if name in replies}

    def _waited(
        self, ask: Callable[[], Replies], meanwhile: Callable[[], object] | None
    ) -> Iterator[tuple[str, bytes]]:
        """Replies as they arrive; counts the seconds until each.

        meanwhile: work of one's own, done at the same time where parties compute elsewhere.
        """
        started = time.perf_counter()
        if meanwhile and not self._apart:
            meanwhile()
        asked, slowest = time.perf_counter(), 0.0
        own = asked - started
        with beside(meanwhile if self._apart else None):
            for reply in arrivals(ask()):
                waited = time.perf_counter() - asked
                self.costs.waiting_seconds += waited
                slowest = max(slowest, waited)
                yield reply
                del reply
                asked = time.perf_counter()
            self.costs.waiting_seconds += time.perf_counter() - asked
        self.costs.slowest_seconds += max(0.0, slowest - own)

    def _read(self, name: str, step: str, answers: str, data: bytes) -> Body:
        try:
            reply = decode(data, self.party_keys[name], size_cap=self._size_cap)
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
        self, phase: str, step: str, sender: str, recipient: str, size: int, message: str
    ) -> None:
        self.costs.count(phase, recipient if sender == COORDINATOR else sender, size)
        self.transcript.add(
            step=step, sender=sender, recipient=recipient, size=size, message=message
        )
