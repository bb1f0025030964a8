"""Tables in Weka's format, .arff: names and kinds above, records with commas below."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from parties.data.delimited import Lines, Text, text_of
from parties.data.problems import MISSING, Problems, check_distinct
from protocols.errors import DataError

_ATTRIBUTE = re.compile(
    r"@attribute\s+('(?:[^'\\]|\\.)*'|\"[^\"]*\"|[^\s{]+)\s*(\{.*\}|\S+).*", re.IGNORECASE
)
_KINDS = ("numeric", "real", "integer", "string", "date")


def read_arff(path: Path, problems: Problems, rows: int | None) -> Iterator[pd.DataFrame]:
    """A table in Weka's format, in batches; `?` is a missing cell.

    Raises:
        DataError: as `read_delimited`.
    """
    lines = text_of(path, problems)
    names, above = _names(lines)
    check_distinct(names)
    quote = '"'
    for line in _data(lines, above):
        if line.lstrip().startswith("{"):
            raise DataError("has sparse rows ({…}): save it with all values written out")
        quote = "'" if "'" in line else quote
    text = Text(lambda: _data(lines, above), quote=quote, missing=(*MISSING, "?"))
    text.look(text.records(problems), names, problems)
    yield from text.batches(names, rows)


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


def _data(lines: Lines, above: int) -> Iterator[str]:
    """As many lines as in the file, so that they count alike; blank: what holds no record."""
    for number, line in enumerate(lines(), start=1):
        yield "\n" if number <= above or line.lstrip().startswith("%") else line
