"""Exact sums of a few numbers beside a long inexact sum: limbs of 8 bits, above the noise.

A number v is the integer round(v 2^20) + 2^95, in 12 limbs of 8 bits, and a limb that is 1 where v
is NaN. A limb stands in a word as limb 2^g, with 2^(g - 2) above the noise of a sum: rounding to
multiples of 2^g gives the sum of limbs exactly, because 1024 * 255 * 2^14 + noise < 2^32. Where the
sum is not as short as it should be, half of all words show it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from protocols.aggregate.one_time import noise_units
from protocols.aggregate.words import Words
from protocols.errors import DataError, ProtocolError

FRACTION_BITS = 20
_VALUE_LIMBS = 12
LIMBS = _VALUE_LIMBS + 1
_LIMB_BITS = 8
_OFFSET = 1 << (_LIMB_BITS * _VALUE_LIMBS - 1)
LARGEST = float(_OFFSET >> FRACTION_BITS)
"""Bound on one client's number: 2^75, room for the product of a metric and a weight."""


def _gap(clients: int) -> int:
    return noise_units(clients).bit_length() + 2


def encode(numbers: Sequence[float], clients: int) -> Words:
    """Words of one client, shape (13 len(numbers),).

    Raises:
        DataError: a number is infinite or beyond its bound; the message names the bound only.
    """
    words = np.zeros((len(numbers), LIMBS), np.uint32)
    for row, number in zip(words, numbers, strict=True):
        if abs(number) >= LARGEST:
            raise DataError(
                f"a metric, or its product with the weight, is infinite or exceeds {LARGEST:g}: "
                "scale it down"
            )
        unknown = math.isnan(number)
        row[-1] = int(unknown) << _gap(clients)
        rest = (0 if unknown else round(number * (1 << FRACTION_BITS))) + _OFFSET
        for k in range(_VALUE_LIMBS):
            row[k] = (rest >> _LIMB_BITS * k & 0xFF) << _gap(clients)
    return words.ravel()


def decode(total: Words, clients: int, contributors: int) -> list[float]:
    """Sums over the contributors, each to within contributors 2^-21 and a float's rounding.

    NaN where a contributor's number is.

    Raises:
        ProtocolError: a word is no multiple of 2^g within the noise, which no honest client causes.
    """
    gap, noise = _gap(clients), noise_units(clients)
    rounded = total + np.uint32(1 << (gap - 1))
    off = (rounded & np.uint32((1 << gap) - 1)).astype(np.int64) - (1 << (gap - 1))
    if (np.abs(off) > noise).any():
        raise ProtocolError(
            "the sum's exact part is no sum of honest clients' numbers: a client deviates from the "
            "protocol; its contribution cannot be told from the others'"
        )
    limbs = (rounded >> np.uint32(gap)).reshape(-1, LIMBS).tolist()
    sums = (sum(limb << _LIMB_BITS * k for k, limb in enumerate(row[:-1])) for row in limbs)
    return [
        math.nan if row[-1] else (s - contributors * _OFFSET) / (1 << FRACTION_BITS)
        for s, row in zip(sums, limbs, strict=True)
    ]
