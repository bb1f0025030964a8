"""The subring whose elements repeat every k slots: where sums over columns live.

Y = X^(n / 2k) generates Z[Y] / (Y^2k + 1). Slot i is the value at zeta^(5^i), and 5^k = 1 mod 4k:
elements of the subring are those that repeat every k slots, and the sum over the columns c of slots
c k + j, for each j, is n / 2k times the projection

    sum_i m_i X^i  ->  sum_j m_(j n / 2k) Y^j,       a choice of 2k coefficients.

So a sum over columns, copied into all columns, costs no arithmetic on polynomials; and a polynomial
whose 2k coefficients of the subring are zero says nothing of sums over columns, whatever the others
are.

Everything here is on residues in evaluation form, in OpenFHE's order: entry e is the value at
zeta^(2 rev(e) + 1), rev reversing bits, so that the entries of one Y are n / 2k in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.ckks.residues import Residues
from protocols.ckks.transform import forward, powers_of_five, powers_of_root
from protocols.privacy.laws import RandomSource

_LOW = np.uint64((1 << 32) - 1)


@dataclass(frozen=True, slots=True)
class TraceMap:
    """What a refresh of an encrypted model applies: value times the sums over columns, in all.

    Parties and coordinator apply it to integers, and round. Their results add up to the map of the
    sum to within half a unit each: less than one fresh error, and no level.

    columns: B; period: k; value: any number.
    """

    columns: int
    period: int
    value: float

    def apply(self, coefficients: Sequence[int]) -> list[int]:
        """The 2k coefficients of the result, from those of the polynomial; rounded to nearest."""
        factor = Fraction(self.value) * self.columns
        top, bottom = factor.numerator, factor.denominator
        return [(2 * top * c + bottom) // (2 * bottom) for c in coefficients]


def embed(coefficients: Sequence[int], primes: Sequence[int], ring_dim: int) -> Residues:
    """The element of the subring with these 2k coefficients, shape (len(primes), ring_dim)."""
    return embedded(reduced(coefficients, primes), primes, ring_dim)


def reduced(coefficients: Sequence[int], primes: Sequence[int]) -> Residues:
    """Modulo every prime, shape (len(primes), 2k)."""
    return np.array([[c % prime for c in coefficients] for prime in primes], np.uint64)


def embedded(rows: Any, primes: Sequence[int], ring_dim: int) -> Residues:
    """`embed` of coefficients modulo each prime, shape (len(primes), 2k)."""
    powers = powers_of_root(tuple(primes), ring_dim, count := len(rows[0]))
    values = forward(np.asarray(rows), powers, np.array([primes]).T)
    return np.repeat(values, ring_dim // count, axis=1)


def outside(primes: Sequence[int], ring_dim: int, period: int, stream: RandomSource) -> Residues:
    """Uniform modulo every prime, but for the coefficients of the subring, which are zero.

    These are zero exactly where the n / 2k entries of each value of Y add up to zero, so the last
    entry of each is chosen that way.
    """
    found = drawn(primes, ring_dim, stream).reshape(len(primes), 2 * period, -1)
    found[:, :, -1] = 0
    sums = sums_of(found)
    for row, total, prime in zip(found, sums, primes, strict=True):
        row[:, -1] = (-total % prime).astype(np.uint64)
    return found.reshape(len(primes), ring_dim)


def drawn(primes: Sequence[int], ring_dim: int, stream: RandomSource) -> Residues:
    """Uniform residues, shape (len(primes), ring_dim), by rejection."""
    found = np.empty((len(primes), ring_dim), np.uint64)
    for row, prime in zip(found, primes, strict=True):
        shift, filled = np.uint64(64 - prime.bit_length()), 0
        while filled < ring_dim:
            words = stream.words(ring_dim - filled) >> shift
            kept = words[words < np.uint64(prime)]
            row[filled : filled + len(kept)] = kept
            filled += len(kept)
    return found


# -- transforms of 2k coefficients ----------------------------------------------------------------


def sums_of(chunks: Residues) -> NDArray[Any]:
    """Along the last axis, not reduced: integers."""
    low, high = (chunks & _LOW).sum(axis=-1), (chunks >> np.uint64(32)).sum(axis=-1)
    total: NDArray[Any] = low.astype(object) + (high.astype(object) << 32)
    return total


def of_slots(values: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Coefficients of the elements with these slots: shape (…, k) to (…, 2k)."""
    period = values.shape[-1]
    found: NDArray[np.float64] = (values @ slot_values(period).conj()).real / period
    return found


@lru_cache(maxsize=16)
def slot_values(period: int) -> NDArray[np.complex128]:
    """exp(2 pi i 5^j l / 4k), shape (k, 2k)."""
    angles = np.outer(powers_of_five(period), np.arange(2 * period)) % (4 * period)
    return np.exp(0.5j * np.pi * angles / period)
