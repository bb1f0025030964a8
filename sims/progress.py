"""What a person sees while a run goes on, all of it on stderr.

On a terminal: one line per phase with its time, and a bar with the time left where the number of
steps is known. Elsewhere: one plain line per phase.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
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

if TYPE_CHECKING:
    from sims.simulation import Event

PHASES = {
    "load": "load the libraries",
    "data": "read and encode the rows",
    "agree": "agree on the plan",
    "keys": "make the joint keys",
    "encrypt": "encrypt every party's rows",
    "train": "train on ciphertexts",
    "decrypt": "decrypt the model jointly",
    "twin": "compare with plaintext",
}


class Reporter:
    """Takes a run's events; remembers where the run is, for the message when it is stopped.

    phase, done, total: as of the last event; done counts finished iterations. bars: on a terminal.
    """

    def __init__(self, console: Console, bars: Progress | None = None) -> None:
        self.phase, self.done, self.total = "load", 0, 0
        self._console, self._bars = console, bars
        self._task: TaskID | None = None
        self._started = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if event.kind == "phase":
            self.phase = event.phase
            self.begin(PHASES.get(event.phase, event.phase))
        else:
            self.step(event.done, event.total)

    def begin(self, words: str) -> None:
        """A phase begins, and the one before is over."""
        self.finish()
        if self._bars is not None:
            self._task = self._bars.add_task(words, total=None)
            return
        seconds = time.monotonic() - self._started
        self._console.print(f"[{seconds:6.1f} s] {words}", markup=False, highlight=False)

    def step(self, done: int, total: int) -> None:
        """So many steps of the phase are done."""
        self.done, self.total = done, total
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, completed=done, total=total)

    def finish(self) -> None:
        """Stop the clock of the phase."""
        if self._bars is not None and self._task is not None:
            total = self._bars.tasks[self._task].total or 1
            self._bars.update(self._task, completed=total, total=total)
            self._task = None

    @property
    def place(self) -> str:
        """Where the run is, in words."""
        steps = f", {self.done} of {self.total} iterations done" if self.total else ""
        return f"in phase {self.phase!r}{steps}"


@contextmanager
def reporting(console: Console) -> Iterator[Reporter]:
    """A reporter that fits the console."""
    if not console.is_terminal:
        yield Reporter(console)
        return
    words = TextColumn("{task.description:<26}", markup=False)
    counted = (BarColumn(bar_width=18), MofNCompleteColumn())
    timed = (TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(words, *counted, *timed, console=console) as bars:
        reporter = Reporter(console, bars)
        yield reporter
        reporter.finish()
