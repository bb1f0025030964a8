"""What texts are that stand where numbers are due, said without quoting one."""

from __future__ import annotations

import re
from collections.abc import Iterable

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


def only_spelling(texts: Iterable[str], known: Iterable[str]) -> bool:
    """Whether all texts are known ones but for spaces and capitals."""
    folded = {text.strip().casefold() for text in known}
    return all(text.strip().casefold() in folded for text in texts)
