"""The matrix: every fault of every role at every step, and what each ends in."""

from __future__ import annotations

import csv
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from protocols.plan.protocol import sequence
from tests.faults import faults
from tests.faults.relay import Deliver, Relay, Trap
from tests.faults.world import NAMES, STEP_SECONDS, World

TOLERANCE = 1e-4
COORDINATOR, FINISH = "coordinator", "finish"


@dataclass(frozen=True, slots=True)
class Case:
    """One fault; role: the coordinator or a party."""

    role: str
    fault: str
    step: str

    @property
    def wanted(self) -> str:
        """What it has to end in: once `finish` is on disk, no party takes the weights back."""
        if self.role == COORDINATOR:
            return faults.COORDINATOR[self.fault].wanted
        wanted = faults.PARTY[self.fault].wanted
        return faults.MODEL if self.step == FINISH and wanted == faults.ABORT else wanted


@dataclass(frozen=True, slots=True)
class Row:
    """What a case ended in.

    outcome: "model", "abort", or what must never be: "hang", "wrong model", …; who: named by the
    abort; seconds: from the fault to the end; given, made: most decryption shares of one party
    that left it, that it computed; erased_seconds: from the end until no key material was left.
    """

    role: str
    fault: str
    step: str
    wanted: str
    outcome: str
    who: str
    seconds: float
    difference: float
    given: int
    made: int
    erased_seconds: float
    ok: bool
    reason: str


def all_cases(steps: Sequence[str]) -> Iterator[Case]:
    """Parties take turns."""
    for fault in faults.PARTY:
        for k, step in enumerate(steps):
            yield Case(NAMES[k % len(NAMES)], fault, step)
    for fault in faults.COORDINATOR:
        for step in steps:
            yield Case(COORDINATOR, fault, step)


class Bench:
    """A world and its fault-free model."""

    def __init__(self, folder: Path, step_seconds: float = STEP_SECONDS) -> None:
        self.world = World(folder, step_seconds)
        self.world.begin()
        status, _ = self.world.wait()
        if status.get("state") != "finished":
            raise RuntimeError(f"the run without faults ended so: {status}")
        self.weights = self.world.weights()
        self.steps = sequence(self.world.template)

    def run(self, case: Case) -> Row:
        """One session with one fault."""
        world = self.world
        trap, failures = self._trap(case)
        for relay in world.relays.values():
            relay.trap = trap
        world.begin()
        status, over = world.wait()
        self._repair()
        erased = self._erased(over)
        outcome, difference = self._outcome(status, trap, failures)
        row = Row(
            **asdict(case),
            wanted=case.wanted,
            outcome=outcome,
            who=self._who(status) if outcome == faults.ABORT else "",
            seconds=round(over - trap.sprung, 2) if trap.sprung else 0.0,
            difference=difference,
            given=max(map(world.shares_given, NAMES)),
            made=max(map(world.shares_made, NAMES)),
            erased_seconds=erased,
            ok=False,
            reason=str(status.get("reason", "")),
        )
        return replace(row, ok=is_right(row))

    def _trap(self, case: Case) -> tuple[Trap, list[str]]:
        world, failures = self.world, list[str]()
        table = faults.COORDINATOR if case.role == COORDINATOR else faults.PARTY
        fault = table[case.fault]

        def action(relay: Relay, data: bytes, deliver: Deliver) -> bytes | None:
            try:
                return fault(world, relay, data, deliver)
            except AssertionError as error:
                failures.append(str(error))
                raise OSError from error

        return Trap(case.step, None if case.role == COORDINATOR else case.role, action), failures

    def _repair(self) -> None:
        """Whoever is still dead or stopped comes back."""
        world = self.world
        for relay in world.relays.values():
            relay.trap = None
        for name, process in world.agents.items():
            if process.is_alive():
                world.signal_agent(name, signal.SIGCONT)
            else:
                world.start_agent(name)
        for process in world.coordinators:
            process.kill()
            process.join()

    def _erased(self, over: float) -> float:
        """Seconds from the end until no party holds key material; -1 if one still does."""
        # Every party has been told, or notices the silence.
        until = time.monotonic() + 3 * self.world.idle_seconds
        while self.world.keys_left():
            if time.monotonic() > until:
                return -1.0
            time.sleep(0.1)
        return round(time.monotonic() - over, 2)

    def _outcome(
        self, status: dict[str, Any], trap: Trap, failures: list[str]
    ) -> tuple[str, float]:
        if failures:
            return failures[0], 0.0
        if not status:
            return "hang", 0.0
        if not trap.sprung:
            return "the fault did not happen", 0.0
        if status["state"] == "aborted":
            return faults.ABORT, 0.0
        off = float(np.max(np.abs(self.world.weights() - self.weights)))
        return (faults.MODEL if off <= TOLERANCE else "wrong model"), off

    @staticmethod
    def _who(status: dict[str, Any]) -> str:
        if status["culprit"]:
            return str(status["culprit"])
        return COORDINATOR if " recorded " in status["reason"] else ""


def is_right(row: Row) -> bool:
    """The wanted end, in time, by name, at most one decryption, no key material left."""
    if row.outcome == faults.ABORT:
        named = row.who in NAMES if row.role == COORDINATOR else row.who == row.role
        named |= row.role == COORDINATOR and row.who == COORDINATOR
    else:
        named = row.outcome == faults.MODEL
    return named and row.outcome in row.wanted and row.given <= 1 and row.erased_seconds >= 0


def run_all(
    folder: Path, cases: Iterable[Case], workers: int, step_seconds: float, tell: Any
) -> list[Row]:
    """Every case, in several worlds at once."""
    benches: SimpleQueue[Bench] = SimpleQueue()
    for k in range(workers):
        benches.put(Bench(folder / str(k), step_seconds))

    def run(case: Case) -> Row:
        bench = benches.get()
        try:
            row = bench.run(case)
        finally:
            benches.put(bench)
        tell(row)
        return row

    try:
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(run, cases))
    finally:
        for _ in range(workers):
            benches.get().world.close()


def write_csv(path: Path, rows: Iterable[Row]) -> None:
    """One line per case."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
