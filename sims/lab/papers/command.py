"""Runs items and writes what they find: JSON, CSV, SVG, and a table for people."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from rich.table import Table
from rich.text import Text

from ciphercohort.report.plots import STYLE
from ciphercohort.results.documents import to_json
from protocols.errors import DataError
from sims.lab.papers.data import missing_words
from sims.lab.papers.item import MISSING, NOT_HERE, PAPERS, Item, Result, Settings

ROUNDING = 1e-12
"""Standard errors below are of figures that are all the same."""


def reproduce(item: Item, settings: Settings, out: Path | None) -> dict[str, Any]:
    """One item; its document, which `out` gets as PAPER-NAME.json, .csv and .svg.

    Raises:
        DataError: a table is missing, in the full setting.
    """
    began = time.perf_counter()
    result = item.run(settings)
    if not result.rows:
        raise DataError(missing_words(settings.data_folder, *item.about.data))
    document = document_of(item, settings, result, time.perf_counter() - began)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        stem = item.stem
        (out / f"{stem}.json").write_text(to_json(document), encoding="utf-8")
        pd.DataFrame(document["rows"]).to_csv(out / f"{stem}.csv", index=False)
        if result.draw:
            with mpl.rc_context({**STYLE, "svg.hashsalt": stem}):
                result.draw().savefig(out / f"{stem}.svg", metadata={"Date": None})
    return document


def document_of(item: Item, settings: Settings, result: Result, seconds: float) -> dict[str, Any]:
    """JSON-ready.

    made: names of tables that were made in place of missing files.
    """
    missing = [need.name for need in item.about.data if need.found(settings.data_folder) is None]
    return {
        "paper": item.paper,
        "item": item.name,
        "title": item.about.title,
        "verdict": item.about.verdict,
        "command": item.command,
        "quick": settings.quick,
        "made": missing if settings.quick else [],
        "data": [need.words for need in item.about.data],
        "unknown": list(item.about.unknown),
        "remarks": list(item.about.remarks),
        "notes": list(result.notes),
        "rows": [asdict(row) for row in result.rows],
        "seconds": seconds,
        "drawn": result.draw is not None,
    }


def figure(value: float | None) -> str:
    """In a table."""
    return "" if value is None else f"{value:.5g}"


def duration_cell(value: float | None) -> str:
    """Seconds in a table."""
    return "" if value is None else "< 0.01" if value < 0.01 else f"{value:.3g}"


def ours(row: Mapping[str, Any]) -> str:
    """With its standard error."""
    error = row["std_error"]
    if error is None:
        return figure(row["ours"])
    return f"{figure(row['ours'])} ± {error if error > ROUNDING else 0.0:.2g}"


def cells_of(row: dict[str, Any]) -> tuple[str, ...]:
    """Of a table: quantity, the paper's figure, ours by its rule, ours, seconds, note."""
    figures = figure(row["paper"]), figure(row["published"]), ours(row)
    return row["quantity"], *figures, duration_cell(row["seconds"]), row["note"]


def table(document: dict[str, Any]) -> Table:
    """The paper's figures beside ours."""
    title = f"{document['paper']} {document['item']}, {document['verdict']}: {document['title']}"
    shown = Table(title=Text(title), title_style="bold")
    for name in ("", "paper", "as published", "ours", "seconds", "note"):
        right = name not in ("", "note")
        shown.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in document["rows"]:
        shown.add_row(*map(Text, cells_of(row)))
    return shown


def lines(document: dict[str, Any]) -> Iterable[str]:
    """What stands below the table."""
    if document["quick"]:
        yield "quick setting: few rows and seeds, to see that it runs; no figure to compare"
    if document["made"]:
        yield f"made in place of missing files: {', '.join(document['made'])}"
    for title in ("unknown", "remarks", "notes"):
        for words in document[title]:
            yield f"{'not in the paper: ' if title == 'unknown' else ''}{words}"


def listing(items: Iterable[Item]) -> Table:
    """Every item: paper, name, verdict, what, seconds; then what is missing, and why."""
    papers = "\n".join(f"{number}: {title}" for number, title in PAPERS.items())
    shown = Table(
        title=Text("Tables and figures of the papers"), caption=Text(papers, justify="left")
    )
    for name in ("paper", "item", "verdict", "what", "seconds, full"):
        shown.add_column(name, justify="right" if name.startswith("sec") else "left")
    for item in items:
        about = item.about
        took = f"{about.seconds:,.0f}"
        shown.add_row(item.paper, item.name, about.verdict, Text(about.title), took)
    for each in NOT_HERE:
        shown.add_row(each.paper, "", MISSING, Text(f"{each.what}: {each.reason}"), "")
    return shown
