"""One process of the fuzz: its share of the inputs, and what came of them."""

from __future__ import annotations

import resource
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from protocols.errors import CohortError
from tests.fuzz import targets
from tests.support.helpers import make_session
from tests.support.sessions import model_session

# Address space beyond what a worker has after its warm-up: an allocation bomb is a MemoryError.
HEADROOM_BYTES = 1 << 30
# Of all inputs: to a party, to `decode`, to the reader of plans; the rest to the coordinator.
SHARES = {"party": 0.47, "decode": 0.27, "plan": 0.21}
# Inputs of one session; of them, at a step where an answer costs milliseconds.
ROUND_INPUTS, COSTLY_INPUTS, MAX_FINDINGS = 4000, 60, 20
# OpenFHE loads keys once: a mutant that is taken cannot be undone.
LOADED = "evaluation-keys/1"


@dataclass
class Report:
    """outcomes: count by (target, outcome); memory in bytes: resident after warm-up and at most."""

    inputs: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    warm: int = 0
    peak: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def note(self, target: str, read: Callable[[bytes], str], data: bytes) -> None:
        """Feed one input; CohortError is an outcome, anything else a finding."""
        start = time.perf_counter()
        try:
            outcome = read(data)
        except CohortError as error:
            outcome = type(error).__name__
        except Exception as error:
            outcome = f"FINDING {type(error).__name__}"
            if len(self.findings) < MAX_FINDINGS:
                self.findings.append(f"{target}: {data[:400]!r}\n{traceback.format_exc(limit=-6)}")
        self.outcomes[target, outcome] += 1
        self.slowest = max(self.slowest, time.perf_counter() - start)
        self.inputs += 1


def run(inputs: int, seed: int) -> Report:
    """So many inputs, repeatable but for the keys."""
    rng, report = np.random.default_rng(seed), Report()
    replay = targets.Replay()
    _round(replay, 200, rng, Report())
    report.warm = _resident()
    _limit_memory()
    start = time.perf_counter()
    while report.inputs < inputs:
        _round(replay, min(ROUND_INPUTS, inputs - report.inputs), rng, report)
    report.seconds = time.perf_counter() - start
    report.peak = _peak()
    return report


def _peak() -> int:
    """Largest resident set of this program [bytes]; ru_maxrss would count its parent's, too."""
    with open("/proc/self/status", encoding="ascii") as status:
        (line,) = [line for line in status if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def _round(replay: targets.Replay, inputs: int, rng: np.random.Generator, report: Report) -> None:
    end, steps = report.inputs + inputs, len(replay.steps)
    costly = [step.partition("/")[0] in targets.COSTLY for step in replay.steps]
    few = min(COSTLY_INPUTS, inputs // 60)
    many = (int(SHARES["party"] * inputs) - few * sum(costly)) // costly.count(False)
    counts = {step: few if c else many for step, c in zip(replay.steps, costly, strict=True)}
    session = make_session(**targets.SMALL)
    note, party = partial(report.note, "party"), session.parties[targets.NAME]
    targets.fuzz_role(session, party, session.ask, counts.__getitem__, rng, note)
    model = model_session(update="nag")
    party = model.parties[targets.NAME]
    targets.fuzz_role(model, party, model.ask, lambda s: few // 10 * (s != LOADED), rng, note)
    read, fields = targets.decoder(replay.session), targets.plan_fields(replay.session)
    for _ in range(int(SHARES["decode"] * inputs)):
        step = replay.steps[rng.integers(steps)]
        report.note("decode", read, replay.mutant(step, rng))
    for _ in range(int(SHARES["plan"] * inputs)):
        report.note("plan", *targets.fuzz_plan(fields, rng))
    while report.inputs < end:
        # Early steps are cheap to reach, late ones cost up to 0.1 s.
        step = replay.steps[min(int(rng.exponential(2.5)), steps - 1)]
        data = replay.mutant(step, rng)
        report.note("coordinator", partial(replay.feed, step), data)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + HEADROOM_BYTES, resource.RLIM_INFINITY))


def serve(target: str, inputs: int, seed: int, pipe: Connection) -> None:
    """Run in a spawned process and send the report back."""
    if target == "agent":
        from tests.fuzz.agent import run as run_agent

        pipe.send(run_agent(inputs, seed))
    else:
        pipe.send(run(inputs, seed))
    pipe.close()


def spawn(inputs: int, seed: int, workers: int, target: str = "all") -> tuple[Report, list[int]]:
    """The sum over spawned processes, and their exit codes (negative: killed by that signal)."""
    import multiprocessing

    context: Any = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for k in range(workers):
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=serve, args=(target, inputs // workers, seed + k, theirs))
        process.start()
        theirs.close()
        pipes.append(mine)
        processes.append(process)
    total = Report()
    for pipe, process in zip(pipes, processes, strict=True):
        try:
            _add(total, pipe.recv())
        except EOFError:
            total.findings.append("a process died before its report")
        process.join()
    return total, [process.exitcode for process in processes]


def _add(total: Report, part: Report) -> None:
    total.inputs += part.inputs
    total.outcomes += part.outcomes
    total.findings += part.findings
    total.seconds = max(total.seconds, part.seconds)
    total.slowest = max(total.slowest, part.slowest)
    if part.peak - part.warm >= total.peak - total.warm:
        total.peak, total.warm = part.peak, part.warm
