"""A deployment's runs as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from coordinator.costs import PHASES

_STYLES = {"finished": "green", "aborted": "bold red", "running": "yellow"}


def status_tables(sessions: Sequence[dict[str, Any]]) -> Iterator[Table]:
    """All runs, then the latest one's parties and phases."""
    yield _runs(sessions)
    if sessions:
        yield _parties(sessions[0])
        if "seconds" in sessions[0]:
            yield _phases(sessions[0])


def megabytes(count: int) -> str:
    """12_345_678 as "12.3 MB"."""
    return f"{count / 1e6:,.1f} MB"


def party_words(run: dict[str, Any], name: str) -> str:
    """A party's name, and whether others stand in for it."""
    return f"{name} (missing: others stand in)" if name in run.get("missing", ()) else name


def _runs(sessions: Sequence[dict[str, Any]]) -> Table:
    table = _table("Runs", "Session", "State", "Phase", "Iteration", "Updated", "Reason")
    for run in sessions:
        state = Text(str(run["state"]), style=_STYLES.get(str(run["state"]), ""))
        iteration = f"{run['iteration']}/{run['rounds']}"
        cells = (run["session"], run["phase"], iteration, run["updated"], run["reason"])
        first, *rest = (Text(str(cell)) for cell in cells)
        table.add_row(first, state, *rest)
    return table


def _parties(run: dict[str, Any]) -> Table:
    table = _table(f"Parties of {run['session']}", "Party", "Rows", "Traffic")
    for name, party in run["parties"].items():
        table.add_row(Text(party_words(run, name)), f"{party['rows']:,}", megabytes(party["bytes"]))
    return table


def _phases(run: dict[str, Any]) -> Table:
    table = _table("Phases", "Phase", "Seconds", "Largest party's traffic")
    for phase in PHASES:
        seconds = run["seconds"].get(phase, 0.0)
        table.add_row(phase, f"{seconds:.1f}", megabytes(run["bytes_per_party"].get(phase, 0)))
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=Text(title), title_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    return table
