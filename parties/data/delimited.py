"""Text tables: .csv and .tsv, also compressed (.gz); every problem by its line in the file.

The standard library's reader walks over all records and finds what is irregular; pandas reads the
values of what is regular. Both have to count the same records.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pandas as pd

from parties.data.problems import Problems
from parties.data.records import records_of, walk
from parties.data.text import checked
from parties.data.values import MISSING, Dialect, values_of
from protocols.documents import looks_numeric
from protocols.errors import DataError

_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}


def read_delimited(
    path: Path, problems: Problems, rows: int | None, separator: str
) -> Iterator[pd.DataFrame]:
    """A table with its column names in the first line that is not blank, in batches.

    Returns: regular records; the index has their lines (`LINES`).

    Raises:
        DataError: nothing can be read at all; what is wrong with single lines goes to `problems`.
    """
    text = checked(path, problems)
    noted = len(problems)
    records = records_of(text.lines(), '"', separator, problems)
    _, first = next(records, (1, []))
    cells = [cell.strip() for cell in first]
    _check_separator(cells, separator)
    if not any(cells):
        if len(problems) > noted:
            raise DataError("has no line of names that can be read")
        raise DataError("is blank: it has neither names nor rows; export the table again")
    walked = walk(records, cells, problems)
    names = _header(cells, walked.first)
    check_distinct(names)
    # Every line may end in a comma.
    ends_blank = not cells[-1] and len(cells) > 1
    dialect = Dialect(separator=separator, ends_blank=ends_blank)
    yield from values_of(text.lines, walked, names, dialect, rows)


def _check_separator(cells: list[str], separator: str) -> None:
    if len(cells) <= 2 and re.fullmatch("sep=.?", "".join(cells)):
        raise DataError("begins with Excel's line sep=: remove it, and save with commas")
    if len(cells) != 1:
        return
    for other, name in _SEPARATORS.items():
        if other != separator and other in cells[0]:
            due = _SEPARATORS[separator]
            cure = f"save it with {due}"
            if other in ",\t":
                cure += f", or name it {'.csv' if other == ',' else '.tsv'}"
            if other == ";":
                cure += ", and numbers with decimal points"
            raise DataError(f"is not separated by {due} but by {name}: {cure}")


def check_distinct(names: list[str]) -> None:
    """Refuse a repeated name; the words lack their subject. Raises DataError."""
    # By position, not by name: in a file without a header the "name" is a cell.
    for name, count in Counter(names).items():
        if count > 1:
            places = [str(k + 1) for k, other in enumerate(names) if other == name][:5]
            raise DataError(f"has one name for columns {', '.join(places)}: give each its own")


def _header(cells: list[str], below: list[list[str]]) -> list[str]:
    """Return the column names; refuse a first line that is data.

    A line with numbers is a header if they are increasing whole numbers, as years or 0, 1, 2, ...,
    or if a text of it stands above a column of numbers, where data would have a number.
    """
    numeric = [cell for cell in cells if looks_numeric(cell)]
    whole = [int(cell) for cell in numeric if cell.isdecimal() and len(cell) < 19]
    increasing = len(whole) == len(numeric) and all(a < b for a, b in pairwise(whole))

    def names_numbers(k: int) -> bool:
        found = [text for row in below if (text := row[k].strip()) not in MISSING]
        return bool(found) and all(looks_numeric(text) for text in found)

    texts = (k for k, cell in enumerate(cells) if cell and cell not in (*numeric, *MISSING))
    if not increasing and not any(names_numbers(k) for k in texts):
        raise DataError(
            "has no column names: its first line looks like data; add a line of names, each "
            "beginning with a letter"
        )
    return [cell or f"Unnamed: {k}" for k, cell in enumerate(cells)]
