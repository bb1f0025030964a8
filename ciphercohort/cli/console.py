"""How the commands talk to a person: one clear message per refusal, tables, quiet libraries."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ciphercohort.results.exact_sums import marks
from protocols.errors import CohortError
from protocols.words import count

if TYPE_CHECKING:
    from ciphercohort.results.result import RunResult
    from coordinator.replay import Check

REFUSED, FAILED, INTERRUPTED = 2, 1, 130

OURS = ("ciphercohort", "coordinator", "parties", "protocols", "sims")


class Screen(Console):
    """Tables break lines between words, not within, where their columns have room for that."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As of a `Console`."""
        for shown in objects:
            if isinstance(shown, Table):
                _keep_words(shown, self.width)
        super().print(*objects, **options)


def _keep_words(table: Table, width: int) -> None:
    """Columns at least as wide as their longest word, where all fit; the narrow ones first.

    Where not even the words fit, lines break within words, and nothing is cut off.
    """
    # A title is as wide as its table.
    table.min_width = min(width, max(map(len, str(table.title or "").split()), default=0))
    cells = [[str(c) for c in (column.header, *column.cells)] for column in table.columns]
    words = [max((len(w) for c in column for w in c.split()), default=0) for column in cells]
    whole = [max(len(line) for c in column for line in c.split("\n")) for column in cells]
    room = width - 3 * len(cells) - 1  # borders and padding
    for column in table.columns:
        column.overflow = "fold"
    if sum(whole) <= room or sum(words) > room:
        return
    spare = room - sum(words)
    by_need = sorted(range(len(cells)), key=lambda k: whole[k] - words[k])
    for position, k in enumerate(by_need):
        more = min(whole[k] - words[k], spare // (len(cells) - position))
        table.columns[k].width, spare = words[k] + more, spare - more


def stdout() -> Console:
    """The console of results."""
    return Screen(highlight=False, soft_wrap=False)


def stderr() -> Console:
    """The console of everything else."""
    return Console(stderr=True, highlight=False)


def say(console: Console, words: str, style: str = "") -> None:
    """Print text as it is: brackets are no markup, and long lines wrap only on a terminal."""
    console.print(Text(words, style=style), soft_wrap=not console.is_terminal)


def say_marks(console: Console, **is_so: bool) -> None:
    """What a run, or what it uses, has to say of itself: see `exact_sums.marks`."""
    for words in marks(**is_so).values():
        say(console, words, "bold red")


@contextmanager
def refusals(debug: bool = False) -> Iterator[Console]:
    """Turn errors that a user can cure into one message and an exit code; quiet the libraries.

    debug: let errors through with their traceback, and show warnings of libraries.
    """
    console = stderr()
    try:
        with _quiet(console, debug):
            yield console
    except CohortError as error:
        if debug:
            raise
        say(console, f"cohort: {error}", "bold red")
        raise typer.Exit(REFUSED) from None
    except OSError as error:
        if debug or isinstance(error, BrokenPipeError):
            raise
        where = f"{error.filename}: " if error.filename else ""
        say(console, f"cohort: {where}{error.strerror or error}", "bold red")
        raise typer.Exit(REFUSED) from None
    except KeyboardInterrupt:
        say(console, "cohort: interrupted", "bold red")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _quiet(console: Console, debug: bool) -> Iterator[None]:
    # Before flwr is imported: no telemetry, no look for a newer version.
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
    flower, root, handler = logging.getLogger("flwr"), logging.getLogger(), _Handler(console)
    # Flower sets its own level and handler at import; a filter stays.
    flower.addFilter(_only_errors)
    root.addHandler(handler)
    try:
        with warnings.catch_warnings():
            if not debug:
                warnings.simplefilter("ignore")
            yield
    finally:
        flower.removeFilter(_only_errors)
        root.removeHandler(handler)


def _only_errors(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


class _Handler(logging.Handler):
    """Log messages of ciphercohort, above the progress bars."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        if record.name.partition(".")[0] in OURS:
            say(self._console, f"note: {record.getMessage()}", "yellow")


def closing_table(result: RunResult) -> Table | Text:
    """The decrypted model beside its twin and the plain optimum; without test rows the title."""
    from ciphercohort.report.report import score_table

    tested = count(len(result.test_y), "test row")
    title = Text(f"Scores on {tested}" if result.tested else "No test rows")
    for words in marks(insecure=result.insecure, seeded=result.seeded).values():
        title.append(f"\n{words}", style="bold red")
    if not result.tested:
        return title
    table = Table(title=title, title_style="")
    head, rows = score_table(result)
    for position, (name, _) in enumerate(head):
        table.add_column(Text(name), justify="right" if position else "left")
    for position, row in enumerate(rows):
        strong = result.model.numeric and position % len(result.models) == 0
        table.add_row(*(Text(text) for text, _ in row), style="bold" if strong else "")
    return table


def closing_lines(result: RunResult) -> Iterator[str]:
    """What else a person wants to know at the end."""
    from ciphercohort.report.report import overall_lines
    from ciphercohort.results.plan_figures import coalitions_of, composed_of, encryption_words
    from ciphercohort.results.slot_report import slot_lines
    from protocols.words import HOLDS, promise, towards_one

    yield from overall_lines(result)
    if result.tested and not result.model.numeric:
        yield _found(result)
    if result.filled_words:
        yield result.filled_words
    summary, privacy = result.summary(), result.plan.privacy
    yield f"largest weight difference to the twin: {result.max_abs_diff_to_twin:.2g}"
    yield (
        f"{summary['iterations']} iterations, {summary['seconds_per_iteration_all']:.2f} s each, "
        f"{summary['seconds_per_iteration']:.2f} s of it the coordinator's own; "
        f"{result.total_seconds:.1f} s in all, with data, twin and optimum"
    )
    if privacy:
        yield (f"privacy: {promise(privacy.epsilon, privacy.delta, privacy.colluders)}")
        if line := towards_one(coalitions_of(result.certificate)):
            yield line
        if result.unmet:
            yield "certificate: NOT satisfied, for the schema was inferred from the private rows"
        composed = composed_of(result.certificate, privacy.colluders)
        if composed is not None:
            yield f"all rounds composed: epsilon={composed:.4g}; {HOLDS}"
        if result.promise is not None:
            yield from result.promise.lines()
    else:
        yield "privacy: no noise was added"
    yield f"encryption: {encryption_words(result.plan)}"
    yield from slot_lines(result.plan, result.schema.norm_bound)


def _found(result: RunResult) -> str:
    """How many test rows of each class were found."""
    from ciphercohort.report.report import class_names, confusion
    from protocols.words import count

    if result.model.several:
        table = confusion(result)
        found_of = zip(class_names(result), table.diagonal(), table.sum(axis=1), strict=True)
        each = (f"{name} {found:,} of {total:,}" for name, found, total in found_of)
        return f"test rows found, by class: {', '.join(each)}"
    (kept, alarms), (missed, found) = confusion(result)
    return (
        f"at probability 1/2: {found:,} of {count(found + missed, 'positive row')} found, "
        f"{alarms:,} of {count(kept + alarms, 'negative row')} called positive"
    )


def tell(checks: list[Check], title: str, fine: str, as_json: bool) -> None:
    """Verdicts as a table or as JSON; a failed check is an exit code.

    Raises:
        Exit: a check failed.
    """
    from ciphercohort.results.documents import to_json

    passed = all(check.passed for check in checks)
    if as_json:
        found = [asdict(check) for check in checks]
        sys.stdout.write(to_json({"passed": passed, "checks": found}, indent=None))
    else:
        verdict = fine if passed else "CHECKS FAILED"
        stdout().print(_checks_table(checks, f"{title}: {verdict}"))
    if not passed:
        raise typer.Exit(FAILED)


def _checks_table(checks: list[Check], title: str) -> Table:
    table = Table(title=Text(title), title_style="bold")
    for name in ("", "Check", "What was found"):
        table.add_column(name, overflow="fold")
    for check in checks:
        mark = Text("ok", style="green") if check.passed else Text("FAILED", style="bold red")
        table.add_row(mark, Text(check.name), Text(check.detail))
    return table
