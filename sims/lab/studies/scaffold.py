"""What the studies share: one way to write tables and figures, and to show how far they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ciphercohort.cli.console import say, stdout
from ciphercohort.report.plots import STYLE


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], **options: Any) -> None:
    """One CSV line per row, with the columns of the first; options: of pandas."""
    pd.DataFrame(list(rows)).to_csv(path, index=False, **options)


def write_lines(path: Path, lines: Iterable[str], *, shown: bool = False) -> None:
    """Text for people; shown: on the console of results as well."""
    text = list(lines)
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    for line in text if shown else ():
        say(stdout(), line)


def save_figure(stem: Path, draw: Callable[..., Figure], *arguments: Any) -> None:
    """stem.svg, without a date, and stem.png of what `draw` makes of the arguments."""
    with mpl.rc_context(STYLE):
        figure = draw(*arguments)
        figure.savefig(f"{stem}.svg", metadata={"Date": None})
        figure.savefig(f"{stem}.png", dpi=150)


@contextmanager
def progress(
    console: Console, total: float
) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """(describe, advance) of a bar; without a terminal, descriptions are plain lines."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task("", total=total)

        def describe(words: str) -> None:
            bars.update(task, description=words)
            if not console.is_terminal:
                say(console, words)

        yield describe, lambda: bars.advance(task)
