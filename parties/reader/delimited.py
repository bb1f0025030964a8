"""Text tables: .csv and .tsv, also compressed (.gz); every problem by its line in the file.

    file -> lines        `text_of`: bytes are looked at once, lines read as often as needed
    -> records           the standard library's reader
    -> cells             `frames`: those of regular records, texts as they stand in the file

The text is never held. What a cell means is said in `cells`, of each by itself.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import numpy as np
import pandas as pd

from parties.reader import LINES, MISSING, Problems, check_distinct, listed
from protocols.errors import DataError
from protocols.exchange.documents import looks_numeric

_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
_BLOCK = 1 << 16
_FOREIGN = {
    b"PK\x03\x04": "is a workbook or a ZIP archive, not text: name it .xlsx, or unpack it",
    b"\xd0\xcf\x11\xe0": "is an old Excel workbook (.xls), not text: save it as .xlsx",
    b"PAR1": "is a Parquet file, not text: name it .parquet",
    b"\x1f\x8b": "is compressed: name it .csv.gz, or unpack it",
    b"%PDF": "is a PDF document, not a table: export the table itself",
    b"SQLite format 3": "is an SQLite database, not text: give a .toml file with connection and "
    "query",
}
Lines = Callable[[], Iterator[str]]
"""Every line of a text with its end, from the first, as often as asked."""
Records: TypeAlias = Iterator[tuple[int, Sequence[str | None]]]
"""(line, cells) of every record; of a blank line no cells."""


def read_delimited(
    path: Path, problems: Problems, rows: int | None, separator: str
) -> Iterator[pd.DataFrame]:
    """A table with its column names in the first line that is not blank, in batches.

    Returns: regular records; the index has their lines (`LINES`).

    Raises:
        DataError: nothing can be read at all; what is wrong with single lines goes to `problems`.
    """
    lines, noted = text_of(path, problems), len(problems)
    records = _records(lines, separator, problems)
    _, first = next(((line, found) for line, found in records if found), (1, list[str]()))
    cells = [(cell or "").strip() for cell in first]
    _check_separator(cells, separator)
    if not any(cells):
        if len(problems) > noted:
            raise DataError("has no line of names that can be read")
        raise DataError("is blank: it has neither names nor rows; export the table again")
    names = _header(cells)
    check_distinct(names)
    yield from frames(records, names, rows, problems, ends_blank=not cells[-1] and len(cells) > 1)


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


def _header(cells: list[str]) -> list[str]:
    """Return the column names; refuse a first line that is data, whatever stands below.

    A line with numbers is a header if they increase, as years do, or 0, 1, 2, ….
    """
    numeric = [float(cell) for cell in cells if looks_numeric(cell)]
    if any(a >= b for a, b in pairwise(numeric)):
        raise DataError(
            "has no column names: its first line looks like data; add a line of names, each "
            "beginning with a letter"
        )
    return [cell or f"Unnamed: {k}" for k, cell in enumerate(cells)]


# -- lines ----------------------------------------------------------------------------------------


def text_of(path: Path, problems: Problems) -> Lines:
    """The lines of a file, all bytes of which are looked at; without a byte-order mark or NUL.

    Problems of bytes that leave the lines readable (NUL, line ends of two kinds) are added to
    `problems`. Privacy: a carriage return in a cell would make two rows of one.

    Raises:
        DataError: it cannot be unpacked, holds no text, or no UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    size = nul = lines = returns = pairs = 0
    last = b""
    bad_line: int | None = None
    nul_lines: list[int] = []
    head = b""
    try:
        with _open(path) as file:
            while True:
                block = file.read(_BLOCK)
                head = head or block
                if bad_line is None:
                    try:
                        decoder.decode(block, final=not block)
                    except UnicodeDecodeError as error:
                        bad_line = lines + error.object.count(b"\n", 0, error.start) + 1
                if not block:
                    break
                if b"\0" in block:
                    pieces = enumerate(block.split(b"\n"), start=lines + 1)
                    found = [line for line, piece in pieces if b"\0" in piece]
                    nul_lines += found[1:] if nul_lines[-1:] == found[:1] else found
                size, nul = size + len(block), nul + block.count(b"\0")
                lines += block.count(b"\n")
                returns += block.count(b"\r")
                pairs += block.count(b"\r\n") + (last == b"\r" and block[:1] == b"\n")
                last = block[-1:]
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataError("is not a whole gzip file: compress or copy it again") from None
    if not size:
        raise DataError("is empty when unpacked: export the table again")
    for magic, words in _FOREIGN.items():
        if head.startswith(magic):
            raise DataError(words)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or nul > size / 5:
        raise DataError("is UTF-16 or binary, not UTF-8 text: save it as UTF-8 (“CSV UTF-8”)")
    if bad_line is not None:
        raise DataError(
            f"is not UTF-8 text (line {bad_line}), probably Windows-1252 or Latin-1: save it as "
            "UTF-8 (“CSV UTF-8”)"
        )
    if nul:
        problems.add(f"NUL bytes in {listed('line', nul_lines)}: export the table again")
    if re.match(r"\s*<(!doctype|html|\?xml)", head.decode("utf-8-sig", "ignore"), re.IGNORECASE):
        raise DataError("is a web page or XML, not a table: download the table itself")

    def read() -> Iterator[str]:
        with _open(path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
            yield from (line.replace("\0", "") for line in text) if nul else text

    if lines and returns > pairs:
        ends = [line.endswith("\n") for line in read()]
        odd = [k for k, end in enumerate(ends[:-1], start=1) if end != ends[0]]
        if odd:
            problems.add_places("line", odd, "another line end than the first line: a row is "
                                "one line, so take carriage returns out of cells")  # fmt: skip
    return read


def _open(path: Path) -> BinaryIO:
    """The file's bytes, unpacked where it ends in .gz."""
    packed = path.suffix.lower() == ".gz"
    return cast(BinaryIO, gzip.open(path)) if packed else path.open("rb")


# -- records and cells ----------------------------------------------------------------------------


def _records(lines: Lines, separator: str, problems: Problems) -> Records:
    """Of all lines, each a record of its own; stops where quotation is broken.

    Privacy: a cell that went on over the end of its line, or whose mark is not closed, would take
    the rows below into it.
    """
    reader = csv.reader(lines(), delimiter=separator, skipinitialspace=True, strict=True)
    line, over = 1, list[int]()
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            if over:
                problems.add_places(
                    "line",
                    over,
                    "a quotation mark that is closed in a line below only: a row is one line, so "
                    "close or double it, and export cells without line breaks",
                )
            return
        except csv.Error as error:
            if "end of data" in str(error):
                words = f"a quotation mark that opens in line {line} is never closed"
            elif "limit" in str(error):
                words = (
                    f"line {line} has a cell of more than {csv.field_size_limit():,} "
                    "characters, or a quotation mark that is never closed"
                )
            else:
                words = f"line {reader.line_num} has a stray quotation mark"
            problems.add(f"{words}: close or double it")
            return
        if reader.line_num > line:
            over.append(line)
        else:
            is_blank = len(cells) == 1 and not cells[0].strip()
            yield line, [] if is_blank else cells
        line = reader.line_num + 1


def frames(
    records: Records,
    names: list[str],
    rows: int | None,
    problems: Problems,
    *,
    ends_blank: bool = False,
) -> Iterator[pd.DataFrame]:
    """The regular records below the header, in batches, at least one; index: their lines.

    Blank lines may stand below the last record alone: else whether a row is there would depend on
    its cells.

    rows: of a batch, None: all; problems: what is irregular is there after the last batch;
    ends_blank: the last column, without a name, is where every line ends in a comma.
    """
    width, regular = len(names), 0

    def is_name(k: int, cell: str | None) -> bool:
        return cell is not None and cell.strip() == names[k]

    others: dict[int, list[int]] = {}  # lines by their number of cells
    again: list[int] = []
    beyond: list[int] = []
    blank, between = list[int](), list[int]()
    held, lines = list[Sequence[str | None]](), list[int]()

    def frame() -> pd.DataFrame:
        index = pd.Index(np.array(lines, dtype=np.int64), name=LINES)
        found = frame_of(names, held, index)
        return found.iloc[:, :-1] if ends_blank else found

    for line, cells in records:
        if not cells:
            blank.append(line)
            continue
        if blank:
            between, blank = between + blank, []
        if len(cells) != width:
            others.setdefault(len(cells), []).append(line)
        elif width > 1 and is_name(0, cells[0]) and all(map(is_name, range(width), cells)):
            again.append(line)
        else:
            held.append(cells)
            lines.append(line)
            if ends_blank and (cells[-1] or "").strip() not in MISSING:
                beyond.append(line)
            if len(held) == rows:
                yield frame()
                regular, held, lines = regular + len(held), [], []
    if held or not regular:
        yield frame()
    _irregular(regular + len(held), width, others, again, problems)
    if between:
        verb = "is" if len(between) == 1 else "are"
        problems.add(f"{listed('line', between)} {verb} blank, above other rows: take them out")
    if beyond:
        problems.add_places("line", beyond, "cells beyond the last column name: give it a name, or "
                            "clear them")  # fmt: skip


def _irregular(
    regular: int, width: int, others: dict[int, list[int]], again: list[int], problems: Problems
) -> None:
    """Words about lines with another number of cells, and about those that repeat the header."""
    total = regular + sum(map(len, others.values()))
    for count, lines in sorted(others.items()):
        have = f"{count} cell{'s' if count > 1 else ''}"
        if len(lines) == total and count > width == 1:
            words = f"the header has 1 cell and every line below {have}: remove what stands above"
        elif len(lines) == total and count > width:
            words = (
                f"every line has {have} where the header has {width}: numbers with decimal "
                "commas need decimal points, or a name is missing"
            )
        else:
            verb = "has" if len(lines) == 1 else "have"
            words = (
                f"{listed('line', lines)} {verb} {have} where the header has {width}: correct "
                "them, and put cells with separators into quotation marks"
            )
        problems.add(words)
    if again:
        verb = "repeats" if len(again) == 1 else "repeat"
        problems.add(f"{listed('line', again)} {verb} the header: remove what was pasted")


def frame_of(
    names: Sequence[str], rows: Sequence[Sequence[Any]], index: pd.Index[Any] | None = None
) -> pd.DataFrame:
    """A table that holds these cells as they are, without a look at any."""
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return of_columns(names, list(columns), index)


def of_columns(
    names: Sequence[str], columns: Sequence[Any], index: pd.Index[Any] | None = None
) -> pd.DataFrame:
    """As `frame_of`; columns: arrays of numbers, or any other sequences of cells."""
    held = {}
    for k, cells in enumerate(columns):
        if not isinstance(cells, np.ndarray):
            cells = np.fromiter(cells, dtype=object, count=len(cells))
        held[k] = pd.Series(cells, dtype=cells.dtype, index=index)
    found = pd.DataFrame(held, index=index, copy=False)
    found.columns = pd.Index(list(names), dtype=object)
    return found
