"""A page of all results side by side, made of the JSON files of `cohort reproduce --out`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sims.lab.papers.command import cells_of, figure, ours
from sims.lab.papers.item import PAPERS, Item

HEAD = """# The papers, table by table

`cohort reproduce --list` shows all items, `cohort reproduce 000 figure-1` runs one and writes its
table and figure, `--quick` in seconds. Tables that do not ship with scikit-learn are read from
`data`, or from the folder given by `--data-folder`: each section names its files. This page is made
by `cohort reproduce all --out DIR --page docs/papers.md` (without a paper: from the results that
are in DIR). Seconds are wall clock on two cores that others worked on as well: up to three times
what a quiet machine takes.

Of each item, the first figure that its paper prints; where a paper prints none, the first of ours.
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
    yield "| paper | item | command | its first figure | paper | ours | figures | seconds |"
    yield "|---|---|---|---|---:|---:|---:|---:|"
    for item in items:
        document = documents.get((item.paper, item.name))
        cells = [item.paper, item.about.title, f"`{item.command}`"]
        if document:
            rows = document["rows"]
            first = next((row for row in rows if row["paper"] is not None), rows[0])
            cells += [first["quantity"], figure(first["paper"]), ours(first), str(len(rows))]
            cells.append(f"{document['seconds']:,.0f}")
        else:
            cells += ["not run", "", "", "", ""]
        yield line(cells)
    yield ""


def line(cells: Iterable[str]) -> str:
    """Of a table."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _section(item: Item, document: dict[str, Any] | None) -> Iterator[str]:
    yield f"### {item.name}: {item.about.title}\n"
    took = f"{document['seconds']:,.0f} s" if document else f"about {item.about.seconds:,.0f} s"
    yield f"`{item.command}` ({took})\n"
    for need in item.about.data:
        yield f"- data: {need.words}"
    for words in item.about.unknown:
        yield f"- not in the paper: {words}"
    for words in (*item.about.remarks, *(document["notes"] if document else ())):
        yield f"- {words}"
    yield ""
    if document is None:
        yield "Not run for this page.\n"
        return
    yield "| | paper | ours | seconds | |\n|---|---:|---:|---:|---|"
    for row in document["rows"]:
        yield line(cells_of(row))
    yield ""
