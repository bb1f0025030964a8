"""Exact polynomials behind OpenFHE's objects: what no role may see and a noise test must.

Coefficients are Python integers in object arrays, centred. OpenFHE stores evaluations at
psi^(2 bitreverse(i) + 1), psi the least primitive 2n-th root of unity modulo the prime.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from sims.exact import (
    Integers,
    automorphism,
    centred,
    coefficients,
    evaluations,
    least_root,
    rms,
)

__all__ = ["automorphism", "centred", "coefficients", "evaluations", "least_root", "rms"]
# Standard deviation of OpenFHE's errors; variance of a uniform ternary coefficient.
SIGMA, TERNARY = 3.19, 2 / 3


def whole(rows: Any, primes: Any) -> Integers:
    """Centred coefficients modulo the product of the primes, from evaluation form."""
    modulus = math.prod(primes)
    total = sum(
        coefficients(row, prime) * (modulus // prime * pow(modulus // prime, -1, prime))
        for row, prime in zip(rows, primes, strict=True)
    )
    return centred(total, modulus)


def product(left: Any, right: Any, primes: Any) -> NDArray[np.uint64]:
    """Product of residue matrices modulo each prime."""
    moduli = np.array(primes, dtype=object)[:, None]
    found: NDArray[np.uint64] = np.asarray(left, object) * np.asarray(right, object) % moduli
    return found.astype(np.uint64)


def secret_rows(keys: Any) -> rns.Residues:
    """Residues of s_p, shape (towers, n)."""
    rows: rns.Residues = keys._residues()
    return rows.copy()


def secret(keys: Any) -> Integers:
    """Coefficients of s_p."""
    return coefficients(secret_rows(keys)[0], keys.context.primes[0])


def decrypted(context: CkksContext, ct: Any, key: Integers) -> Integers:
    """Coefficients of c0 + c1 s modulo the first prime: message and noise, nothing added."""
    prime = context.primes[0]
    c0, c1 = (part[0].astype(object) for part in context.polynomials_of(ct))
    return coefficients((c0 + c1 * evaluations(key, prime)) % prime, prime)


def encoded(slots: NDArray[np.float64], ring_dim: int, scale: float) -> Integers:
    """Rounded coefficients of the polynomial with these real slot values, to 2^-64 of scale.

    c_k = 2 scale / n * sum_j v_j cos(pi k 5^j / n).
    """
    total = np.zeros(ring_dim, dtype=np.longdouble)
    for j in np.flatnonzero(slots):
        angles = np.arange(ring_dim) * pow(5, int(j), 2 * ring_dim) % (2 * ring_dim)
        total += np.longdouble(slots[j]) * np.cos(np.longdouble(np.pi) * angles / ring_dim)
    whole = np.rint(total * np.longdouble(2 * scale / ring_dim))
    return np.array([int(c) for c in whole], dtype=object)
