"""Masks of a collective refresh: they use the whole room of its primes.

With Q3 the product of the refresh's primes and P parties, every M_p is uniform over

    -2^(k-1) … 2^(k-1) - 1,    k = floor(log2((Q3 - 2 room) / P)),

so that |m - sum_p M_p| < Q3 / 2 for every message with |m| <= room: the sum does not wrap, and
lifts to Q exactly.

Security: what colluders see of a coefficient m is m - M_p mod Q3, within |m| / 2^k of uniform in
total variation. A message scaled beyond the room still shows its place among the at most
Q3 / 2^k < 2 P (1 + 2^-38) intervals of a mask's size alone: in the mean at most log2(2 P) bits of a
coefficient, however large it is, because I(m; m - M) = H(m - M) - H(M) <= log2(Q3 / 2^k). One
refresh shows that. Several of one value, scaled differently, add up: some 25 show all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# The lift finds the multiple of Q3 in double precision: a message stays 2^-40 off the edge.
ROOM_BITS = 40
WORD = 64
"""Bits of one."""


def room(primes: Sequence[int]) -> int:
    """Largest |coefficient| of a message that the refresh carries; primes: the refresh's."""
    return math.prod(primes) >> ROOM_BITS


def mask_bits(primes: Sequence[int], parties: int) -> int:
    """k of the module: a mask takes 2^k values."""
    return ((math.prod(primes) - 2 * room(primes)) // parties).bit_length() - 1
