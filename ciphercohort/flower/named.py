"""Sums of any statistic, by name: not weighted, and exact.

What a `query` replies is summed like this, and of other replies each record named "sums" or
"sums.…": every number of a MetricRecord, every array of an ArrayRecord, also in shapes that the
request does not have. Texts and bytes are no numbers and do not leave the client. A metric that
`SecureSumMod` names as a largest, smallest or total one is treated like this in any record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ciphercohort.flower.records import EXTREMES, Place, number_of
from protocols.aggregate import largest
from protocols.aggregate.words import Words
from protocols.privacy.laws import RandomSource


def width(places: Sequence[Place]) -> int:
    """Words of largest and smallest numbers; sums take none."""
    return sum(place.size * largest.WIDTH for place in places if place.kind in EXTREMES)


def exact(places: Sequence[Place], values: Sequence[list[Any]]) -> list[Any]:
    """The numbers of sums."""
    return [
        number
        for place, numbers in zip(places, values, strict=True)
        if place.kind not in EXTREMES
        for number in numbers
    ]


def words(
    places: Sequence[Place],
    values: Sequence[list[Any]],
    kind: np.dtype[Any],
    randomness: RandomSource,
) -> Iterator[Words]:
    """Of one client's largest and smallest numbers."""
    for place, numbers in zip(places, values, strict=True):
        if place.kind in EXTREMES:
            sign = -1 if place.kind == "min" else 1
            for number in numbers:
                yield largest.encode(sign * number_of(number), kind, randomness)


def decode(
    places: Sequence[Place],
    words: NDArray[np.signedinteger[Any]],
    sums: list[float],
    clients: int,
) -> list[list[float]]:
    """Sums, largest and smallest numbers over the contributors, by place.

    words: opened, of largest and smallest numbers; sums: exact ones.
    """
    rows, rest = iter(words.reshape(-1, largest.WIDTH)), iter(sums)
    found: list[list[float]] = []
    for place in places:
        sign = -1 if place.kind == "min" else 1
        found.append(
            [
                sign * largest.decode(next(rows), clients) if place.kind in EXTREMES else next(rest)
                for _ in range(place.size)
            ]
        )
    return found
