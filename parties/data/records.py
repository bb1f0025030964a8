"""Records of a text with separators, by the standard library: what is irregular, by its line."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from parties.data.problems import Problems, listed

_LOOKS = 200
"""Records below the first line that say whether it is a header."""


@dataclass(slots=True)
class Walk:
    """Regular records of a text: the line of each, and the first few.

    clean: whether there are no others, so that pandas may read the text as it stands.
    """

    lines: array[int] = field(default_factory=lambda: array("q"))
    first: list[list[str]] = field(default_factory=list)
    clean: bool = True


def records_of(
    lines: Iterator[str], quote: str, separator: str, problems: Problems
) -> Iterator[Any]:
    """(line, cells) of every record that is not blank; stops where quotation is broken."""
    reader = csv.reader(
        lines,
        delimiter=separator,
        quotechar=quote,
        skipinitialspace=True,
        strict=True,
    )
    line = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "end of data" in str(error):
                words = f"a quotation mark that opens in line {line} is never closed"
            elif "limit" in str(error):
                words = (
                    f"line {line} has a cell of more than {csv.field_size_limit():,} characters, "
                    "or a quotation mark that is never closed"
                )
            else:
                words = f"line {reader.line_num} has a stray quotation mark"
            problems.add(f"{words}: close or double it")
            return
        if len(cells) > 1 or any(cell.strip() for cell in cells):
            yield line, cells
        line = reader.line_num + 1


def walk(records: Iterator[Any], names: list[str], problems: Problems) -> Walk:
    """Look at every record below the header."""
    found, width = Walk(), len(names)
    short: dict[int, list[int]] = {}
    again: list[int] = []
    before = len(problems)
    for line, cells in records:
        if len(cells) != width:
            short.setdefault(len(cells), []).append(line)
        elif width > 1 and cells[0].strip() == names[0] and _are(cells, names):
            again.append(line)
        else:
            found.lines.append(line)
            if len(found.first) < _LOOKS:
                found.first.append(cells)
    total = len(found.lines) + sum(map(len, short.values()))
    for count, lines in sorted(short.items()):
        cells = f"{count} cell{'s' if count > 1 else ''}"
        if len(lines) == total and count > width == 1:
            words = f"the header has 1 cell and every line below {cells}: remove what stands above"
        elif len(lines) == total and count > width:
            words = (
                f"every line has {cells} where the header has {width}: numbers with decimal commas "
                "need decimal points, or a name is missing"
            )
        else:
            verb = "has" if len(lines) == 1 else "have"
            words = (
                f"{listed('line', lines)} {verb} {cells} where the header has {width}: correct "
                "them, and put cells with separators into quotation marks"
            )
        problems.add(words)
    if again:
        problems.add(f"{listed('line', again)} repeat{'s' if len(again) == 1 else ''} the header: "
                     "remove what was pasted")  # fmt: skip
    found.clean = len(problems) == before
    return found


def _are(cells: list[str], names: list[str]) -> bool:
    return [cell.strip() for cell in cells] == names
