"""What is wrong with a table, gathered first and said in one message.

Security: a message has names of columns, numbers of rows and counts; never a cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from protocols.errors import DataError, SchemaError

SHOWN_PLACES = 5
"""Row numbers that one problem lists."""
SHOWN_PROBLEMS = 10
"""Problems that one message lists."""


@dataclass(frozen=True)
class Numbering:
    """Name of an index whose values are the file's own row numbers; word: "line" or "row"."""

    word: str


LINES, SHEET_ROWS = Numbering("line"), Numbering("row")
"""Of text files, the header's line counted; of a sheet."""


class Problems:
    """Sentences about a table, without a full stop; `refuse` says them all."""

    def __init__(self, owner: str = "") -> None:
        """owner: what the sentences are about, such as "file 'rows.csv'"; empty: nothing said."""
        self._owner = owner
        self._words: list[str] = []
        self._kind: type[DataError] | type[SchemaError] = DataError

    def __len__(self) -> int:
        """How many there are."""
        return len(self._words)

    def add(self, words: str, kind: type[DataError] | type[SchemaError] = DataError) -> None:
        """kind: of the refusal; one SchemaError makes the whole a SchemaError."""
        self._words.append(words)
        if issubclass(kind, SchemaError):
            self._kind = SchemaError

    def add_places(self, word: str, numbers: Sequence[int], words: str) -> None:
        """The same of some rows: "row 7 has …"."""
        verb = "has" if len(numbers) == 1 else "have"
        self.add(f"{listed(word, numbers)} {verb} {words}")

    def extend(self, others: Problems) -> None:
        """Take over the problems of a file, with its name."""
        for words in others._words:
            self._words.append(words)
        self._owner = self._owner or others._owner

    def refuse(self) -> None:
        """Say everything at once.

        Raises:
            SchemaError, DataError: there is a problem.
        """
        if not self._words:
            return
        words = self._words[:SHOWN_PROBLEMS]
        rest = len(self._words) - len(words)
        more = f"; and {rest} more problem{'s' if rest > 1 else ''}" if rest else ""
        owner = f"{self._owner}: " if self._owner else ""
        raise self._kind(f"{owner}{'; '.join(words)}{more}")


class Places:
    """Rows of a table that have something in common, counted while its batches pass.

    count: of them; rows: of all batches so far.
    """

    def __init__(self) -> None:
        self.count = self.rows = 0
        self._word, self._first = "row", list[int]()

    def take(self, index: pd.Index[Any], bad: NDArray[np.bool_]) -> bool:
        """One more batch; bad: true for rows that are meant, shape (rows,). Whether there is any.

        Numbers are the file's own where the index has them, else places in the table from 1.
        """
        found = np.flatnonzero(bad)
        few = found[: SHOWN_PLACES - len(self._first)]
        if isinstance(index.name, Numbering):
            self._word = index.name.word
            self._first += [int(index[k]) for k in few]
        else:
            self._first += [self.rows + int(k) + 1 for k in few]
        self.count += len(found)
        self.rows += bad.size
        return found.size > 0

    @property
    def listed(self) -> str:
        """As "lines 5, 72"."""
        return listed(self._word, self._first, self.count)

    def __str__(self) -> str:
        """As "2 of 90 rows (lines 5, 72)"."""
        return f"{self.count} of {self.rows} rows ({self.listed})"


def listed(word: str, numbers: Sequence[int], count: int | None = None) -> str:
    """Numbers after their word: "lines 2, 7" or "lines 2, 3, 4, 5, 6 and 9 more".

    count: of all, where `numbers` are the first ones only.

    >>> listed("line", [2, 7]), listed("row", range(1, 9))
    ('lines 2, 7', 'rows 1, 2, 3, 4, 5 and 3 more')
    """
    count = len(numbers) if count is None else count
    first = ", ".join(str(int(number)) for number in numbers[:SHOWN_PLACES])
    rest = count - SHOWN_PLACES
    more = f" and {rest} more" if rest > 0 else ""
    return f"{word}{'s' if count > 1 else ''} {first}{more}"


def where(index: pd.Index[Any], bad: NDArray[np.bool_]) -> str:
    """`Places` of a whole table."""
    found = Places()
    found.take(index, bad)
    return str(found)
