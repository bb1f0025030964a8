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


def listed(word: str, numbers: Sequence[int]) -> str:
    """Numbers after their word: "lines 2, 7" or "lines 2, 3, 4, 5, 6 and 9 more".

    >>> listed("line", [2, 7]), listed("row", range(1, 9))
    ('lines 2, 7', 'rows 1, 2, 3, 4, 5 and 3 more')
    """
    first = ", ".join(str(int(number)) for number in numbers[:SHOWN_PLACES])
    rest = len(numbers) - SHOWN_PLACES
    more = f" and {rest} more" if rest > 0 else ""
    return f"{word}{'s' if len(numbers) > 1 else ''} {first}{more}"


def places(index: pd.Index[Any], bad: NDArray[np.bool_]) -> str:
    """As "lines 5, 72"; bad: true for rows that are meant, shape (rows,)."""
    positions = np.flatnonzero(bad)
    if isinstance(index.name, Numbering):
        return listed(index.name.word, [int(index[k]) for k in positions])
    return listed("row", [int(k) + 1 for k in positions])


def where(index: pd.Index[Any], bad: NDArray[np.bool_]) -> str:
    """As "2 of 90 rows (lines 5, 72)"; bad: true for rows that are meant, shape (rows,)."""
    return f"{int(bad.sum())} of {bad.size} rows ({places(index, bad)})"
