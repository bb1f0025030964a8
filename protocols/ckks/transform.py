"""Integer polynomials between coefficients, evaluation form and slots.

    X^(2h) - c^2 = (X^h - c)(X^h + c),    from X^n + 1 down to linear factors.

Coefficient j of factor i stands at j m + i when there are m factors, so every stage combines the
two halves of a row and writes even and odd positions (Pease 1968). The last stage leaves OpenFHE's
order: entry e is the value at psi^(2 rev(e) + 1), rev reversing bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import residues as rns
from protocols.ckks.residues import Residues

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
SHORT = 4096  # words of rows that are transformed together: there, calls cost more than the work


def evaluations(coefficients: Integers, primes: Sequence[int]) -> Residues:
    """Evaluation form modulo every prime, shape (len(primes), n), of coefficients below each."""
    powers = powers_of_root(tuple(primes), n := len(coefficients), n)
    if n <= SHORT:
        return forward(coefficients % (each := np.array([primes]).T), powers, each)
    return np.stack(rns.each(lambda p, psi: forward(coefficients % p, psi, p), primes, powers))


def to_slots(coefficients: Floats) -> NDArray[np.complex128]:
    """Values at zeta^(5^j), zeta = exp(i pi / n), shape (n,) to (n / 2,)."""
    turns, places = _turns(len(coefficients))
    found: NDArray[np.complex128] = np.fft.ifft(coefficients * turns, norm="forward")[places]
    return found


def from_slots(slots: NDArray[np.complex128]) -> Floats:
    """Coefficients of the real polynomial with these values: inverse of `to_slots`."""
    n = 2 * len(slots)
    turns, places = _turns(n)
    values = np.empty(n, np.complex128)
    values[places], values[n - 1 - places] = slots, slots.conj()
    return np.asarray((np.fft.fft(values, norm="forward") / turns).real)


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


def forward(row: Integers | Residues, psi: Residues, prime: int | Integers) -> Residues:
    """Values at psi^(2 rev(e) + 1) of coefficients below the prime; psi: its powers below 2 n."""
    x, half, modulus = row.astype(np.uint64), row.shape[-1] // 2, np.uint64(prime)
    for exponents in _stages(2 * half):
        factors = np.tile(psi[..., exponents], half // len(exponents))
        low, high = x[..., :half], rns.row_product(x[..., half:], factors, prime)
        x = np.empty_like(x)
        _reduced(low + high, modulus, x[..., 0::2])
        _reduced(low + (modulus - high), modulus, x[..., 1::2])
    return x


def _reduced(x: Residues, modulus: np.uint64 | Residues, out: Residues) -> None:
    """Modulo the prime, of x below twice that."""
    np.minimum(x, x - modulus, out=out)


@lru_cache(maxsize=4)
def _stages(n: int) -> tuple[Integers, ...]:
    """Exponents of psi in the factors c of each stage, shape (m,)."""
    exponent, found = np.array([n]), []
    while exponent.size < n:
        exponent = exponent // 2
        found.append(exponent)
        exponent = np.stack([exponent, exponent + n], axis=1).ravel()
    return tuple(found)


# -- roots ----------------------------------------------------------------------------------------


def reversed_bits(count: int) -> NDArray[np.int64]:
    """rev of 0 … count - 1."""
    bits = count.bit_length() - 1
    found: NDArray[np.int64] = np.arange(count).reshape((2,) * bits).transpose().ravel()
    return found


@lru_cache(maxsize=8)
def powers_of_five(size: int) -> NDArray[np.int64]:
    """5^i mod 4B, i < B."""
    return np.array([pow(5, i, 4 * size) for i in range(size)], np.int64)


@lru_cache(maxsize=8)
def powers_of_root(primes: tuple[int, ...], n: int, count: int) -> Residues:
    """phi^i, i < 2 N, shape (len(primes), 2 N), N = count; phi = psi^(n / N).

    psi: the root of X^n + 1 that OpenFHE takes.
    """
    roots = [pow(_root(prime, n), n // count, prime) for prime in primes]
    return _geometric(roots, primes, 2 * count)


def _geometric(ratios: list[int], primes: tuple[int, ...], count: int) -> Residues:
    found: Residues = np.ones((len(primes), 1), np.uint64)
    while found.shape[1] < count:
        steps = [pow(r, found.shape[1], p) for r, p in zip(ratios, primes, strict=True)]
        wide = np.broadcast_to(np.array(steps, np.uint64)[:, None], found.shape)
        found = np.concatenate([found, rns.product(found, wide, primes)], axis=1)
    return found


@lru_cache(maxsize=64)
def _root(prime: int, n: int) -> int:
    """The least primitive 2n-th root of unity mod prime, which OpenFHE takes."""
    candidate = 2
    while pow(root := pow(candidate, (prime - 1) // (2 * n), prime), n, prime) != prime - 1:
        candidate += 1
    # All primitive ones are the odd powers of one of them.
    return int(_geometric([root], (prime,), 2 * n)[0, 1::2].min())
