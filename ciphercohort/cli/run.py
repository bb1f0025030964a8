"""What `cohort simulate` says: before the run, as it goes on, and of its result."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

import typer

from ciphercohort.cli.console import (
    INTERRUPTED,
    closing_lines,
    closing_table,
    say,
    say_marks,
    stdout,
)
from ciphercohort.job.inputs import GIVEN, INFERRED, schema_notes
from ciphercohort.job.layout import PRIVATE, RELEASE, REPORT, STATUS, read_status
from ciphercohort.results.exact_sums import SECURE
from protocols.words import promise

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from ciphercohort.cli.progress import Reporter
    from ciphercohort.job.config import SimulationConfig
    from ciphercohort.planning.foresight import Foresight
    from ciphercohort.results.result import RunResult
    from protocols.privacy.calibrate.calibration import Calibration


def announce(console: Console, config: SimulationConfig, chosen: bool) -> None:
    """Say before the run what it will promise; chosen: whether epsilon was given."""
    seeded = config.seed is not None and config.epsilon is not None
    say_marks(console, insecure=config.profile != SECURE, seeded=seeded)
    for told in _announced(config):
        say(console, told, "bold yellow")
    if config.epsilon is None:
        say(console, "privacy: no noise; the model may say something about single rows")
        return
    default = "" if chosen else " (the default; choose with --epsilon, or --no-privacy)"
    say(
        console,
        f"privacy: {promise(config.epsilon, config.delta, config.colluders)}{default}",
    )


def _announced(config: SimulationConfig) -> tuple[str, ...]:
    """What is known of the schema before anything is read."""
    source = INFERRED if config.schema is None and config.data is not None else GIVEN
    return schema_notes(source, private=config.epsilon is not None)


@contextmanager
def progress(console: Console, config: SimulationConfig) -> Iterator[Reporter]:
    """Who is to be told of a run; after Ctrl-C say where it stopped, and exit."""
    from ciphercohort.cli.progress import PHASES, reporting
    from ciphercohort.cli.progress import Reporter as Progress

    def foreseen(found: Calibration) -> Foresight | None:
        from ciphercohort.planning.foresight import foresee

        return foresee(config, found)

    reporter = Progress(console)
    try:
        # Whatever a library prints must not mix with the result.
        with reporting(console, foreseen) as reporter, redirect_stdout(sys.stderr):
            reporter.begin(PHASES["load"])
            yield reporter
    except KeyboardInterrupt:
        told = ""
        if config.out is not None and _is_recorded(config.out):
            told = f"; {config.out / RELEASE / STATUS} says so, too"
        say(console, f"cohort: interrupted {reporter.place}; no key is kept{told}", "bold red")
        raise typer.Exit(INTERRUPTED) from None


def _is_recorded(out: Path) -> bool:
    """Whether the run folder is this run's, and not one that an earlier run left."""
    return (read_status(out) or {}).get("pid") == os.getpid()


def show(
    console: Console,
    config: SimulationConfig,
    result: RunResult,
    as_json: bool,
    reporter: Reporter | None = None,
) -> None:
    """Print the scores as a table or as JSON, on stderr the warnings; reporter: of the run."""
    from ciphercohort.results.documents import to_json
    from sims.ledgers import spent_lines

    if result.verdict and not as_json:
        say(stdout(), f"warning: {result.verdict}", "bold yellow")
    for warning in result.notes if as_json else result.warnings:
        told = (*reporter.told, *_announced(config)) if reporter else ()
        if warning not in told:
            say(console, f"warning: {warning}", "yellow")
    foresight = reporter.foresight if reporter else None
    if as_json:
        predicted = {"predicted": foresight.to_dict()} if foresight else {}
        sys.stdout.write(to_json({**result.summary(), **predicted}, indent=None))
        return
    screen = stdout()
    screen.print(closing_table(result))
    for line in closing_lines(result):
        say(screen, line)
    if result.evaluation:
        say(screen, f"{result.evaluation.title}:")
        for name, value, errors in result.evaluation.measures():
            say(screen, f"  {name}: {value}{f' ({errors})' if errors else ''}")
    if result.inference:
        screen.print(
            result.inference.text(marked=False), markup=False, highlight=False, soft_wrap=True
        )
    if foresight:
        say(screen, foresight.compared(result))
    for line in spent_lines(config, result.plan.names):
        say(screen, line)
    if config.out is not None:
        say(
            screen,
            f"report: {config.out / PRIVATE / REPORT}, for you alone: like this screen it has "
            "figures of rows",
        )
        say(screen, _mailable(config.out / RELEASE / REPORT, result))


def _mailable(report: Path, result: RunResult) -> str:
    """What may be done with the report that a coordinator could have made."""
    if result.schema_from == INFERRED:
        return f"not to mail: {report}: ranges and categories in it were read from the rows"
    if result.plan.privacy is None:
        return (
            f"to mail, where the model itself may be: {report}, which has no other figure of rows"
        )
    return f"to mail: {report}, which has no figure of rows"
