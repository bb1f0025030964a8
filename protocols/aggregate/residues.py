"""Exact sums of numbers, of which nothing but the total is told.

A number v is the integer round(v 2^60) mod M, given by its remainders modulo eleven primes with
product M > 2^175. Remainders are added modulo their primes, without carries, so the sums of the
remainders and the total mod M are one and the same (Chinese remainder theorem). `one_time` shares
them beside its secrets: they have no noise.

A number that is NaN or out of range is uniform mod M, and so is every sum with it: the total is out
of range but for a chance of 2^-32, and shows nothing of the other numbers, nor how many such there
are. In the same way a twelfth remainder is 0 for an integer and uniform for any other number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from protocols.aggregate.packed import PRIME, uniform_below_each
from protocols.privacy.laws import RandomSource, uniform_below

FRACTION_BITS = 60
BOUND = 2.0**72
"""On one client's number: room for the product of a metric and a weight."""

_PRIMES = (PRIME, 65519, 65497, 65479, 65449, 65447, 65437, 65423, 65419, 65413, 65407)
MODULI = (*_PRIMES, 65393)
_ROWS = len(MODULI)
_PRODUCT = math.prod(_PRIMES)
# Of the integer and its sign, in limbs of 16 bits; 2^(16 k) modulo each prime.
_BYTES = 18
_POWERS = np.array([[pow(2, 16 * k, p) for k in range(_BYTES // 2)] for p in _PRIMES])
_COLUMN = np.array(_PRIMES)[:, None]
_HALF = 1 << (8 * _BYTES - 1)
_HALVES = np.array([[_HALF % p] for p in _PRIMES])

Residues = NDArray[np.int64]


def encode(numbers: Sequence[float], randomness: RandomSource) -> Residues:
    """Remainders of one client's numbers, shape (12, len(numbers))."""
    fits = [abs(number) < BOUND for number in numbers]  # NaN does not.
    data = b"".join(
        ((_scaled(number) if fit else 0) + _HALF).to_bytes(_BYTES, "little")
        for number, fit in zip(numbers, fits, strict=True)
    )
    limbs = np.frombuffer(data, "<u2").astype(np.int64).reshape(-1, _BYTES // 2)
    found = np.zeros((_ROWS, len(fits)), np.int64)
    uniform = np.logical_not(fits)
    found[:-1] = (_POWERS @ limbs.T - _HALVES) % _COLUMN
    if uniform.any():
        drawn = np.repeat(_PRIMES, np.count_nonzero(uniform))
        found[:-1, uniform] = uniform_below_each(randomness, drawn).reshape(len(_PRIMES), -1)
    broken = np.array([not isinstance(number, int) for number in numbers], bool)
    found[-1, broken] = uniform_below(randomness, MODULI[-1], int(broken.sum()))
    return found


def _scaled(number: float) -> int:
    if isinstance(number, int):
        return number << FRACTION_BITS
    return round(math.ldexp(number, FRACTION_BITS))


def decode(total: Residues, contributors: int) -> list[float]:
    """Sums over the contributors, each within contributors 2^-61 and a float's rounding.

    total: sums of remainders, shape (12, numbers). A Python integer where all contributors' are,
    NaN where one's is, or is out of range.
    """
    one, most = 1 << FRACTION_BITS, contributors * int(BOUND) << FRACTION_BITS
    units = [_PRODUCT // p * pow(_PRODUCT // p, -1, p) for p in _PRIMES]
    found: list[float] = []
    for number, flag in zip(
        (np.array(units, object) @ total[:-1].astype(object)).tolist(), total[-1], strict=True
    ):
        centred = (number + _PRODUCT // 2) % _PRODUCT - _PRODUCT // 2
        if abs(centred) > most:
            found.append(math.nan)
        elif flag % MODULI[-1] or centred % one:
            found.append(centred / one)
        else:
            found.append(centred // one)
    return found
