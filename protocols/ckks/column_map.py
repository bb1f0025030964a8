"""Public linear maps between columns, exact on polynomials: what a refresh applies on its way.

Parties hold their masks, and the coordinator the masked message, as polynomials in the clear. There
a rotation of slots is a permutation, and a mask a product: no key switch, no noise.

    window sum over columns -> mask of one column -> copies in all columns, or a head

As integers mod Q the map is linear without any rounding, T(m - M) + T(M) = T(m), as long as all
compute with the same mask. Its coefficients are therefore made with integers alone, not with a
machine's floating point. The indicator of column c of all k blocks is a polynomial in X^k,

    1/B sum_i cos(pi i 5^(o + c) / 2B) X^(k i),  i = 0 … 2B - 1,

because 5^B = 1 mod 4B. It is multiplied by value * scale and rounded, an error of sqrt(B / 6) over
scale per slot of the window sums. scale is the prime that the rescaling drops: no result is off by
the distance of a prime from 2^scale_bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import residues as rns
from protocols.ckks.residues import Residues
from protocols.ckks.transform import forward, powers_of_five, powers_of_root, reversed_bits

if TYPE_CHECKING:
    from protocols.ckks.circuits.packing import Layout

# Fixed point of the cosines [bits].
_POINT = 160


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """value * (sum of all columns, or one of them), copied into all columns, or into one slot.

    block_size, offset: see `Layout`; value: any number; column: taken alone, None: the sum; head:
    slots that the result is moved to the right from column 0, all else zero, None: copies.
    """

    block_size: int
    offset: int
    value: float
    column: int | None = None
    head: int | None = None

    @classmethod
    def of(
        cls, layout: Layout, value: float, *, column: int | None = None, head: int | None = None
    ) -> ColumnMap:
        """For vectors of this layout."""
        return cls(layout.block_size, layout.offset, value, column, head)

    def apply(self, polynomial: Residues, primes: tuple[int, ...], scale: int) -> Residues:
        """scale times the map of a polynomial in evaluation form, shape (len(primes), n).

        Exactly linear mod the product of the primes.
        """
        n = polynomial.shape[1]
        # Value of the mask at zeta^(+-5^i), i < B, periodic beyond; shape (len(primes), 2, B).
        at = (self.offset + (self.column or 0)) % self.block_size
        order, mask = _slot_order(n), _mask(self.block_size, at, self.value, primes, n, scale)
        found = np.empty_like(polynomial)
        for k, prime in enumerate(primes):
            slots = polynomial[k, order].reshape(2, n // 2)
            found[k, order] = self._of_slots(slots, mask[k], prime).ravel()
        return found

    def _of_slots(self, slots: Residues, mask: Residues, prime: int) -> Residues:
        """The map modulo one prime, of values at zeta^(5^i) and zeta^(-5^i), shape (2, n / 2)."""
        size = self.block_size
        if self.column is None:
            slots = np.roll(_window_sums(slots, size, prime), 1 - size, axis=-1)
        slots = rns.product(slots, np.tile(mask, slots.shape[1] // size), (prime, prime))
        if self.column:
            slots = np.roll(slots, -self.column, axis=-1)
        if self.head is not None:
            return np.roll(slots, self.head, axis=-1)
        # Column 0 into all B columns from it on.
        return _window_sums(slots, size, prime)


def _window_sums(slots: Residues, size: int, prime: int) -> Residues:
    """out[i] = sum_(r < size) slots[i - r] mod prime along the last axis, cyclic.

    Differences of running sums: modulo 2^64, and of the leading 45 bits, whose sums of 2^18 fit a
    word and give the nearest multiple of the prime to 2^-26.
    """
    rows = np.concatenate([slots[:, -size:], slots], axis=1).view(np.int64)
    cut = max(0, prime.bit_length() - 45)
    whole, leading = np.cumsum(rows, axis=1), np.cumsum(rows >> cut, axis=1)
    near = (leading[:, size:] - leading[:, :-size]) * (2**cut / prime)
    multiple = np.rint(near).astype(np.int64) * prime
    total: Residues = (whole[:, size:] - whole[:, :-size] - multiple).view(np.uint64)
    np.minimum(total, total + np.uint64(prime), out=total)
    return total


# -- the mask -------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _mask(
    size: int, at: int, value: float, primes: tuple[int, ...], n: int, scale: int
) -> Residues:
    count, turn = 2 * size, 4 * size
    cosines, exponent = _cosines(size), pow(5, at, turn)
    unit = Fraction(value) * scale / size
    top, bottom = unit.numerator, unit.denominator << _POINT
    # Rounded to nearest: floor(x + 1/2).
    whole = [
        (2 * top * cosines[i * exponent % turn] + bottom) // (2 * bottom) for i in range(count)
    ]
    rows = [[c % prime for c in whole] for prime in primes]
    order, powers = reversed_bits(count), powers_of_root(primes, n, count)
    values = np.stack(
        [
            forward(np.array(row, np.uint64), psi, prime)[order]
            for row, psi, prime in zip(rows, powers, primes, strict=True)
        ]
    )
    five = powers_of_five(size)
    found = np.stack([values[:, five // 2], values[:, (turn - five) // 2]], axis=1)
    found.setflags(write=False)
    return found


@lru_cache(maxsize=4)
def _cosines(size: int) -> list[int]:
    """cos(pi j / 2B) 2^160, j = 0 … 4B - 1, by integers alone: the same on every machine."""
    one = 1 << _POINT
    cosine, sine = 0, one  # of pi / 2
    for _ in range(size.bit_length() - 1):
        half = isqrt((one + cosine) * one // 2)
        cosine, sine = half, sine * one // (2 * half)
    found, x, y = [], one, 0
    for _ in range(size):
        found.append(x)
        x, y = (x * cosine - y * sine) >> _POINT, (x * sine + y * cosine) >> _POINT
    quarter = [*found, 0]
    half_turn = quarter + [-c for c in quarter[-2:0:-1]] + [-one]
    return half_turn + half_turn[-2:0:-1]


@lru_cache(maxsize=8)
def _slot_order(n: int) -> NDArray[np.int64]:
    """Where OpenFHE's evaluation form has zeta^(5^i), i < n / 2, then zeta^(-5^i).

    Entry k is the value at zeta^(2 rev(k) + 1), rev reversing bits.
    """
    reverse = reversed_bits(n)
    five = powers_of_five(n // 2)
    return np.concatenate([reverse[five // 2], reverse[(2 * n - five) // 2]])
