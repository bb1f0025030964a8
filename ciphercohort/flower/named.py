"""Sums of any statistic, by name: not weighted, and exact.

What a `query` replies is summed like this, and of other replies each record named "sums" or
"sums.…": every number of a MetricRecord, every array of an ArrayRecord, also in shapes that the
request does not have. Texts and bytes are no numbers and do not leave the client. A metric that
`SecureSumMod` names as a largest, smallest or total one is treated like this in any record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ciphercohort.flower.records import Place
from protocols.aggregate import largest
from protocols.aggregate.limbs import INTEGERS, NUMBERS, REALS, Fixed
from protocols.aggregate.words import Words
from protocols.privacy.randomness import RandomSource


def _codec(place: Place) -> Fixed:
    if place.type == "number":
        return NUMBERS
    return INTEGERS if np.dtype(place.type).kind in "iu" else REALS


def width(places: Sequence[Place], clients: int) -> int:
    """Words of all of them."""
    return sum(
        place.size * (_codec(place).width(clients) if place.kind == "sum" else largest.WIDTH)
        for place in places
    )


def encode(
    places: Sequence[Place], values: Sequence[list[Any]], clients: int, randomness: RandomSource
) -> Words:
    """Words of one client, one place after the other."""
    parts: list[Words] = [np.zeros(0, np.uint32)]
    for place, numbers in zip(places, values, strict=True):
        if place.kind == "sum":
            parts.append(_codec(place).encode(numbers, clients))
        else:
            sign = -1 if place.kind == "min" else 1
            parts += [largest.encode(sign * float(number), randomness) for number in numbers]
    return np.concatenate(parts)


def decode(
    places: Sequence[Place], total: Words, clients: int, contributors: int
) -> list[list[float]]:
    """Sums, largest and smallest numbers over the contributors, by place.

    Raises:
        ProtocolError: see `limbs.multiples`.
    """
    found: list[list[float]] = []
    for place in places:
        words, total = np.split(total, [width([place], clients)])
        if place.kind == "sum":
            found.append(_codec(place).decode(words, clients, contributors))
        else:
            sign = -1 if place.kind == "min" else 1
            rows = words.reshape(-1, largest.WIDTH)
            found.append([sign * largest.decode(row, clients) for row in rows])
    return found
