"""Exact sums of numbers beside a long inexact sum: limbs above the noise.

A number v is the integer round(v 2^f) + 2^(b - 1), b bits long, in limbs of 16 or 8 bits. A limb
stands in a word as limb 2^g, with 2^(g - 2) above the noise of a sum: rounding to multiples of 2^g
gives the sum of limbs exactly, because clients 2^(limb bits + g) <= 2^32. Where the sum is not as
short as it should be, half of all words show it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.aggregate.one_time import noise_units
from protocols.aggregate.words import WORD_BITS, Words
from protocols.errors import ProtocolError


def gap_bits(clients: int) -> int:
    """g: what is a multiple of 2^g stands above the noise."""
    return noise_units(clients).bit_length() + 2


def room_bits(clients: int) -> int:
    """Of one client's number that is a multiple of 2^g, so that no sum wraps around."""
    return WORD_BITS - gap_bits(clients) - (clients - 1).bit_length()


def multiples(total: Words, clients: int) -> NDArray[np.uint32]:
    """Sums of numbers that clients contributed times 2^g.

    Raises:
        ProtocolError: a word is no multiple of 2^g within the noise, which no honest client causes.
    """
    gap, noise = gap_bits(clients), noise_units(clients)
    rounded = total + np.uint32(1 << (gap - 1))
    off = (rounded & np.uint32((1 << gap) - 1)).astype(np.int64) - (1 << (gap - 1))
    if (np.abs(off) > noise).any():
        raise ProtocolError(
            "the sum's exact part is no sum of honest clients' numbers: a client deviates from the "
            "protocol; its contribution cannot be told from the others'"
        )
    return rounded >> np.uint32(gap)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Fixed-point numbers: f fraction bits, of b bits with their sign, a multiple of 16.

    flags: limbs beside each number that count contributors: whose number is NaN or out of range,
    then whose is no integer in Python. With none all numbers are integers in range.
    """

    fraction_bits: int
    bits: int
    flags: int

    @property
    def bound(self) -> float:
        """On one client's number."""
        return 2.0 ** (self.bits - 1 - self.fraction_bits)

    def width(self, clients: int) -> int:
        """Words of a number."""
        return self.bits // _limb_bits(clients) + self.flags

    def encode(self, numbers: Sequence[float], clients: int) -> Words:
        """Words of one client, shape (width len(numbers),)."""
        fits = [abs(number) < self.bound for number in numbers]  # NaN does not.
        half, size, kind = 1 << (self.bits - 1), self.bits // 8, f"<u{_limb_bits(clients) // 8}"
        data = b"".join(
            (self._scaled(number if fit else 0) + half).to_bytes(size, "little")
            for number, fit in zip(numbers, fits, strict=True)
        )
        words = np.zeros((len(fits), self.width(clients)), np.uint32)
        limbs = np.frombuffer(data, kind).reshape(len(fits), -1)
        words[:, : limbs.shape[1]] = limbs
        said = np.logical_not(fits), [not isinstance(number, int) for number in numbers]
        for k, flag in enumerate(said[: self.flags]):
            words[:, limbs.shape[1] + k] = flag
        return (words << np.uint32(gap_bits(clients))).ravel()

    def _scaled(self, number: float) -> int:
        if isinstance(number, int):
            return number << self.fraction_bits
        return round(math.ldexp(number, self.fraction_bits))

    def decode(self, total: Words, clients: int, contributors: int) -> list[float]:
        """Sums over the contributors, each within contributors 2^-(f + 1) and a float's rounding.

        NaN where a contributor's number is, or is out of range; with two flags, or none, a Python
        integer where all contributors' are.

        Raises:
            ProtocolError: see `multiples`.
        """
        limbs = multiples(total, clients).reshape(-1, self.width(clients))
        count = limbs.shape[1] - self.flags
        powers: list[Any] = [1 << _limb_bits(clients) * k for k in range(count)]
        sums = limbs[:, :count].astype(object) @ np.array(powers, object)
        found: list[float] = []
        for total_of, flags in zip(sums.tolist(), limbs[:, count:].tolist(), strict=True):
            number = total_of - contributors * (1 << (self.bits - 1))
            whole = not self.flags or (self.flags == 2 and not flags[1])
            if self.flags and flags[0]:
                found.append(math.nan)
            else:
                one = 1 << self.fraction_bits
                found.append(number // one if whole else number / one)
        return found


def _limb_bits(clients: int) -> int:
    return 16 if room_bits(clients) >= 16 else 8


METRICS = Fixed(20, 96, 1)
"""To six digits after the point, within 2^75: room for the product of a metric and a weight."""
NUMBERS = Fixed(60, 128, 2)
"""Integers exactly, others to 2^-60; within 2^67."""
REALS = Fixed(60, 128, 1)
"""Floating-point numbers alone."""

INTEGERS = Fixed(0, 80, 0)
"""Of any integer type, with or without a sign, of up to 64 bits."""
