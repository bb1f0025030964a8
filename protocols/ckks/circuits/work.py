"""What an operation does, in transforms and residue products: operations on one scale."""

from __future__ import annotations

import math
from typing import NamedTuple

from protocols.ckks import CkksParameters

# Measured at rings 2^14 and 2^15, where a unit then takes the same to 10 % in all operations: a
# product of two numbers that vary, whose quotient is not known beforehand (Shoup), is 2.5 of one
# with a known number; a transform of a rescaling, in place, two thirds of one of a key switch.
_VARYING = 2.5
_IN_PLACE = 2 / 3


class Work(NamedTuple):
    """What an operation does: transforms [n log2 n] and residue products [n]."""

    transforms: float
    products: float

    def units(self, ring_dim: int) -> float:
        """One scale for both: a butterfly is a residue product and two additions."""
        return ring_dim * (self.transforms * math.log2(ring_dim) / 2 + self.products)


def work(operation: str, params: CkksParameters, level: int) -> Work:
    """Of one operation on a ciphertext of this level.

    A key switch raises D digits of l primes to l + k, multiplies them with the key, and divides two
    polynomials by P: (D + 2)(l + k) transforms (Han and Ki, CT-RSA 2020).
    """
    towers, special = params.num_towers - level, params.num_special_towers
    if operation in ("rotate", "relinearise", "raise", "hoisted", "turned", "gathered"):
        size = math.ceil(params.num_towers / params.num_digits)
        digits, wide = math.ceil(towers / size), towers + special
        raising = towers * (wide - min(size, towers))
        switching = 2 * digits * wide + 2 * special * towers
        return {
            "raise": Work(digits * wide, raising),
            "hoisted": Work(2 * wide, switching),
            "turned": Work(0, 2 * digits * wide),
            "gathered": Work(digits * wide, raising + 2 * digits * wide),
        }.get(operation, Work((digits + 2) * wide, raising + switching))
    if operation == "rescale":
        return Work(_IN_PLACE * 2 * towers, 2 * towers)
    if operation == "encode":
        # A complex transform of half the slots' size; then one transform per prime.
        return Work(towers + 4, 0)
    return Work(0, _VARYING * 4 * towers if operation == "tensor" else 2 * towers)
