"""What a person sees while a run goes on, all of it on stderr.

On a terminal: one line per phase with its time, and a bar with the time left where the number of
steps is known. Elsewhere: one plain line per phase, and now and then how many iterations are done
and how long the rest will take at the pace so far.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from protocols.words import duration

if TYPE_CHECKING:
    from ciphercohort.planning.foresight import Foresight
    from protocols.privacy.calibrate.calibration import Calibration
    from sims.simulation import Event

# Between two lines of progress: seconds at least, and this share of what is left.
QUIET, QUIET_SHARE = 10.0, 0.1
# Between two lines where nothing else says that something is done.
PULSE = 8.0

PHASES = {
    "load": "load the libraries",
    "data": "read and encode the rows",
    "choose": "choose and certify the settings",
    "moment": "sum the rows' second moment, the first of two runs",
    "agree": "agree on the plan",
    "keys": "make the joint keys",
    "encrypt": "encrypt every party's rows",
    "train": "train on ciphertexts",
    "decrypt": "decrypt the model jointly",
    "twin": "compare with plaintext",
    "evaluation": "judge the model on rows that were held back",
    "inference": "sum scores and information for standard errors",
}


class Reporter:
    """Takes a run's events; remembers where the run is, for the message when it is stopped.

    phase, done, total: as of the last event; done counts what is finished, unit names it. bars: on
    a terminal. foresee: predicts the costs of a plan, where it can; foresight: what it said; told:
    notes that were shown. clock: seconds.
    """

    def __init__(
        self,
        console: Console,
        bars: Progress | None = None,
        foresee: Callable[[Calibration], Foresight | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        unit: str = "iterations",
    ) -> None:
        self.phase, self.done, self.total = "load", 0, 0
        self.foresight: Foresight | None = None
        self.told: tuple[str, ...] = ()
        self._console, self._bars, self._foresee = console, bars, foresee
        self._task: TaskID | None = None
        self._clock, self.unit = clock, unit
        self._started = self._since = self._spoke = clock()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if event.found is not None:
            self.planned(event.found)
        elif event.kind == "phase":
            self.phase = event.phase
            self.begin(PHASES.get(event.phase, event.phase))
        else:
            self.step(event.done, event.total)

    def planned(self, found: Calibration) -> None:
        """What will be run is known: say what it costs, and what was chosen."""
        if self._foresee is None:
            return
        self.told, self.foresight = found.notes, self._foresee(found)
        for words in (*found.notes, *(self.foresight.lines if self.foresight else ())):
            self._console.print(words, markup=False, highlight=False, soft_wrap=True)

    def begin(self, words: str) -> None:
        """A phase begins, and the one before is over."""
        self.finish()
        self._since = self._spoke = self._clock()
        if self._bars is not None:
            self._task = self._bars.add_task(words, total=None)
            return
        self._line(words)

    def step(self, done: int, total: int) -> None:
        """So many steps of the phase are done."""
        self.done, self.total = done, total
        if self._bars is None and 0 < done < total:
            now = self._clock()
            left = (now - self._since) / done * (total - done)
            if now - self._spoke >= max(QUIET, QUIET_SHARE * left):
                self._spoke = now
                self._line(f"{done} of {total} {self.unit} done, about {duration(left)} left")
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, completed=done, total=total)

    def _line(self, words: str) -> None:
        seconds = self._clock() - self._started
        self._console.print(f"[{seconds:6.1f} s] {words}", markup=False, highlight=False)

    def finish(self) -> None:
        """Stop the clock of the phase."""
        if self._bars is not None and self._task is not None:
            total = self._bars.tasks[self._task].total or 1
            self._bars.update(self._task, completed=total, total=total)
            self._task = None

    @property
    def place(self) -> str:
        """Where the run is, in words."""
        steps = f", {self.done} of {self.total} {self.unit} done" if self.total else ""
        return f"in phase {self.phase!r}{steps}"


@contextmanager
def pulse(
    console: Console, quiet: float = PULSE, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[str, int, int], None]]:
    """A line every `quiet` seconds, whatever is done meanwhile; what is yielded is told of it.

    It takes a unit, how many are done, and of how many, 0: nobody knows. Time left is at the pace
    since it was first told of a unit.
    """
    started, known, ended = clock(), dict[str, tuple[float, int, int]](), threading.Event()

    def told(unit: str, done: int, total: int) -> None:
        since = known[unit][0] if unit in known else clock()
        known[unit] = since, done, total

    def words() -> Iterator[str]:
        for unit, (_, done, total) in known.copy().items():
            yield f"{done} of {total} {unit} done" if total else f"{done} {unit} done"
        for since, done, total in known.copy().values():
            if 0 < done < total:
                yield f"about {duration((clock() - since) / done * (total - done))} left"

    def beat() -> None:
        while not ended.wait(quiet):
            line = ", ".join(words()) or "no sum is opened yet"
            seconds = clock() - started
            console.print(f"[{seconds:6.1f} s] {line}", markup=False, highlight=False)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        ended.set()
        thread.join()


@contextmanager
def reporting(
    console: Console,
    foresee: Callable[[Calibration], Foresight | None] | None = None,
    unit: str = "iterations",
) -> Iterator[Reporter]:
    """A reporter that fits the console; foresee, unit: see `Reporter`."""
    if not console.is_terminal:
        yield Reporter(console, foresee=foresee, unit=unit)
        return
    words = TextColumn("{task.description:<26}", markup=False)
    counted = (BarColumn(bar_width=18), MofNCompleteColumn())
    timed = (TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(words, *counted, *timed, console=console) as bars:
        reporter = Reporter(console, bars, foresee, unit=unit)
        yield reporter
        reporter.finish()
