"""Rows that every owner holds back from a training, to judge its model on them afterwards.

A plan states the share and the name of a draw. Each owner tosses 32 secret bytes for that draw,
keeps them and tells nobody. SHAKE-256 expands them to a number for each of its n rows; those with
the k smallest are held back. A training uses the others alone, an evaluation of the draw
(`judged`) these alone.

Why a fixed number, k = share n rounded. It follows from public numbers, so that a plan, which
divides by the number of its rows, is known before anybody is asked, and the sizes tell nothing.
With a coin for each row they would be random, and would have to be told. Rows are not drawn by
label: numbers by label would have to be told, or k would not be fixed. Each k of n rows are equally
likely, whatever the rows hold (but for n^2 / 2^65, equal numbers).

What both runs cost. Let two tables differ in one row of one owner. Given everybody's coins, which
do not depend on the rows, that row is either trained on or held back. So the tables give either the
same training or, of the same model, the same evaluation; the pair of both outputs is (max of both
epsilons, max of both deltas) private given the coins, and therefore on average over them. Ledgers
take no credit for that: they add both up. Other runs on the same data have other coins, and meet
either part. Nor does secrecy of the coins count as amplification.

What a judged run rests on: that the model is the one of the draw's training is the word of whoever
asks. It may be judged on all rows as well, for which no coins are needed.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError

MOST_LETTERS = 64
"""Of a draw's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOut:
    """Which rows of every owner a run uses.

    share: held back; draw: name, letters and digits; judged: whether the run is on the rows that
    are held back, and not on the others.

    Raises:
        ParameterError: a field is out of range.
    """

    share: float
    draw: str
    judged: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ParameterError(f"held_out={self.share} is outside (0, 1); 0.2 is usual")
        if not (self.draw.isascii() and self.draw.isalnum() and len(self.draw) <= MOST_LETTERS):
            raise ParameterError(f"draw={self.draw[:MOST_LETTERS]!r} is no name of a draw")

    def size(self, rows: int) -> int:
        """Of `rows` rows of an owner, how many the run uses.

        Raises:
            ParameterError: none would be held back, or none left.
        """
        back = math.floor(self.share * rows + 0.5)
        if not 0 < back < rows:
            raise ParameterError(
                f"held_out={self.share:g} of an owner's {rows} rows holds back {back}: each needs "
                "one row at least to hold back, and one to train on"
            )
        return back if self.judged else rows - back

    def chosen(self, coins: bytes, rows: int) -> NDArray[np.intp]:
        """Indices of the rows that the run uses, ascending, shape (size(rows),)."""
        size = self.size(rows)
        numbers = hashlib.shake_256(b"ciphercohort/held-out/1\0" + coins).digest(8 * rows)
        order = np.argsort(np.frombuffer(numbers, dtype="<u8"), kind="stable")
        return np.sort(order[:size] if self.judged else order[rows - size :])
