"""Text tables: .csv and .tsv, also compressed (.gz); every problem by its line in the file.

    file -> lines        `text_of`: bytes are looked at once, lines read as often as needed
    -> records           `Text.records`: the standard library's reader finds what is irregular
    -> values            `Text.batches`: pandas reads what is regular, the same in any batches

Both readers have to count the same records. pandas makes numbers of a column where all cells that
it reads at once are numbers: a table of several batches is read twice, for the kinds of its columns
and for their values. The text is never held.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pandas as pd

from parties.data.problems import LINES, MISSING, Problems, check_distinct, listed
from protocols.documents import looks_numeric
from protocols.errors import DataError

_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
_BLOCK = 1 << 16
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
Lines = Callable[[], Iterator[str]]
"""Every line of a text with its end, from the first, as often as asked."""


def read_delimited(
    path: Path, problems: Problems, rows: int | None, separator: str
) -> Iterator[pd.DataFrame]:
    """A table with its column names in the first line that is not blank, in batches.

    Returns: regular records; the index has their lines (`LINES`).

    Raises:
        DataError: nothing can be read at all; what is wrong with single lines goes to `problems`.
    """
    text = Text(text_of(path, problems), separator)
    noted = len(problems)
    records = text.records(problems)
    _, first = next(records, (1, []))
    cells = [cell.strip() for cell in first]
    _check_separator(cells, separator)
    if not any(cells):
        if len(problems) > noted:
            raise DataError("has no line of names that can be read")
        raise DataError("is blank: it has neither names nor rows; export the table again")
    text.look(records, cells, problems)
    names = _header(cells, text.first)
    check_distinct(names)
    # Every line may end in a comma.
    yield from text.batches(names, rows, ends_blank=not cells[-1] and len(cells) > 1)


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


# -- lines ----------------------------------------------------------------------------------------


def text_of(path: Path, problems: Problems) -> Lines:
    """The lines of a file, all bytes of which are looked at; without a byte-order mark or NUL.

    Problems of bytes that leave the lines readable (NUL) are added to `problems`.

    Raises:
        DataError: it cannot be unpacked, holds no text, or no UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    size = nul = lines = 0
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

    return read


def _open(path: Path) -> BinaryIO:
    """The file's bytes, unpacked where it ends in .gz."""
    packed = path.suffix.lower() == ".gz"
    return cast(BinaryIO, gzip.open(path)) if packed else path.open("rb")


# -- records and values ---------------------------------------------------------------------------


class Text:
    """Records of a text with separators.

    separator, quote: of cells; missing: texts of empty cells. After `look`: regular: the line of
    each regular record; first: the first few of them; clean: whether there are no others, so that
    pandas may read the text as it stands.
    """

    def __init__(
        self,
        lines: Lines,
        separator: str = ",",
        quote: str = '"',
        missing: tuple[str, ...] = MISSING,
    ) -> None:
        self._lines, self._separator, self._quote, self._missing = lines, separator, quote, missing
        self.regular = array("q")
        self.first: list[list[str]] = []
        self.clean = True

    def records(self, problems: Problems) -> Iterator[tuple[int, list[str]]]:
        """(line, cells) of every record that is not blank; stops where quotation is broken."""
        reader = csv.reader(
            self._lines(),
            delimiter=self._separator,
            quotechar=self._quote,
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
                        f"line {line} has a cell of more than {csv.field_size_limit():,} "
                        "characters, or a quotation mark that is never closed"
                    )
                else:
                    words = f"line {reader.line_num} has a stray quotation mark"
                problems.add(f"{words}: close or double it")
                return
            if len(cells) > 1 or any(cell.strip() for cell in cells):
                yield line, cells
            line = reader.line_num + 1

    def look(
        self, records: Iterable[tuple[int, list[str]]], names: list[str], problems: Problems
    ) -> None:
        """Look at every record below the header; what is irregular goes to `problems`."""
        width, before = len(names), len(problems)
        others: dict[int, list[int]] = {}  # lines by their number of cells
        again: list[int] = []
        for line, cells in records:
            if len(cells) != width:
                others.setdefault(len(cells), []).append(line)
            elif width > 1 and [cell.strip() for cell in cells] == names:
                again.append(line)
            else:
                self.regular.append(line)
                if len(self.first) < _LOOKS:
                    self.first.append(cells)
        total = len(self.regular) + sum(map(len, others.values()))
        for count, lines in sorted(others.items()):
            have = f"{count} cell{'s' if count > 1 else ''}"
            if len(lines) == total and count > width == 1:
                words = (
                    f"the header has 1 cell and every line below {have}: remove what stands above"
                )
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
        self.clean = len(problems) == before

    def batches(
        self, names: list[str], rows: int | None, ends_blank: bool = False
    ) -> Iterator[pd.DataFrame]:
        """The regular records, at least one batch; index: their lines.

        rows: of a batch, None: all; ends_blank: the last column is none if all its cells are empty.

        Raises:
            DataError: pandas counts other records.
        """
        step, width = rows or max(1, len(self.regular)), len(names)
        only = [] if len(self.regular) > step else [*self._parsed(width, step, {})]
        kinds = _kinds(only or self._parsed(width, step, {}), width)
        width -= ends_blank and kinds[-1] <= {"nothing"}
        for frame in only or self._parsed(len(names), step, _dtypes(kinds)):
            found = frame.iloc[:, :width]
            found.columns = pd.Index(names[:width], dtype=object)
            yield found

    def _parsed(self, width: int, step: int, dtypes: Mapping[int, type]) -> Iterator[pd.DataFrame]:
        start, total = 0, len(self.regular)
        if not total:
            yield pd.DataFrame(columns=range(width), index=pd.Index([], dtype="int64", name=LINES))
            return
        options: dict[str, Any] = {
            "sep": self._separator,
            "quotechar": self._quote,
            "na_values": list(self._missing),
            "names": list(range(width)),
            "dtype": dict(dtypes),
            "chunksize": step,
        }
        try:
            with pd.read_csv(
                _File(self._regular_lines()),
                header=None,
                skipinitialspace=True,
                index_col=False,
                low_memory=False,
                float_precision="round_trip",  # as `cell_text`, which may see the cell as a text
                keep_default_na=False,
                **options,
            ) as reader:
                for frame in reader:
                    own = self.regular[start : start + len(frame)]
                    if len(own) < len(frame):
                        break
                    frame.index = pd.Index(np.array(own, dtype=np.int64), name=LINES)
                    for k in frame.select_dtypes(object):
                        # One whole number beyond 2^63 makes texts of all, of empty cells as well.
                        frame[k] = frame[k].mask(frame[k].isin(self._missing))
                    yield frame
                    start += len(frame)
        except (ValueError, pd.errors.ParserWarning):
            start = -1
        if start != total:
            raise DataError(
                "is not a regular table: two readers disagree on its records; look for quotation "
                "marks and save it anew"
            )

    def _regular_lines(self) -> Iterator[str]:
        """Lines of the regular records alone, blank ones perhaps among them."""
        if self.clean:
            yield from islice(self._lines(), self.regular[0] - 1, None)
            return
        text, due = io.StringIO(newline=""), iter(self.regular)
        writer = csv.writer(text, delimiter=self._separator, quotechar=self._quote)
        wanted = next(due, None)
        for line, cells in self.records(Problems()):
            if line == wanted:
                writer.writerow(cells)
                yield text.getvalue()
                text.seek(0)
                text.truncate()
                wanted = next(due, None)


class _File:
    """Lines, as pandas asks for them."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    def read(self, size: int = -1) -> str:
        """About so many characters; all below 0."""
        found, held = list[str](), 0
        for line in self._lines:
            found.append(line)
            held += len(line)
            if 0 <= size <= held:
                break
        return "".join(found)

    def __iter__(self) -> Iterator[str]:
        return self._lines


def _kinds(frames: Iterable[pd.DataFrame], width: int) -> list[set[str]]:
    """What the cells of each column are, over all batches."""
    kinds: list[set[str]] = [set() for _ in range(width)]
    for frame in frames:
        for k, found in enumerate(kinds):
            found.add(_kind(frame.iloc[:, k]))
    return kinds


def _kind(cells: pd.Series[Any]) -> str:
    if cells.isna().all():
        return "nothing"
    if cells.dtype == object:
        is_truth = pd.api.types.infer_dtype(cells, skipna=True) == "boolean"
        return "truth" if is_truth else "text"
    return {"b": "truth", "f": "real"}.get(cells.dtype.kind, "whole")


def _dtypes(kinds: list[set[str]]) -> dict[int, type]:
    """By column: the type that pandas gives it read as a whole, where a batch may have another."""
    found: dict[int, type] = {}
    for k, own in enumerate(kinds):
        if "text" in own or ("truth" in own and own & {"whole", "real"}):
            found[k] = object
        elif "whole" in own and own & {"real", "nothing"}:
            found[k] = float
    return found
