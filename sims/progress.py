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
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

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

    phase, done, total: as of the last event; done counts finished iterations.
    """

    def __init__(self, console: Console) -> None:
        self.phase, self.done, self.total = "load", 0, 0
        self._console = console
        self._started = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if event.kind == "phase":
            self.phase = event.phase
            self.begin(PHASES.get(event.phase, event.phase))
        else:
            self.done, self.total = event.done, event.total
            self.step()

    def begin(self, words: str) -> None:
        """A phase begins."""
        seconds = time.monotonic() - self._started
        self._console.print(f"[{seconds:6.1f} s] {words}", markup=False, highlight=False)

    def step(self) -> None:
        """A step of the phase is done."""

    def finish(self) -> None:
        """The last phase is over."""

    @property
    def place(self) -> str:
        """Where the run is, in words."""
        steps = f", {self.done} of {self.total} iterations done" if self.total else ""
        return f"in phase {self.phase!r}{steps}"


class BarReporter(Reporter):
    """The same on a terminal."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.bars = Progress(
            TextColumn("{task.description:<26}", markup=False),
            BarColumn(bar_width=18),
            _StepsColumn(),
            _TimeColumn(),
            console=console,
        )
        self._task: TaskID | None = None

    def begin(self, words: str) -> None:
        """Complete the phase before, add a line."""
        self.finish()
        self._task = self.bars.add_task(words, total=None)

    def step(self) -> None:
        """Move the bar."""
        if self._task is None:
            return
        lap = time.monotonic()
        self.bars.update(self._task, completed=self.done, total=self.total, lap=lap)

    def finish(self) -> None:
        """Stop the clock of the phase."""
        if self._task is None:
            return
        task = next(task for task in self.bars.tasks if task.id == self._task)
        total = task.total or 1
        self.bars.update(self._task, completed=total, total=total)
        self._task = None


class _StepsColumn(ProgressColumn):
    """Iterations done, where there are any."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.completed:.0f}/{task.total:.0f}" if "lap" in task.fields else "")


class _TimeColumn(ProgressColumn):
    """Time taken; while steps are counted, the rest by the mean step so far."""

    def render(self, task: Task) -> Text:
        elapsed = task.finished_time if task.finished else task.elapsed
        words = f"{elapsed or 0.0:6.1f} s"
        left = seconds_left(task)
        if left is not None:
            words += f", about {left:.0f} s left"
        return Text(words)


def seconds_left(task: Task) -> float | None:
    """Mean duration of the finished steps times the steps to go, less the time since the last.

    None before the first step is done, and when nothing is left.
    """
    if task.finished or not task.completed or task.total is None or task.start_time is None:
        return None
    lap = float(task.fields["lap"])
    mean = (lap - task.start_time) / task.completed
    return max(mean * (task.total - task.completed) - (task.get_time() - lap), 0.0)


@contextmanager
def reporting(console: Console) -> Iterator[Reporter]:
    """A reporter that fits the console."""
    if not console.is_terminal:
        reporter = Reporter(console)
        yield reporter
        return
    bars = BarReporter(console)
    with bars.bars:
        yield bars
        bars.finish()
