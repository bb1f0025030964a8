"""Integer polynomials between coefficients, evaluation form and slots.

    X^(2h) - c^2 = (X^h - c)(X^h + c),    from X^n + 1 down to linear factors.

Coefficient j of factor i stands at j m + i when there are m factors, so every stage combines the
two halves of a row and writes even and odd positions (Pease 1968). The last stage leaves OpenFHE's
order: entry e is the value at psi^(2 rev(e) + 1), rev reversing bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import residues as rns
from protocols.ckks.column_map import powers_of_five, powers_of_root
from protocols.ckks.residues import Residues
from protocols.ckks.subring import reversed_bits

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def evaluations(coefficients: Integers, primes: Sequence[int]) -> Residues:
    """Evaluation form modulo every prime, shape (len(primes), n), of coefficients below each."""
    n = len(coefficients)
    rows = (_forward(coefficients % prime, psi, prime) for psi, prime in _each(primes, n))
    return np.stack(list(rows))


def coefficients(polynomial: Residues, primes: Sequence[int]) -> Floats:
    """Centred modulo the product of two primes, shape (n,), to 53 bits; polynomial: shape (2, n).

    r + q t, r centred modulo the first prime q, t = (other - r) / q centred modulo the other one: t
    is zero, and all bits are there, where a coefficient is below q / 2.
    """
    n = polynomial.shape[1]
    pairs = zip(polynomial, _each(primes, n), strict=True)
    first, other = (_backward(row, psi, prime) for row, (psi, prime) in pairs)
    q, last = primes
    low = _centred(first, q)
    rest = rns.subtract(other[None], (low % last).astype(np.uint64)[None], [last])
    high = _centred(rns.scale(rest, [pow(q, -1, last)], [last])[0], last)
    found: Floats = low + float(q) * high
    return found


def to_slots(coefficients: Floats) -> NDArray[np.complex128]:
    """Values at zeta^(5^j), zeta = exp(i pi / n), shape (n,) to (n / 2,)."""
    n = len(coefficients)
    turns, places = _turns(n)
    found: NDArray[np.complex128] = np.fft.ifft(coefficients * turns, norm="forward")[places]
    return found


@lru_cache(maxsize=4)
def _turns(n: int) -> tuple[NDArray[np.complex128], Integers]:
    """zeta^i, and where the values at zeta^(5^j) stand among those at zeta^(2k + 1)."""
    return np.exp(1j * np.pi / n * np.arange(n)), powers_of_five(n // 2) // 2


def turned(polynomial: Residues, exponent: int) -> Residues:
    """s(X^exponent) of a polynomial in evaluation form: another order of its entries."""
    n = polynomial.shape[1]
    roots = 2 * reversed_bits(n) + 1
    found: Residues = polynomial[:, reversed_bits(n)[roots * exponent % (2 * n) // 2]]
    return found


# -- stages ---------------------------------------------------------------------------------------


def _forward(row: Integers, psi: Residues, prime: int) -> Residues:
    x, half, modulus = row.astype(np.uint64), len(row) // 2, np.uint64(prime)
    for exponents in _exponents(len(row)):
        low, high = x[:half], rns.row_product(x[half:], _tiled(psi[exponents], half), prime)
        x = np.empty_like(x)
        _reduced(low + high, modulus, x[0::2])
        _reduced(low + (modulus - high), modulus, x[1::2])
    return x


def _backward(row: Residues, psi: Residues, prime: int) -> Residues:
    x, half, modulus = row, len(row) // 2, np.uint64(prime)
    for exponents in reversed(list(_exponents(len(row)))):
        even, odd = x[0::2], x[1::2]
        inverse = _tiled(psi[-exponents % len(psi)], half)
        x = np.empty_like(x)
        _reduced(even + odd, modulus, x[:half])
        # Below twice the prime, which `row_product` takes.
        difference = even + (modulus - odd)
        x[half:] = rns.row_product(np.minimum(difference, difference - modulus), inverse, prime)
    found: Residues = rns.scale(x[None], [pow(len(row), -1, prime)], [prime])[0]
    return found


def _reduced(x: Residues, modulus: np.uint64, out: Residues) -> None:
    """Modulo the prime, of x below twice that."""
    np.minimum(x, x - modulus, out=out)


def _centred(row: Residues, prime: int) -> Integers:
    x = row.view(np.int64)
    return np.where(x > prime // 2, x - prime, x)


def _tiled(roots: Residues, count: int) -> Residues:
    return np.tile(roots, count // len(roots))


@lru_cache(maxsize=4)
def _stages(n: int) -> tuple[Integers, ...]:
    exponent, found = np.array([n]), []
    while exponent.size < n:
        exponent = exponent // 2
        found.append(exponent)
        exponent = np.stack([exponent, exponent + n], axis=1).ravel()
    return tuple(found)


def _exponents(n: int) -> Iterator[Integers]:
    """Of psi, in the factors c of each stage, shape (m,)."""
    return iter(_stages(n))


def _each(primes: Sequence[int], n: int) -> Iterator[tuple[Residues, int]]:
    """Powers of psi below 2n, and the prime."""
    return zip(powers_of_root(tuple(primes), n, n), primes, strict=True)
