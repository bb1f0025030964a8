"""Tables in Weka's format, .arff: names and kinds above, records with commas below."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from parties.reader import Problems, check_distinct
from parties.reader.delimited import Lines, Records, frames, text_of
from protocols.errors import DataError

_ATTRIBUTE = re.compile(
    r"@attribute\s+('(?:[^'\\]|\\.)*'|\"[^\"]*\"|[^\s{]+)\s*(\{.*\}|\S+).*", re.IGNORECASE
)
_KINDS = ("numeric", "real", "integer", "string", "date")
_CELL = re.compile(r"\s*(?:'((?:[^'\\]|\\.|'')*)'|\"((?:[^\"\\]|\\.|\"\")*)\"|([^,]*?))\s*(,|$)")
"""In quotation marks of either kind that close before the comma; any other mark is a letter."""


def read_arff(path: Path, problems: Problems, rows: int | None) -> Iterator[pd.DataFrame]:
    """A table in Weka's format, in batches; `?` is a missing cell.

    Raises:
        DataError: as `read_delimited`.
    """
    lines = text_of(path, problems)
    names, above = _names(lines)
    check_distinct(names)
    yield from frames(_records(lines, above, problems), names, rows, problems)


def _records(lines: Lines, above: int, problems: Problems) -> Records:
    """One a line, below the line @data, where a comment is a problem: it may be a row."""
    comments = []
    for number, line in enumerate(lines(), start=1):
        words = line.strip()
        if number <= above:
            continue
        if words.startswith("{"):
            raise DataError("has sparse rows ({…}): save it with all values written out")
        if words.startswith("%"):
            comments.append(number)
            continue
        yield number, _cells(words) if words else []
    if comments:
        problems.add_places("line", comments, "a sign % first, below @data: take comments out, and "
                            "put a cell that begins so into quotation marks")  # fmt: skip


def _cells(line: str) -> list[str | None]:
    """Of one record; None: a question mark that is not in quotation marks."""
    found: list[str | None] = []
    start, end = 0, ","
    while end and (match := _CELL.match(line, start)) is not None:
        single, double, bare, end = match.groups()
        if bare is not None:
            found.append(None if bare == "?" else bare)
        elif single is not None:
            found.append(re.sub(r"\\(.)|''", lambda m: m[1] or "'", single))
        else:
            found.append(re.sub(r'\\(.)|""', lambda m: m[1] or '"', double))
        start = match.end()
    return found


def _names(lines: Lines) -> tuple[list[str], int]:
    """Of the attributes, and the number of the line @data."""
    names: list[str] = []
    for number, line in enumerate(lines(), start=1):
        words = line.strip()
        if words.casefold().startswith("@data"):
            if not names:
                raise DataError("has no @attribute: export the table again")
            return names, number
        if words.casefold().startswith("@attribute"):
            found = _ATTRIBUTE.fullmatch(words)
            kind = found[2].casefold() if found else ""
            if found is None or (not kind.startswith("{") and kind not in _KINDS):
                raise DataError(
                    f"has in line {number} no @attribute with a name and a kind "
                    f"({', '.join(_KINDS)} or {{…}}): correct it"
                )
            names.append(re.sub(r"\\(.)", r"\1", found[1].strip("'\"")))
        elif words and not words.startswith("%") and not words.casefold().startswith("@relation"):
            raise DataError(f"has a line {number} before @data that is no @attribute: correct it")
    raise DataError("has no line @data: export the table again")
