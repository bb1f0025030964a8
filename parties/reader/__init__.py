"""A party's data: public schema, private table, encoded rows. Here: what is wrong with a table.

Problems are gathered first and said in one message.

Security: a message has names of columns, numbers of rows and counts; never a cell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protocols.errors import DataError, SchemaError

if TYPE_CHECKING:
    import pandas as pd

# "None" and "?" stay texts: they are categories in real tables.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null")
"""Texts of empty cells."""
SHOWN_PLACES = 5
"""Row numbers that one problem lists."""
SHOWN_PROBLEMS = 10
"""Problems that one message lists."""


@dataclass(frozen=True)
class Numbering:
    """Name of an index whose values are the file's own row numbers; word: "line" or "row"."""

    word: str


LINES, SHEET_ROWS, TEXT_ROWS = Numbering("line"), Numbering("row"), Numbering("row")
"""Of text files, the header's line counted; of a sheet; of a query over text files, from 1."""


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


def check_distinct(names: Sequence[str], owner: str = "") -> None:
    """Refuse a repeated name; owner: begins the words, such as "the table ". Raises DataError."""
    # By position, not by name: in a file without a header the "name" is a cell.
    for name, count in Counter(names).items():
        if count > 1:
            places = [str(k + 1) for k, other in enumerate(names) if other == name][:5]
            raise DataError(
                f"{owner}has one name for columns {', '.join(places)}: give each its own"
            )


# -- texts where numbers are due -------------------------------------------------------------------

_HINTS = {
    r"[+-]?(\d+|\d{1,3}([. ’']\d{3})+),\d+": "numbers with a decimal comma: write decimal points",
    r"[+-]?\d+(\.\d*)?[eE]\+?\d{3,}|[+-]?\d{309,}": "numbers too large for 64-bit floats: correct "
    "or rescale them",
    r"[+-]?\d{1,3}([,’'  ]\d{3})+(\.\d+)?": "numbers with separators of thousands: take them out",
    r"[+-]?\d+([.,]\d+)? ?%": "percentages: take the sign % out",
    r"[<>≤≥~] ?[+-]?\d+([.,]\d+)?": "numbers with a sign such as < before them: decide on a number",
    r"[+-]?\d+([.,]\d+)? ?[^\W\d]+(/[^\W\d]+)?": "numbers with a unit: take the unit out",
    r"[£$€] ?[+-]?[\d.,]+|[\d.,]+ ?[£$€]": "amounts with a currency sign: take it out",
    r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T].*)?": "dates: convert them to numbers, such as an age",
    r"\d{1,2}:\d{2}(:\d{2})?": "times: convert them to numbers",
    r"#(REF|DIV/0|VALUE|NAME|NUM|NULL)[!?]?": "errors of a spreadsheet: correct its formulas",
    r"(?i)[.?*–-]+|none|missing|unknown|unk|nil|n\.a\.": "words for a missing value: "
    "leave the cell empty",
}  # fmt: skip


class Hint:
    """What all texts so far are, if they are of one kind.

    >>> hint = Hint()
    >>> hint.take(["12,5", "3,0"])
    >>> str(hint)
    'numbers with a decimal comma: write decimal points'
    """

    def __init__(self) -> None:
        self._kinds = dict(_HINTS)

    def take(self, texts: Iterable[object]) -> None:
        """Some more."""
        for text in texts:
            if not self._kinds:
                return
            stripped = text.strip() if isinstance(text, str) else "\0"
            self._kinds = {k: w for k, w in self._kinds.items() if re.fullmatch(k, stripped)}

    def __str__(self) -> str:
        """Cause and cure, else the general cure; of texts at all."""
        return next(iter(self._kinds.values()), "correct or drop these rows")
