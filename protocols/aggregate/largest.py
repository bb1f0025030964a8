"""The largest of all clients' numbers, to three digits: a sum tells it, and nothing else of them.

The grid has 0 and the numbers of three digits from 1e-4 to 9.99e5, of both signs. A client's number
is rounded to a point of it, with k points below; its first k words are uniform, the others 0. The
sum of a word is uniform if one client's number is above that point, and 0 within the noise if none
is: so it shows whether one is, and not whose, nor how many. A uniform sum looks like 0 with a
chance of 2^-22, and the largest number is then one point less.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.aggregate.one_time import noise_units
from protocols.aggregate.words import Words
from protocols.privacy.laws import RandomSource

_DIGITS, _FIRST, _DECADES = 3, -4, 10  # So many digits, from 10^_FIRST on.
_LEAST = 100
_PER_DECADE = 9 * _LEAST
_SIDE = _PER_DECADE * _DECADES
WIDTH = 2 * _SIDE + 1
"""Words of a number: one for each point but the least, and one that tells of NaN."""


def _points_below(number: float) -> int:
    if abs(number) < 10.0**_FIRST:
        return _SIDE
    # Python rounds digits as decimal numbers.
    digits, _, exponent = f"{min(abs(number), 1e300):.{_DIGITS - 1}e}".partition("e")
    place = int(digits.replace(".", "")) - _LEAST + 1
    rank = min((int(exponent) - _FIRST) * _PER_DECADE + place, _SIDE)
    return _SIDE + (rank if number > 0 else -rank)


def _point(below: int) -> float:
    rank = abs(below - _SIDE)
    if not rank:
        return 0.0
    decade, place = divmod(rank - 1, _PER_DECADE)
    value = float(f"{place + _LEAST}e{decade + _FIRST - _DIGITS + 1}")
    return math.copysign(value, below - _SIDE)


def encode(number: float, kind: np.dtype[Any], randomness: RandomSource) -> Words:
    """Words of one client, shape (WIDTH,); kind: of words, uint32 or uint64."""
    uniform = randomness.words(WIDTH).view(kind)[:WIDTH].copy()
    unknown = math.isnan(number)
    uniform[0 if unknown else _points_below(number) : WIDTH - 1] = 0
    if not unknown:
        uniform[-1] = 0
    return uniform


def decode(total: NDArray[np.signedinteger[Any]], clients: int) -> float:
    """The largest number on the grid; NaN where a client's is. total: see `words.signed`."""
    above = np.abs(total.astype(np.int64)) > noise_units(clients)
    if above[-1]:
        return math.nan
    return _point(int(np.flatnonzero(above[:-1]).max(initial=-1)) + 1)
