"""Measurements: taken in spawned workers, kept line by line, so that a study survives being killed.

Append-only: one JSON object per line, the first line says what the study is about. A line that was
cut off by a kill is dropped and its cell measured again; seeds derive from the cell, so the same
values come back. Workers are spawned, never forked: a forked child would repeat OpenFHE's
randomness. They end when the study's process does, and that one alone writes results.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from protocols.errors import ParameterError, PlatformError
from sims.lab.studies.noise.grid import Cell
from sims.lab.studies.noise.measurement import Measurement
from sims.lab.studies.noise.source import Source

NAME = "measurements.jsonl"
VERSION = 1


class Store:
    """The results in a folder; one writer at a time.

    Raises:
        ParameterError: the folder holds another study, or a file that is none.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / NAME
        self._found: dict[tuple[str, int], Measurement] = {}
        head = {"version": VERSION, **about}
        if not self._load(json.loads(json.dumps(head))):
            self._write([head])

    def __contains__(self, name: tuple[str, int]) -> bool:
        return name in self._found

    @property
    def measurements(self) -> list[Measurement]:
        """All, in their order."""
        return sorted(self._found.values(), key=lambda m: m.order)

    def add(self, measurements: Iterable[Measurement]) -> None:
        """Keep those that are new, on disk before this returns."""
        new = {m.name: m for m in measurements if m.name not in self._found}
        self._found |= new
        self._write([m.to_dict() for m in new.values()])

    def _write(self, bodies: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(body, allow_nan=False) + "\n" for body in bodies)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def _load(self, head: dict[str, Any]) -> bool:
        """Whether there was a whole line."""
        data = self.path.read_bytes() if self.path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(self.path, len(whole))
        if not whole:
            return False
        try:
            first, *rest = [json.loads(line) for line in whole.splitlines()]
            found = [Measurement.from_dict(body) for body in rest]
        except (ValueError, KeyError, TypeError) as error:
            raise ParameterError(f"{self.path} is no list of measurements: {error}") from None
        if first != head:
            raise ParameterError(
                f"{self.path} belongs to a study of other data: choose another --out"
            )
        self._found = {m.name: m for m in found}
        return True


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
    encrypted = [c for c in cells if c.kind == "encrypted"]
    return [*twins, *(Unit(cell=c, seeds=(s,)) for c in encrypted for s in range(encrypted_seeds))]


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
    for kind, workers, threads in (("twin", jobs, 1), ("encrypted", 1, None)):
        mine = [unit for unit in units if unit.cell.kind == kind]
        to_do = [u for u in mine if any((u.cell.key, s) not in store for s in u.seeds)]
        if not to_do:
            continue
        started, done, total = time.monotonic(), len(mine) - len(to_do), len(mine)
        on_progress(Progress(kind=kind, done=done, total=total, left=None))
        new: list[Unit] = []
        for unit, found in _work(to_do, source, min(workers, len(to_do)), threads):
            store.add(found)
            new.append(unit)
            left = time_left(time.monotonic() - started, new, to_do)
            on_progress(Progress(kind=kind, done=done + len(new), total=total, left=left))


def time_left(seconds: float, done: Sequence[Unit], to_do: Sequence[Unit]) -> float | None:
    """Mean seconds per weight so far times the weight to go."""
    known, whole = (sum(unit.weight for unit in units) for units in (done, to_do))
    return seconds / known * (whole - known) if len(done) >= 2 else None


def _work(
    units: Sequence[Unit], source: Source, jobs: int, threads: int | None
) -> Iterator[tuple[Unit, list[Measurement]]]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=_end_with_the_study) as pool:
        futures = {pool.submit(measure, unit, source, threads): unit for unit in units}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            raise PlatformError(
                "a worker died, perhaps for lack of memory: start the study again with fewer "
                "--jobs; what was measured is kept"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _end_with_the_study() -> None:
    """A worker stops at once when it is interrupted, or when its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def measure(unit: Unit, source: Source, threads: int | None = None) -> list[Measurement]:
    """All measurements of a unit, in this process; threads: of linear algebra, None for all."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=threads):
        if unit.cell.kind == "twin":
            from sims.lab.studies.noise.twins import measure_twin

            return measure_twin(unit.cell, source, unit.seeds)
        from protocols.ckks.shared_keys import release
        from sims.lab.studies.noise.watched import measure_encrypted

        try:
            return [measure_encrypted(unit.cell, source, seed) for seed in unit.seeds]
        finally:
            release()
