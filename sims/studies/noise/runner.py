"""Runs the cells of a study in spawned workers, and survives being killed.

Workers are spawned, never forked: a forked child would repeat OpenFHE's randomness. Each reads from
a pipe of its own and ends when the pipe does, so no worker outlives a killed study. The parent
alone writes results.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from protocols.errors import CohortError, PlatformError
from sims.studies.noise.grid import Cell
from sims.studies.noise.measurement import Measurement
from sims.studies.noise.source import Source
from sims.studies.noise.store import Store


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One piece of work: a cell with all its seeds in plaintext, or one encrypted run."""

    cell: Cell
    seeds: tuple[int, ...]

    @property
    def weight(self) -> float:
        """Expected time, in arbitrary units of its kind: the time left is scaled by what was seen.

        An encrypted run takes about as long as training and one ceremony per client. Growing data
        are drawn for each seed, which then trains alone.
        """
        if self.cell.kind == "encrypted":
            return 20.0 + self.cell.parties
        return 2.0 + (len(self.seeds) * self.cell.parties / 400 if self.cell.rows_per_party else 0)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """done of total units of one kind; left: expected seconds to go, None before two are done."""

    kind: str
    done: int
    total: int
    left: float | None


def units_of(cells: Sequence[Cell], seeds: int, encrypted_seeds: int) -> list[Unit]:
    """Twins first; a twin's seeds go together, so that a resumed cell adds up the same."""
    twins = [Unit(cell=c, seeds=tuple(range(seeds))) for c in cells if c.kind == "twin"]
    runs = [
        Unit(cell=c, seeds=(seed,))
        for c in cells
        if c.kind == "encrypted"
        for seed in range(encrypted_seeds)
    ]
    return [*twins, *runs]


def run_study(
    units: Sequence[Unit],
    source: Source,
    store: Store,
    *,
    jobs: int,
    on_progress: Callable[[Progress], object] = lambda progress: None,
) -> None:
    """Measure what the store has not; encrypted runs one at a time, with all threads.

    Raises:
        CohortError: bad data or options, as a worker met them.
        PlatformError: a worker died; what was measured is kept.
    """
    for kind, workers, threads in (("twin", jobs, 1), ("encrypted", 1, 0)):
        mine = [unit for unit in units if unit.cell.kind == kind]
        open_units = [u for u in mine if any((u.cell.key, s) not in store for s in u.seeds)]
        clock = _Clock(kind, mine, open_units)
        if open_units:
            on_progress(clock.progress())
        for unit, found in _work(open_units, source, min(workers, len(open_units)), threads):
            store.add(found)
            on_progress(clock.tick(unit))


class _Clock:
    """Time left: the mean time per weight so far times the weight to go."""

    def __init__(self, kind: str, all_units: Sequence[Unit], to_do: Sequence[Unit]) -> None:
        self._kind, self._total = kind, len(all_units)
        self._done, self._new = len(all_units) - len(to_do), 0
        self._weight, self._left = 0.0, sum(unit.weight for unit in to_do)
        self._started = time.monotonic()

    def tick(self, unit: Unit) -> Progress:
        """One more is done."""
        self._done, self._new = self._done + 1, self._new + 1
        self._weight, self._left = self._weight + unit.weight, self._left - unit.weight
        return self.progress()

    def progress(self) -> Progress:
        """Now."""
        seconds = time.monotonic() - self._started
        left = seconds / self._weight * self._left if self._new >= 2 else None
        return Progress(kind=self._kind, done=self._done, total=self._total, left=left)


def _work(
    units: Sequence[Unit], source: Source, jobs: int, threads: int
) -> Iterator[tuple[Unit, list[Measurement]]]:
    context = multiprocessing.get_context("spawn")
    todo, busy, processes = list(reversed(units)), {}, []
    try:
        for _ in range(jobs):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, source, threads), daemon=True)
            process.start()
            there.close()
            processes.append((process, here))
            busy[here] = todo.pop()
            here.send(busy[here])
        while busy:
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)  # noqa: S101 (what `wait` was given)
                unit = busy.pop(pipe)
                found = _receive(pipe, unit)
                if todo:
                    busy[pipe] = todo.pop()
                    pipe.send(busy[pipe])
                yield unit, found
    finally:
        for process, pipe in processes:
            pipe.close()
            if busy:
                process.terminate()
            process.join()


def _receive(pipe: Connection, unit: Unit) -> list[Measurement]:
    try:
        answer = pipe.recv()
    except (EOFError, OSError):
        raise PlatformError(
            f"a worker died at {unit.cell}, perhaps for lack of memory: start the study again with "
            "fewer --jobs; what was measured is kept"
        ) from None
    if isinstance(answer, BaseException):
        raise answer
    found: list[Measurement] = answer
    return found


def _serve(pipe: Connection, source: Source, threads: int) -> None:
    """A worker: measures what comes until the pipe ends."""
    from threadpoolctl import threadpool_limits

    try:
        with threadpool_limits(limits=threads or None):
            while True:
                unit: Unit = pipe.recv()
                pipe.send(_guarded(unit, source))
    except (EOFError, OSError, KeyboardInterrupt):
        pass


def _guarded(unit: Unit, source: Source) -> Any:
    try:
        return measure(unit, source)
    except CohortError as error:
        return error


def measure(unit: Unit, source: Source) -> list[Measurement]:
    """All measurements of a unit, in this process."""
    if unit.cell.kind == "encrypted":
        from protocols.ckks.context import release
        from sims.studies.noise.watched import measure_encrypted

        try:
            return [measure_encrypted(unit.cell, source, seed) for seed in unit.seeds]
        finally:
            release()
    from sims.studies.noise.twins import measure_twin

    return measure_twin(unit.cell, source, unit.seeds)
