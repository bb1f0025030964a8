"""Integers of up to 45 bits in two words each: what one word has no room for.

n = h 2^k + l with 0 <= l < 2^k. The low word is l, whose sum stays below 2^31; the high word is
(h + half) 2^g, above the noise (`limbs`), and its sum is exact. So a sum has the noise of one word.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protocols.aggregate.limbs import gap_bits, multiples, room_bits
from protocols.aggregate.one_time import noise_units
from protocols.aggregate.words import Words


def _low_bits(clients: int) -> int:
    return 31 - (clients - 1).bit_length()


def most(clients: int) -> int:
    """Largest |n| of one client."""
    return (1 << (_low_bits(clients) + room_bits(clients) - 1)) - 1


def split(numbers: NDArray[np.int64], clients: int) -> tuple[Words, Words]:
    """Low and high words of numbers within `most`."""
    low, half = _low_bits(clients), 1 << (room_bits(clients) - 1)
    high = (numbers >> low) + half << gap_bits(clients)
    return (numbers & ((1 << low) - 1)).astype(np.uint32), high.astype(np.uint32)


def join(low: Words, high: Words, clients: int, contributors: int) -> NDArray[np.int64]:
    """Sums over the contributors, within `noise_units`.

    Raises:
        ProtocolError: see `limbs.multiples`.
    """
    half, noise = 1 << (room_bits(clients) - 1), noise_units(clients)
    above = multiples(high, clients).astype(np.int64) - contributors * half
    below = (low + np.uint32(noise)).astype(np.int64) - noise
    return (above << _low_bits(clients)) + below
