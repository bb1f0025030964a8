"""Every fault, as what it does at the relay when its step comes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np

from coordinator.log import FOLDER
from protocols.messages import digest
from tests.faults.relay import Deliver, Relay, frame
from tests.faults.world import NAMES, World

MODEL, ABORT, EITHER = "model", "abort", "model or abort"
# SHORT and DELAY are within a step; a step or the parties' patience plus MORE is beyond it.
SHORT_SECONDS, DELAY_SECONDS, MORE_SECONDS = 0.7, 1.0, 2.0
Fault = Callable[[World, Relay, bytes, Deliver], "bytes | None"]

PARTY: dict[str, tuple[Fault, str]] = {}
COORDINATOR: dict[str, tuple[Fault, str]] = {}


def _fault(role: dict[str, Any], name: str, wanted: str) -> Callable[[Fault], Fault]:
    def note(fault: Fault) -> Fault:
        role[name] = (fault, wanted)
        return fault

    return note


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


def restart(world: World, name: str) -> None:
    """kill -9, and the service manager starts it again."""
    world.end_agent(name)
    world.start_agent(name)


# -- a party -----------------------------------------------------------------------------------


@_fault(PARTY, "kill -9 before the request", MODEL)
def _kill_before(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    restart(world, relay.name)
    return frame(*deliver(data))


@_fault(PARTY, "kill -9 at work", MODEL)
def _kill_at_work(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    with later(0.004, restart, world, relay.name):
        return frame(*deliver(data))


@_fault(PARTY, "kill -9, reply lost", MODEL)
def _kill_after(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    first = deliver(data)
    restart(world, relay.name)
    return _same(first, deliver(data))


@_fault(PARTY, "kill -9 for good", ABORT)
def _kill_for_good(world: World, relay: Relay, data: bytes, deliver: Deliver) -> None:
    world.end_agent(relay.name)


@_fault(PARTY, "restart", MODEL)
def _restart(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    world.end_agent(relay.name, signal.SIGTERM)
    world.start_agent(relay.name)
    return frame(*deliver(data))


@_fault(PARTY, "SIGSTOP, short", MODEL)
def _stop_short(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    world.signal_agent(relay.name, signal.SIGSTOP)
    with later(SHORT_SECONDS, world.signal_agent, relay.name, signal.SIGCONT):
        return frame(*deliver(data))


@_fault(PARTY, "SIGSTOP beyond the step", ABORT)
def _stop_long(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    world.signal_agent(relay.name, signal.SIGSTOP)
    with later(world.step_seconds + MORE_SECONDS, world.signal_agent, relay.name, signal.SIGCONT):
        return frame(*deliver(data))


@_fault(PARTY, "duplicate request", MODEL)
def _twice(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(deliver(data))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _same(*found)


@_fault(PARTY, "replayed request", MODEL)
def _replayed_request(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    before = relay.last.get(world.session) or next(iter(relay.last.values()))
    deliver(before[0])
    return frame(*deliver(data))


@_fault(PARTY, "duplicate reply", MODEL)
def _two_replies(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    return frame(*deliver(data)) * 2


@_fault(PARTY, "replayed reply", ABORT)
def _replayed_reply(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    deliver(data)
    return (relay.last.get(world.session) or next(iter(relay.last.values())))[1]


@_fault(PARTY, "delayed reply", MODEL)
def _delayed(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    answer = frame(*deliver(data))
    time.sleep(DELAY_SECONDS)
    return answer


@_fault(PARTY, "reply after the step", ABORT)
def _late(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    answer = frame(*deliver(data))
    time.sleep(world.step_seconds + MORE_SECONDS)
    return answer


@_fault(PARTY, "corrupted reply", ABORT)
def _corrupt_reply(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    kind, reply = deliver(data)
    return frame(kind, flipped(reply, len(reply)))


@_fault(PARTY, "corrupted request", MODEL)
def _corrupt_request(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    return frame(*deliver(flipped(data, len(data))))


@_fault(PARTY, "truncated request", MODEL)
def _cut_request(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    return frame(*relay.deliver(data, part=0.6))


@_fault(PARTY, "truncated reply", MODEL)
def _cut_reply(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    answer = frame(*deliver(data))
    return answer[: len(answer) // 2]


def _same(first: tuple[bytes, bytes], second: tuple[bytes, bytes]) -> bytes:
    if first != second:
        raise AssertionError(f"two replies to one request: {digest(first[1])}")
    return frame(*second)


# -- the coordinator ---------------------------------------------------------------------------


@_fault(COORDINATOR, "kill -9 before a request arrives", MODEL)
def _coordinator_before(world: World, relay: Relay, data: bytes, deliver: Deliver) -> None:
    world.end_coordinator()
    world.start_coordinator()


@_fault(COORDINATOR, "kill -9, a reply lost", MODEL)
def _coordinator_after(world: World, relay: Relay, data: bytes, deliver: Deliver) -> None:
    deliver(data)
    world.end_coordinator()
    world.start_coordinator()


@_fault(COORDINATOR, "kill -9, all replies but one arrived", MODEL)
def _coordinator_between(world: World, relay: Relay, data: bytes, deliver: Deliver) -> None:
    others = [world.relays[name] for name in NAMES if name != relay.name]
    _, reply = deliver(data)
    step = next(step for (_, step), held in relay.given.items() if digest(reply) in held)
    until = time.monotonic() + world.step_seconds / 2
    while not all(other.given.get((world.session, step)) for other in others):
        if time.monotonic() > until:
            break
        time.sleep(0.01)
    time.sleep(0.1)
    world.end_coordinator()
    world.start_coordinator()


@_fault(COORDINATOR, "restart", MODEL)
def _coordinator_restart(world: World, relay: Relay, data: bytes, deliver: Deliver) -> None:
    world.end_coordinator(signal.SIGTERM)
    world.start_coordinator()


@_fault(COORDINATOR, "SIGSTOP, short", MODEL)
def _coordinator_stop(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    world.signal_coordinator(signal.SIGSTOP)
    with later(SHORT_SECONDS, world.signal_coordinator, signal.SIGCONT):
        return frame(*deliver(data))


@_fault(COORDINATOR, "SIGSTOP beyond the step", EITHER)
def _coordinator_stop_long(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    world.signal_coordinator(signal.SIGSTOP)
    with later(world.step_seconds + MORE_SECONDS, world.signal_coordinator, signal.SIGCONT):
        return frame(*deliver(data))


@_fault(COORDINATOR, "SIGSTOP beyond the parties' patience", EITHER)
def _coordinator_stop_beyond(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    world.signal_coordinator(signal.SIGSTOP)
    with later(world.idle_seconds + MORE_SECONDS, world.signal_coordinator, signal.SIGCONT):
        return frame(*deliver(data))


@_fault(COORDINATOR, "started a second time", MODEL)
def _two_coordinators(world: World, relay: Relay, data: bytes, deliver: Deliver) -> bytes:
    world.start_coordinator()
    return frame(*deliver(data))


@_fault(COORDINATOR, "kill -9, its latest record corrupted", ABORT)
def _corrupt_record(world: World, relay: Relay, data: bytes, deliver: Deliver) -> None:
    world.end_coordinator()
    path = max((world.session_folder / FOLDER).glob("*.msg"))
    path.write_bytes(flipped(path.read_bytes(), 1))
    world.start_coordinator()
