"""Every fault, as what it does at the relay when its step comes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from coordinator.log import FOLDER
from protocols.exchange.messages import digest
from tests.faults.relay import Deliver, Relay, frame
from tests.faults.world import NAMES, World

MODEL, ABORT, EITHER = "model", "abort", "model or abort"
# SHORT and DELAY are within a step; a step or the parties' patience plus MORE is beyond it.
SHORT_SECONDS, DELAY_SECONDS, MORE_SECONDS = 0.7, 1.0, 2.0
# Kind and payload of a frame.
Answer = tuple[bytes, bytes]
Act = Callable[[World, Relay], Any]


def nothing(world: World, relay: Relay) -> None:
    """No act."""


def once(world: World, relay: Relay, data: bytes, deliver: Deliver) -> Answer:
    """As it should be."""
    return deliver(data)


@dataclass(frozen=True)
class Fault:
    """wanted: the end; before: done first; during: a context around the delivery; send: the
    delivery; after: done with the reply at hand; answer: the frame that goes back, None to hang up.
    """

    wanted: str
    before: Act = nothing
    during: Callable[[World, Relay], AbstractContextManager[Any]] = lambda w, r: nullcontext()
    send: Callable[[World, Relay, bytes, Deliver], Answer] | None = once
    after: Act = nothing
    answer: Callable[[bytes, bytes], bytes | None] = frame

    def __call__(self, world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes | None:
        """What the relay does with a request."""
        self.before(world, relay)
        if self.send is None:
            return None
        with self.during(world, relay):
            reply = self.send(world, relay, data, deliver)
        self.after(world, relay)
        return self.answer(*reply)


@contextmanager
def later(seconds: float, action: Callable[..., Any], *arguments: Any) -> Any:
    """Do something after so many seconds; the block waits for it."""
    timer = threading.Timer(seconds, action, arguments)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def flipped(data: bytes, seed: int) -> bytes:
    """One byte changed."""
    position = int(np.random.default_rng(seed).integers(len(data)))
    return data[:position] + bytes([data[position] ^ 0x41]) + data[position + 1 :]


def hang_up(kind: bytes, reply: bytes) -> None:
    """The reply is lost."""


def sleep(seconds: Callable[[World], float]) -> Act:
    """Wait."""
    return lambda world, relay: time.sleep(seconds(world))


def same(first: Answer, second: Answer) -> Answer:
    """Two replies to one request are one."""
    if first != second:
        raise AssertionError(f"two replies to one request: {digest(first[1])}")
    return second


# -- a party -----------------------------------------------------------------------------------


def kill(world: World, relay: Relay) -> None:
    world.end_agent(relay.name)


def restart(world: World, relay: Relay, sign: int = signal.SIGKILL) -> None:
    """The service manager starts it again."""
    world.end_agent(relay.name, sign)
    world.start_agent(relay.name)


def stop(world: World, relay: Relay) -> None:
    world.signal_agent(relay.name, signal.SIGSTOP)


def go_on(seconds: Callable[[World], float]) -> Any:
    return lambda w, r: later(seconds(w), w.signal_agent, r.name, signal.SIGCONT)


def before_and_after_a_kill(world: World, relay: Relay, data: bytes, deliver: Deliver) -> Answer:
    first = deliver(data)
    restart(world, relay)
    return same(first, deliver(data))


def at_once(world: World, relay: Relay, data: bytes, deliver: Deliver) -> Answer:
    """The request twice."""
    found: list[Answer] = []
    threads = [threading.Thread(target=lambda: found.append(deliver(data))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return same(*found)


def last(world: World, relay: Relay) -> tuple[bytes, bytes]:
    """The request before, and the frame that answered it."""
    return relay.last.get(world.session) or next(iter(relay.last.values()))


def old_request_first(world: World, relay: Relay, data: bytes, deliver: Deliver) -> Answer:
    deliver(last(world, relay)[0])
    return deliver(data)


def old_reply(world: World, relay: Relay, data: bytes, deliver: Deliver) -> Answer:
    deliver(data)
    whole = last(world, relay)[1]
    return whole[4:5], whole[13:]


def short(world: World) -> float:
    return SHORT_SECONDS


def beyond_the_step(world: World) -> float:
    return world.step_seconds + MORE_SECONDS


def beyond_patience(world: World) -> float:
    return world.idle_seconds + MORE_SECONDS


PARTY: dict[str, Fault] = {
    "kill -9 before the request": Fault(MODEL, before=restart),
    "kill -9 at work": Fault(MODEL, during=lambda w, r: later(0.004, restart, w, r)),
    "kill -9, reply lost": Fault(MODEL, send=before_and_after_a_kill),
    "kill -9 for good": Fault(ABORT, before=kill, send=None),
    "restart": Fault(MODEL, before=partial(restart, sign=signal.SIGTERM)),
    "SIGSTOP, short": Fault(MODEL, before=stop, during=go_on(short)),
    "SIGSTOP beyond the step": Fault(ABORT, before=stop, during=go_on(beyond_the_step)),
    "duplicate request": Fault(MODEL, send=at_once),
    "replayed request": Fault(MODEL, send=old_request_first),
    "duplicate reply": Fault(MODEL, answer=lambda kind, reply: frame(kind, reply) * 2),
    "replayed reply": Fault(ABORT, send=old_reply),
    "delayed reply": Fault(MODEL, after=sleep(lambda world: DELAY_SECONDS)),
    "reply after the step": Fault(ABORT, after=sleep(beyond_the_step)),
    "corrupted reply": Fault(
        ABORT, answer=lambda kind, reply: frame(kind, flipped(reply, len(reply)))
    ),
    "corrupted request": Fault(MODEL, send=lambda w, r, d, send: send(flipped(d, len(d)))),
    "truncated request": Fault(MODEL, send=lambda w, r, d, send: r.deliver(d, part=0.6)),
    "truncated reply": Fault(
        MODEL, answer=lambda kind, reply: frame(kind, reply)[: (len(reply) + 13) // 2]
    ),
}


# -- the coordinator ---------------------------------------------------------------------------


def successor(world: World, relay: Relay, sign: int = signal.SIGKILL) -> None:
    """It dies, and another one goes on."""
    world.end_coordinator(sign)
    world.start_coordinator()


def freeze(world: World, relay: Relay) -> None:
    world.signal_coordinator(signal.SIGSTOP)


def thaw(seconds: Callable[[World], float]) -> Any:
    return lambda w, r: later(seconds(w), w.signal_coordinator, signal.SIGCONT)


def after_all_others(world: World, relay: Relay) -> None:
    """The others' replies have arrived."""
    step = list(relay.given)[-1][1]
    others = [world.relays[name] for name in NAMES if name != relay.name]
    until = time.monotonic() + world.step_seconds / 2
    while not all(other.given.get((world.session, step)) for other in others):
        if time.monotonic() > until:
            break
        time.sleep(0.01)
    time.sleep(0.1)
    successor(world, relay)


def corrupt_record(world: World, relay: Relay) -> None:
    world.end_coordinator()
    path = max((world.session_folder / FOLDER).glob("*.msg"))
    path.write_bytes(flipped(path.read_bytes(), 1))
    world.start_coordinator()


COORDINATOR: dict[str, Fault] = {
    "kill -9 before a request arrives": Fault(MODEL, before=successor, send=None),
    "kill -9, a reply lost": Fault(MODEL, after=successor, answer=hang_up),
    "kill -9, all replies but one arrived": Fault(MODEL, after=after_all_others, answer=hang_up),
    "restart": Fault(MODEL, before=partial(successor, sign=signal.SIGTERM), send=None),
    "SIGSTOP, short": Fault(MODEL, before=freeze, during=thaw(short)),
    "SIGSTOP beyond the step": Fault(EITHER, before=freeze, during=thaw(beyond_the_step)),
    "SIGSTOP beyond the parties' patience": Fault(
        EITHER, before=freeze, during=thaw(beyond_patience)
    ),
    "started a second time": Fault(MODEL, before=lambda world, relay: world.start_coordinator()),
    "kill -9, its latest record corrupted": Fault(ABORT, before=corrupt_record, send=None),
}
