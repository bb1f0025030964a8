"""Polynomials onto their subring, the way back of `subring.embed`, and its slots."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import residues as rns
from protocols.ckks.residues import Residues
from protocols.ckks.subring import slot_values, sums_of
from protocols.ckks.transform import powers_of_root, reversed_bits

Complexes = NDArray[np.complex128]


def project(polynomial: Residues, primes: Sequence[int], period: int) -> list[int]:
    """The 2k coefficients of the subring, as integers between -Q / 2 and Q / 2.

    polynomial: shape (len(primes), n); Q: the product of the primes; period: k.
    """
    rows = _coefficients(polynomial, primes, period)
    modulus = prod(primes)
    lifts = [modulus // p * pow(modulus // p, -1, p) for p in primes]
    found = []
    for column in zip(*rows, strict=True):
        value = sum(c * lift for c, lift in zip(column, lifts, strict=True)) % modulus
        found.append(value - modulus if value > modulus // 2 else value)
    return found


def _coefficients(polynomial: Residues, primes: Sequence[int], period: int) -> list[list[int]]:
    """Of Y^0 … Y^(2k - 1), modulo each prime."""
    towers, n = polynomial.shape
    sums = sums_of(polynomial.reshape(towers, 2 * period, -1))
    inverses = _inverses(tuple(primes), n, 2 * period)
    return [
        [int(c) for c in matrix @ (row % prime) % prime]
        for matrix, row, prime in zip(inverses, sums, primes, strict=True)
    ]


@lru_cache(maxsize=16)
def _inverses(primes: tuple[int, ...], n: int, count: int) -> tuple[NDArray[Any], ...]:
    """Of each prime: from sums of n / count entries to coefficients."""
    matrices = (_powers_of(row, count).T for row in powers_of_root(primes, n, count))
    return tuple(m * pow(n, -1, p) % p for m, p in zip(matrices, primes, strict=True))


def _powers_of(phi: Residues, count: int) -> NDArray[Any]:
    """phi^-((2 rev(h) + 1) j), h: which chunk of entries; phi: its powers 0 … 2 count - 1."""
    exponents = -np.outer(2 * reversed_bits(count) + 1, np.arange(count)) % (2 * count)
    found: NDArray[Any] = phi.astype(object)[exponents]
    return found


def to_slots(coefficients: Sequence[float], period: int) -> Complexes:
    """The k slots of an element of the subring."""
    found: Complexes = slot_values(period) @ np.asarray(coefficients, np.float64)
    return found


def shifted(polynomial: Residues, primes: Sequence[int], places: int) -> Residues:
    """The product with X^places, shape (len(primes), n)."""
    if not places:
        return polynomial
    return rns.product(polynomial, monomial(tuple(primes), polynomial.shape[1], places), primes)


@lru_cache(maxsize=4)
def monomial(primes: tuple[int, ...], n: int, places: int) -> Residues:
    """X^places, shape (len(primes), n)."""
    exponents = (2 * reversed_bits(n) + 1) * places % (2 * n)
    found = powers_of_root(primes, n, n)[:, exponents]
    found.setflags(write=False)
    return found
