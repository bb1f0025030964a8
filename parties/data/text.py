"""Text files that are read several times and never held: lines, their encoding, compression."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from parties.data.problems import Problems, listed
from protocols.errors import DataError

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


@dataclass(frozen=True)
class TextFile:
    """A file that `checked` has looked at; has_nul: NUL bytes in it are left out."""

    path: Path
    has_nul: bool

    def lines(self) -> Iterator[str]:
        """Every line with its end, without a byte-order mark."""
        with _open(self.path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
            yield from (line.replace("\0", "") for line in text) if self.has_nul else text


def _open(path: Path) -> BinaryIO:
    """The file's bytes, unpacked where it ends in .gz."""
    packed = path.suffix.lower() == ".gz"
    return cast(BinaryIO, gzip.open(path)) if packed else path.open("rb")


def checked(path: Path, problems: Problems) -> TextFile:
    """Look at all bytes of a file.

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
    return TextFile(path, bool(nul))
