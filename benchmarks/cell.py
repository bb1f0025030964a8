"""One cell of the table: one run beside its own prediction, in a process of its own.

Question: does `cohort plan` know the cost beforehand? The rehearsal is played in the same process,
after the run.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import session
from benchmarks.cases import Case
from ciphercohort.planning.predicted import Predicted
from ciphercohort.planning.rehearsed import shortened
from protocols.ckks.circuits.tally import tally_iterations
from protocols.costs.counts import iteration_work, units
from protocols.exchange.serialise import to_plain
from protocols.rows.plan import RowsPlan
from protocols.updates.momentum import GradientDescent
from sims.rehearsal import rehearse

ROOT = Path(__file__).resolve().parents[1]
# Set: every clock of the benchmark counts CPU seconds of one thread.
CPU_CLOCK = "COHORT_BENCHMARK_CPU"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """Measured and predicted, of one case.

    iteration: median of the inner ones; reading: of parties' replies, in it; predicted: by the
    rehearsal; beside: what is no gradient (update rule; refresh, which makes its last sum), by its
    part of all operations, and any layout of the rows would need; keys: the ceremony, all roles in
    turn; load: one-minute load average over processors, before and after [seconds, bytes].
    """

    case: dict[str, Any]
    params: dict[str, Any]
    data_ciphertexts: int
    features_per_ciphertext: int
    rotation_keys: int
    iteration: float
    laps: tuple[float, ...]
    reading: float
    predicted: float
    beside: float
    keys: float
    predicted_keys: float
    bytes_per_party: int
    predicted_bytes: int
    peak_memory: int
    load: tuple[float, float]

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.iteration

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, with what follows from the fields."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields |= {"laps": list(self.laps), "load": list(self.load)}
        return {**fields, "ratio": self.ratio}


def run(case: Case) -> Cell:
    """Measure one case here and now."""
    plan, before_load = session.plan_of(case), load()
    found = session.run(case, plan)
    most = peak()
    laps = tuple(found.costs.iteration_seconds[case.measured])
    iteration = statistics.median(laps)
    predicted = Predicted(plan, rehearse(shortened(plan), apart=False))
    return Cell(
        case=case.to_dict(),
        params=to_plain(plan.ckks),
        data_ciphertexts=plan.layout.num_data_ciphertexts,
        features_per_ciphertext=plan.layout.num_blocks,
        rotation_keys=len(plan.rotations),
        iteration=iteration,
        laps=laps,
        reading=statistics.median(found.costs.reading_seconds[case.measured]),
        predicted=predicted.seconds.iteration,
        beside=_beside(found.plan) * iteration,
        keys=found.costs.seconds["keys"],
        predicted_keys=predicted.seconds.by_phase["keys"],
        bytes_per_party=sum(found.costs.bytes_per_party.values()),
        predicted_bytes=sum(predicted.bytes_per_party.values()),
        peak_memory=most,
        load=(before_load, load()),
    )


def follow_clock() -> None:
    """Count as `--cpu` asks: other processes then cost cache misses, but no waiting."""
    if os.environ.get(CPU_CLOCK):
        time.perf_counter = time.process_time


def in_process(case: Case) -> Cell:
    """`run` in a fresh interpreter."""
    return from_dict(fresh("cell", case))


def fresh(command: str, case: Case) -> dict[str, Any]:
    """What a hidden command prints, in a new interpreter: honest memory, no keys of earlier cells.

    Raises:
        RuntimeError: it failed; the message is its error output.
    """
    words = [sys.executable, "-m", "benchmarks", command, json.dumps(case.to_dict())]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{case.name}: {done.stderr.strip()[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def from_dict(fields: dict[str, Any]) -> Cell:
    """Inverse of `Cell.to_dict`."""
    known = {name: fields[name] for name in Cell.__dataclass_fields__}
    pairs = {"laps": tuple(known["laps"]), "load": tuple(known["load"])}
    return Cell(**{**known, **pairs})


def _beside(plan: RowsPlan) -> float:
    """Less gradient descent's circuit, that is the gradient and one subtraction; a share of all."""
    bare = replace(plan.layout, curvature=False)
    rule = GradientDescent(rounds=plan.rounds, learning_rate=1.0)
    course = tally_iterations(plan.ckks, bare, plan.link, rule)
    gradient = units(course[plan.rounds // 2].operations, plan.ckks)
    return max(0.0, 1 - gradient / iteration_work(plan))


def peak() -> int:
    """Of this process' memory [bytes]."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def load() -> float:
    """One-minute load average over processors."""
    return os.getloadavg()[0] / len(os.sched_getaffinity(0))


def quiet(load: float) -> bool:
    """Whether a figure measured at this load is one of the machine."""
    return load < 1.25


def settle(seconds: float = 0.0) -> None:
    """Wait until the machine is quiet, at most so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not quiet(load()):
        time.sleep(5)
