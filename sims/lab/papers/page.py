"""A page of all items by verdict, made of the JSON files of `cohort reproduce --out`.

Rows whose quantities differ in one part alone stand in one line, their figures in the same order:
the part is chosen for each item so that the fewest lines are left. Notes of rows, standard errors
of such lines and seconds are in the files that an item's command writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sims.lab.papers.command import figure, ours
from sims.lab.papers.item import ABSENT, MISSING, NOT_HERE, PAPERS, VERDICTS, Item

HEAD = """# The papers, item by item

- **reproduced**: by the paper's own rule, the paper's result;
- **corrected**: reproduced, then a slip of the paper mended;
- **stand-in**: on other data, or with inputs that the paper does not give;
- **missing**: not computed here.

Columns: what the paper prints; what its own rule or code gives, where ours is another; ours.
Figures of a cell are in the order of its names; words of the line above are left out.

`cohort reproduce 000 figure-1 --out DIR` writes an item's table, with notes and seconds of each
row, and figure; `--quick` takes seconds. Tables, listed below, are read from `data`, or
`--data-folder`.
"""
PICTURES = "papers"
"""Folder beside the page; an item's picture is PAPER-NAME.svg in it."""
ABREAST = 8
"""Figures that a cell has room for."""
COLUMNS = {"paper": "paper", "published": "as published", "ours": "ours"}
"""Of a row; those that no row has are left out."""
PART = re.compile(r"(?<=[,:]) (?![^\[]*\])")
"""Between parts of a quantity; an interval's ends stay together."""


def collected(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Documents of full runs in a folder, by paper and item."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {(d["paper"], d["item"]): d for d in found if not d["quick"]}


def page(
    items: Iterable[Item],
    documents: Mapping[tuple[str, str], dict[str, Any]],
    folder: Path | None = None,
) -> str:
    """The page; an item without a result says so; folder: of the page, for its pictures."""
    items = tuple(items)
    given = {w for d in documents.values() for w in d["data"] if ABSENT + w not in d["notes"]}
    absent = {w for d in documents.values() for w in d["notes"] if w.startswith(ABSENT)}
    absent -= {ABSENT + words for words in given}
    parts = [HEAD, "\n".join(_index(items))]
    for paper, title in PAPERS.items():
        parts.append(f"## {paper}: {title}\n")
        gaps = [each for each in NOT_HERE if each.paper == paper]
        if gaps:
            parts.append("".join(f"- missing: {each.reason}\n" for each in gaps))
        for item in (each for each in items if each.paper == paper):
            found = documents.get((item.paper, item.name))
            picture = folder / PICTURES / f"{item.stem}.svg" if folder else None
            parts.append("\n".join(_section(item, found, picture, absent)))
    parts.append("## Tables\n\n" + "\n".join(_tables(items, absent)) + "\n")
    return "\n".join(parts)


def _index(items: Sequence[Item]) -> Iterator[str]:
    """Papers by verdicts."""
    yield line(("", *VERDICTS))
    yield "|---" * (len(VERDICTS) + 1) + "|"
    for paper in PAPERS:
        named = [(i.about.verdict, f"[{i.name}](#{i.stem})") for i in items if i.paper == paper]
        named += [(MISSING, each.what) for each in NOT_HERE if each.paper == paper]
        yield line((paper, *("; ".join(w for v, w in named if v == each) for each in VERDICTS)))
    yield ""


def _tables(items: Iterable[Item], absent: Collection[str]) -> Iterator[str]:
    """Files and shapes by source; absent: what the runs say of files that they had not."""
    sources: dict[str, list[str]] = {}
    for need in dict.fromkeys(need for item in items for need in item.about.data):
        sources.setdefault(need.source, []).append(
            f"{need.file} ({need.shape}{', not given here' * (ABSENT + need.words in absent)})"
        )
    for source, files in sources.items():
        yield f"- {', '.join(files)}: {source}"


def line(cells: Iterable[str]) -> str:
    """Of a table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


Rows = Sequence[Mapping[str, Any]]


def merged(rows: Rows) -> list[Rows]:
    """Rows that differ in one part of their quantity; the part is chosen for the fewest groups."""

    def by(place: int) -> list[Rows]:
        groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
        for row in rows:
            parts = PART.split(row["quantity"])
            rest = (*parts[:place], "", *parts[place + 1 :]) if place < len(parts) else tuple(parts)
            groups.setdefault(rest, []).append(row)
        return list(groups.values())

    most = max(len(PART.split(row["quantity"])) for row in rows)
    found = [by(place) for place in range(most)]
    return min(found, key=lambda groups: (max(map(len, groups)) > ABREAST, len(groups)))


def parts_of(rows: Rows) -> list[str]:
    """What rows that stand in one line have in common, the part that differs as a list."""
    found = []
    for place in zip(*(PART.split(row["quantity"]) for row in rows), strict=True):
        first, *others = (part.rstrip(",:") for part in dict.fromkeys(place))
        head = first.rpartition(" ")[0] + " "
        found.append("; ".join([first, *(other.removeprefix(head) for other in others)]))
    return found


def table(rows: Rows) -> Iterator[str]:
    """A line for each group; parts that all lines have stand in its head."""
    groups = merged(rows)
    names = [parts_of(group) for group in groups]
    shared = [part for part in names[0] if all(part in name for name in names)]
    if len(groups) == 1:
        shared = shared[-1:]
    columns = [key for key in COLUMNS if any(row[key] is not None for row in rows)]
    yield line((", ".join(shared), *(COLUMNS[key] for key in columns)))
    yield "|---" + "|---:" * len(columns) + "|"
    own = [[part for part in name if part not in shared] for name in names]
    for words, group in zip(ditto(own), groups, strict=True):
        yield line((words, *(_figures(group, key) for key in columns)))


def ditto(names: Sequence[Sequence[str]]) -> Iterator[str]:
    """Parts without those at both ends that a line has in common with the line above it."""
    above: Sequence[str] = ()
    for name in names:
        most = min(len(name), len(above)) - 1
        first = next((k for k in range(most) if name[k] != above[k]), max(most, 0))
        tail = range(1, most - first + 1)
        last = next((k - 1 for k in tail if name[-k] != above[-k]), max(most - first, 0))
        yield ", ".join(name[first : len(name) - last])
        above = name


def printless(rows: Rows) -> bool:
    """Whether the paper has no figure to put beside ours."""
    return all(row["paper"] is None and row["published"] is None for row in rows)


def _figures(rows: Rows, key: str) -> str:
    """Of a column; one where all are the same, with its standard error where it stands alone."""
    if len(rows) == 1 and key == "ours":
        return ours(rows[0])
    shown = [figure(row[key]) or "none" for row in rows]
    return figure(rows[0][key]) if len(set(shown)) == 1 else "; ".join(shown)


def _section(
    item: Item, document: Mapping[str, Any] | None, picture: Path | None, absent: Collection[str]
) -> Iterator[str]:
    about = item.about
    title = about.title[0].upper() + about.title[1:]
    yield f"### {item.paper} {item.name}\n"
    yield f"**{about.verdict.capitalize()}.** {title}: {about.finding}.\n"
    if picture and picture.is_file():
        yield f"![{item.stem}]({PICTURES}/{picture.name})\n"
    if not document:
        yield "Not run for this page."
    elif not (document["drawn"] and printless(document["rows"])):
        yield from table(document["rows"])
    took = f"{document['seconds']:,.0f} s" if document else "notes"
    yield f"\n<details markdown>\n<summary>{took}</summary>\n"
    if about.unknown:
        yield f"- not given: {'; '.join(about.unknown)}"
    found = document["notes"] if document else []
    notes = [_short(words, item) for words in found if words not in absent]
    for words in (*about.remarks, *notes):
        yield f"- {words}"
    yield "\n</details>\n"


def _short(words: str, item: Item) -> str:
    """A note with the names of files alone: their shapes and sources stand once, at the end."""
    for need in item.about.data:
        words = words.replace(need.words, need.file)
    return words
