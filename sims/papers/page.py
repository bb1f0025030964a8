"""A page of all results side by side, made of the JSON files of `cohort reproduce --out`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sims.papers.command import duration_cell, figure, ours
from sims.papers.item import PAPERS, Item

HEAD = """# The papers, table by table

`cohort reproduce --list` shows all items, `cohort reproduce 000 figure-1` runs one and writes its
table and figure, `--quick` in seconds. Tables that do not ship with scikit-learn come from the
folder given by `--data-folder`. This page is made by `cohort reproduce all --out DIR --page
docs/papers.md` (without a paper: from the results that are in DIR). Seconds are wall
clock on two cores that others worked on as well: up to twice what a quiet machine takes.
"""


def collected(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Documents of full runs in a folder, by paper and item."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {(d["paper"], d["item"]): d for d in found if not d["quick"]}


def page(items: Iterable[Item], documents: dict[tuple[str, str], dict[str, Any]]) -> str:
    """The page; an item without a result says so."""
    items = tuple(items)
    parts, paper = [HEAD, "\n".join(_index(items, documents))], ""
    for item in items:
        if item.paper != paper:
            paper = item.paper
            parts.append(f"## {paper}: {PAPERS[paper]}\n")
        parts.append("\n".join(_section(item, documents.get((item.paper, item.name)))))
    return "\n".join(parts)


def _index(
    items: Iterable[Item], documents: dict[tuple[str, str], dict[str, Any]]
) -> Iterator[str]:
    yield "| paper | item | command | figures | seconds |\n|---|---|---|---:|---:|"
    for item in items:
        document = documents.get((item.paper, item.name))
        found = f"{len(document['rows'])} | {document['seconds']:,.0f}" if document else "not run |"
        yield f"| {item.paper} | {item.title} | `{item.command}` | {found} |"
    yield ""


def _section(item: Item, document: dict[str, Any] | None) -> Iterator[str]:
    yield f"### {item.name}: {item.title}\n"
    took = f"{document['seconds']:,.0f} s" if document else f"about {item.seconds:,.0f} s"
    yield f"`{item.command}` ({took})\n"
    for words in item.sources:
        yield f"- data: {words}"
    for words in item.unknown:
        yield f"- not in the paper: {words}"
    for words in (*item.remarks, *(document["notes"] if document else ())):
        yield f"- {words}"
    yield ""
    if document is None:
        yield "Not run for this page.\n"
        return
    yield "| | paper | ours | seconds | |\n|---|---:|---:|---:|---|"
    for row in document["rows"]:
        cells = (row["quantity"], figure(row["paper"]), ours(row), duration_cell(row["seconds"]))
        yield f"| {' | '.join(cell.replace('|', '/') for cell in (*cells, row['note']))} |"
    yield ""
