"""Coefficients of polynomials in evaluation form, which a coordinator reads a message from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from protocols.ckks import residues as rns
from protocols.ckks.residues import Residues
from protocols.ckks.transform import Floats, Integers, forward, powers_of_root, reversed_bits


def coefficients(polynomial: Residues, primes: Sequence[int]) -> Floats:
    """Centred modulo the product of two primes, shape (n,), to 53 bits; polynomial: shape (2, n).

    r + q t, r centred modulo the first prime q, t = (other - r) / q centred modulo the other one: t
    is zero, and all bits are there, where a coefficient is below q / 2.
    """
    n = polynomial.shape[1]
    pairs = zip(polynomial, powers_of_root(tuple(primes), n, n), primes, strict=True)
    first, other = (_backward(*each) for each in pairs)
    q, last = primes
    low = _centred(first, q)
    rest = rns.subtract(other[None], (low % last).astype(np.uint64)[None], [last])
    high = _centred(rns.scale(rest, [pow(q, -1, last)], [last])[0], last)
    found: Floats = low + float(q) * high
    return found


def _backward(row: Residues, psi: Residues, prime: int) -> Residues:
    """Inverse of `transform.forward`: f_i = 1 / n psi^-i sum_k a_k psi^(-2 k i).

    The sum is a transform of a_k psi^-k, read backwards.
    """
    n = len(row)
    place = np.arange(n)
    back = psi[-place % (2 * n)]
    sums = forward(rns.row_product(row[reversed_bits(n)], back, prime), psi, prime)
    found = rns.row_product(sums[reversed_bits(n)][-place % n], back, prime)
    return np.asarray(rns.scale(found[None], [pow(n, -1, prime)], [prime])[0])


def _centred(row: Residues, prime: int) -> Integers:
    x = row.view(np.int64)
    return np.where(x > prime // 2, x - prime, x)
