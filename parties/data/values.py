"""Values of the regular records of a text, by pandas: the same whatever the batches are.

pandas makes numbers of a column where all cells that it reads at once are numbers. So a table of
several batches is read twice: for the kinds of its columns, then for their values.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from parties.data.problems import LINES, Problems
from parties.data.records import Walk, records_of
from protocols.errors import DataError

# "None" and "?" stay texts: they are categories in real tables.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null")


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How cells are separated, quoted and left empty.

    ends_blank: the last column is none if all its cells are empty.
    """

    separator: str = ","
    quote: str = '"'
    missing: tuple[str, ...] = MISSING
    ends_blank: bool = False


def values_of(
    lines: Callable[[], Iterator[str]],
    walked: Walk,
    names: list[str],
    dialect: Dialect,
    rows: int | None,
) -> Iterator[pd.DataFrame]:
    """Batches of the regular records, at least one; index: their lines.

    lines: of the text, from the first; names: of the columns; rows: of a batch, None: all.

    Raises:
        DataError: pandas counts other records.
    """
    step = rows or max(1, len(walked.lines))

    def parsed(dtypes: Mapping[int, type]) -> Iterator[pd.DataFrame]:
        return _parsed(_regular(lines, walked, dialect), walked, len(names), dialect, step, dtypes)

    only = [] if len(walked.lines) > step else [*parsed({})]
    kinds = _kinds(only or parsed({}), len(names))
    width = len(names) - (dialect.ends_blank and kinds[-1] <= {"nothing"})
    for frame in only or parsed(_dtypes(kinds)):
        found = frame.iloc[:, :width]
        found.columns = pd.Index(names[:width], dtype=object)
        yield found


def _regular(lines: Callable[[], Iterator[str]], walked: Walk, dialect: Dialect) -> Iterator[str]:
    """Lines of the regular records alone, blank ones perhaps among them."""
    if walked.clean:
        yield from islice(lines(), walked.lines[0] - 1 if walked.lines else 0, None)
        return
    text, due = io.StringIO(newline=""), iter(walked.lines)
    writer = csv.writer(text, delimiter=dialect.separator, quotechar=dialect.quote)
    wanted = next(due, None)
    for line, cells in records_of(lines(), dialect.quote, dialect.separator, Problems()):
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


def _parsed(
    lines: Iterator[str],
    walked: Walk,
    width: int,
    dialect: Dialect,
    step: int,
    dtypes: Mapping[int, type],
) -> Iterator[pd.DataFrame]:
    start, total = 0, len(walked.lines)
    if not total:
        yield pd.DataFrame(columns=range(width), index=pd.Index([], dtype="int64", name=LINES))
        return
    options: dict[str, Any] = {
        "sep": dialect.separator,
        "quotechar": dialect.quote,
        "na_values": list(dialect.missing),
        "names": list(range(width)),
        "dtype": dict(dtypes),
        "chunksize": step,
    }
    try:
        with pd.read_csv(
            _File(lines),
            header=None,
            skipinitialspace=True,
            index_col=False,
            low_memory=False,
            float_precision="round_trip",  # as `cell_text`, which may see the same cell as a text
            keep_default_na=False,
            **options,
        ) as reader:
            for frame in reader:
                own = walked.lines[start : start + len(frame)]
                if len(own) < len(frame):
                    break
                frame.index = pd.Index(np.array(own, dtype=np.int64), name=LINES)
                yield frame
                start += len(frame)
    except (ValueError, pd.errors.ParserWarning):
        start = -1
    if start != total:
        raise DataError(
            "is not a regular table: two readers disagree on its records; look for quotation marks "
            "and save it anew"
        )


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
