"""LOOKS AT SECRETS. Exact polynomials behind a simulated run: what no role may see.

A simulation owns every client's secret, so it can compute the noise of a ciphertext to the last
bit. Nothing in `protocols`, `parties` or `coordinator` may import this.

Coefficients are Python integers in object arrays, centred. OpenFHE stores evaluations at
psi^(2 bitreverse(i) + 1), psi the least primitive 2n-th root of unity modulo the prime.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import accumulate, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext

Integers = NDArray[np.object_]


@cache
def least_root(prime: int, n: int) -> int:
    """Least primitive 2n-th root of unity."""
    candidates = (pow(g, (prime - 1) // (2 * n), prime) for g in range(2, 1000))
    root = next(r for r in candidates if pow(r, n, prime) == prime - 1)
    return int(min(_powers(root, 2 * n, prime)[1::2]))


def coefficients(row: Any, prime: int) -> Integers:
    """Centred coefficients of a polynomial in OpenFHE's evaluation form."""
    n = len(row)
    inverse = pow(least_root(prime, n), -1, prime)
    values = np.empty(n, dtype=object)
    values[_bit_reversal(n)] = [int(value) for value in row]
    spectrum = _transform(values, inverse * inverse % prime, prime)
    return centred(spectrum * _powers(inverse, n, prime) * pow(n, -1, prime), prime)


def evaluations(polynomial: Any, prime: int) -> Integers:
    """OpenFHE's evaluation form of integer coefficients."""
    n = len(polynomial)
    root = least_root(prime, n)
    twisted = np.array([int(c) for c in polynomial], dtype=object) * _powers(root, n, prime)
    return _transform(twisted % prime, root * root % prime, prime)[_bit_reversal(n)]


def joined(rows: Any, primes: tuple[int, int]) -> Integers:
    """Centred coefficients modulo the product of two primes, from both evaluation forms."""
    (p, q), (one, two) = primes, map(coefficients, rows, primes)
    return centred(one + p * ((two - one) * pow(p, -1, q) % q), p * q)


def centred(values: Any, prime: int) -> Integers:
    """Representatives in (-prime/2, prime/2]."""
    reduced = np.asarray(values, dtype=object) % prime
    return np.where(reduced > prime // 2, reduced - prime, reduced)


def automorphism(polynomial: Integers, exponent: int) -> Integers:
    """a(X) -> a(X^exponent) modulo X^n + 1."""
    n = len(polynomial)
    targets = np.arange(n) * exponent % (2 * n)
    out = np.empty(n, dtype=object)
    out[targets % n] = np.where(targets < n, polynomial, -polynomial)
    return out


def rms(values: Any) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.asarray(values, dtype=float) ** 2)))


class JointSecret:
    """s = sum_p s_p of a simulated run. SECRET: nobody ever holds it in a real one."""

    def __init__(self, context: CkksContext, shares: Iterable[Any]) -> None:
        """shares: s_p, integer coefficients."""
        total: Integers = np.zeros(context.params.ring_dim, dtype=object)
        for share in shares:
            total = total + np.asarray(share).astype(object)
        self.context, self.coefficients = context, total
        self._evaluated: dict[int, Integers] = {}

    def at(self, prime: int) -> Integers:
        """Evaluation form modulo a prime."""
        if prime not in self._evaluated:
            self._evaluated[prime] = evaluations(self.coefficients, prime)
        return self._evaluated[prime]

    def phase(self, c0: Any, c1: Any, prime: int) -> Integers:
        """Coefficients of c0 + c1 s modulo a prime, from one residue row each."""
        value = np.asarray(c0, dtype=object) + np.asarray(c1, dtype=object) * self.at(prime)
        return coefficients(value % prime, prime)

    def noise(self, polynomials: Sequence[rns.Residues], message: rns.Residues) -> Integers:
        """c0 + c1 s - message at the first prime; message: residues of a plaintext."""
        c0 = polynomials[0][0].astype(object) - message[0].astype(object)
        return self.phase(c0, polynomials[1][0], self.context.primes[0])

    def opened(self, polynomials: Sequence[rns.Residues], towers: int) -> rns.Residues:
        """c0 + c1 s at the first primes, in evaluation form, shape (towers, n)."""
        c0, c1 = (rows[:towers].astype(object) for rows in polynomials)
        primes = self.context.primes[:towers]
        rows = [(a + b * self.at(q)) % q for a, b, q in zip(c0, c1, primes, strict=True)]
        return np.array(rows).astype(np.uint64)


def at_slots(polynomial: Integers, slots: Sequence[int]) -> NDArray[np.float64]:
    """Real slot values of a polynomial over sqrt(n / 2): white noise keeps its deviation.

    v_j = sum_k c_k cos(pi k 5^j / n).
    """
    n = len(polynomial)
    values, powers = np.asarray(polynomial, dtype=float), np.arange(n)
    angles = (powers * pow(5, int(j), 2 * n) % (2 * n) for j in slots)
    found = [values @ np.cos(np.pi * angle / n) for angle in angles]
    scaled: NDArray[np.float64] = np.array(found) / np.sqrt(n / 2)
    return scaled


def residues_of_slots(context: CkksContext, slots: NDArray[np.float64]) -> rns.Residues:
    """Residues of the plaintext that an encryption of these slots carries, as OpenFHE rounds it."""
    shape = context.params.num_towers, context.params.ring_dim
    zero = context.ciphertext([np.zeros(shape, np.uint64)])
    return context.residues_of(context.cc.EvalAdd(zero, context.encode(slots)))


def _transform(values: Integers, root: int, prime: int) -> Integers:
    """Values at the powers of root, radix 2, level by level."""
    n = len(values)
    out = values[_bit_reversal(n)]
    size = 2
    while size <= n:
        turn = _powers(pow(root, n // size, prime), size // 2, prime)
        blocks = out.reshape(-1, size)
        even, odd = blocks[:, : size // 2], blocks[:, size // 2 :] * turn % prime
        out = np.concatenate([(even + odd) % prime, (even - odd) % prime], axis=1).reshape(-1)
        size *= 2
    return out


@lru_cache(maxsize=512)
def _powers(root: int, count: int, prime: int) -> Integers:
    steps = accumulate(repeat(root, count - 1), lambda a, b: a * b % prime, initial=1)
    return np.array(list(steps), dtype=object)


@cache
def _bit_reversal(n: int) -> NDArray[np.int64]:
    bits = n.bit_length() - 1
    return np.array([int(format(i, f"0{bits}b")[::-1], 2) for i in range(n)])
