"""Text tables: .csv and .tsv, also compressed (.gz); every problem by its line in the file.

The standard library's reader walks over all records and finds what is irregular; pandas reads the
values of what is regular. Both have to count the same records.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from parties.data.problems import LINES, Problems, listed
from protocols.documents import looks_numeric
from protocols.errors import DataError

# "None" and "?" stay texts: they are categories in real tables.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null")
_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
_LOOKS = 200
"""Records below the first line that say whether it is a header."""
_FOREIGN = {
    b"PK\x03\x04": "is a workbook or a ZIP archive, not text: name it .xlsx, or unpack it",
    b"\xd0\xcf\x11\xe0": "is an old Excel workbook (.xls), not text: save it as .xlsx",
    b"PAR1": "is a Parquet file, not text: name it .parquet",
    b"\x1f\x8b": "is compressed: name it .csv.gz, or unpack it",
    b"%PDF": "is a PDF document, not a table: export the table itself",
    b"SQLite format 3": "is an SQLite database, not text: give a .toml file with connection and "
    "query",
}


def read_text(path: Path, problems: Problems) -> str:
    """The file's text without a byte-order mark, unpacked where it ends in .gz.

    Problems of bytes that leave the lines readable (NUL) are added to `problems`.

    Raises:
        DataError: it cannot be unpacked, holds no text, or no UTF-8.
    """
    data = path.read_bytes()
    if path.suffix.lower() == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            raise DataError("is not a whole gzip file: compress or copy it again") from None
        if not data:
            raise DataError("is empty when unpacked: export the table again")
    for magic, words in _FOREIGN.items():
        if data.startswith(magic):
            raise DataError(words)
    nul = data.count(b"\0")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or nul > len(data) / 5:
        raise DataError("is UTF-16 or binary, not UTF-8 text: save it as UTF-8 (“CSV UTF-8”)")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"is not UTF-8 text (line {line}), probably Windows-1252 or Latin-1: save it as UTF-8 "
            "(“CSV UTF-8”)"
        ) from None
    if nul:
        lines = [k + 1 for k, line in enumerate(text.split("\n")) if "\0" in line]
        problems.add(f"NUL bytes in {listed('line', lines)}: export the table again")
        text = text.replace("\0", "")
    if re.match(r"\s*<(!doctype|html|\?xml)", text, re.IGNORECASE):
        raise DataError("is a web page or XML, not a table: download the table itself")
    return text


@dataclass(slots=True)
class Walk:
    """Regular records of a text: the line of each, and the first few.

    clean: whether there are no others, so that pandas may read the text as it stands.
    """

    lines: list[int] = field(default_factory=list)
    first: list[list[str]] = field(default_factory=list)
    clean: bool = True


def records_of(text: str, quote: str, separator: str, problems: Problems) -> Iterator[Any]:
    """(line, cells) of every record that is not blank; stops where quotation is broken."""
    reader = csv.reader(
        io.StringIO(text, newline=""),
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
        elif [cell.strip() for cell in cells] == names and width > 1:
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


def read_delimited(path: Path, separator: str, problems: Problems) -> pd.DataFrame:
    """A table with its column names in the first line that is not blank.

    Returns: regular records; the index has their lines (`LINES`).

    Raises:
        DataError: nothing can be read at all; what is wrong with single lines goes to `problems`.
    """
    text = read_text(path, problems)
    noted = len(problems)
    records = records_of(text, '"', separator, problems)
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
    frame = values_of(text, walked, names, separator=separator, missing=MISSING)
    if not cells[-1] and len(cells) > 1 and frame.iloc[:, -1].isna().all():
        return frame.iloc[:, :-1]  # every line ends in a comma
    return frame


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


def values_of(
    text: str,
    walked: Walk,
    names: list[str],
    *,
    separator: str = ",",
    quote: str = '"',
    missing: tuple[str, ...],
) -> pd.DataFrame:
    """What pandas reads of the regular records; index: their lines."""
    skipped = walked.lines[0] - 1 if walked.lines else 0
    if not walked.clean:
        kept = set(walked.lines)
        regular = io.StringIO(newline="")
        writer = csv.writer(regular, delimiter=separator, quotechar=quote)
        records = records_of(text, quote, separator, Problems())
        writer.writerows(cells for line, cells in records if line in kept)
        text, skipped = regular.getvalue(), 0
    if not walked.lines:
        text = ""
    try:
        frame = pd.read_csv(
            io.StringIO("".join(io.StringIO(text, newline="").readlines()[skipped:]), newline=""),
            sep=separator,
            quotechar=quote,
            header=None,
            names=list(range(len(names))),
            skipinitialspace=True,
            index_col=False,
            low_memory=False,
            keep_default_na=False,
            na_values=list(missing),
        )
    except (ValueError, pd.errors.ParserWarning):
        frame = pd.DataFrame(columns=range(len(names)))
    if len(frame) != len(walked.lines):
        raise DataError(
            "is not a regular table: two readers disagree on its records; look for quotation marks "
            "and save it anew"
        )
    frame.columns = pd.Index(names, dtype=object)
    frame.index = pd.Index(np.array(walked.lines, dtype=np.int64), name=LINES)
    return frame
