"""Shamir's sharing of a ring element of R_Q, residue by residue.

The dealer of s draws f(X) = s + a_1 X + … + a_(t-1) X^(t-1), every a_k uniform in R_Q, and gives
f(x) to the party at the point x = 1 … P. R_Q is a product of fields F_q, one for each prime and
coefficient, and P < q, so that t - 1 values of f are uniform and independent of s, and any t give

    s = sum_(x in S) lambda_x f(x),   lambda_x = prod_(y in S, y != x) y / (y - x)   mod each prime

Source: Shamir, How to share a secret, CACM 1979.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from protocols.ckks import residues as rns
from protocols.ckks.residues import Residues
from protocols.privacy.laws import RandomSource


def deal(
    secret: Residues,
    primes: Sequence[int],
    threshold: int,
    points: Collection[int],
    randomness: RandomSource,
) -> dict[int, Residues]:
    """f(x) for each point, shape of the secret; threshold: t values determine it, fewer nothing."""
    n = secret.shape[1]
    higher = [uniform_residues(primes, n, randomness) for _ in range(threshold - 1)]
    shares = {}
    for x in points:
        value = np.zeros_like(secret)
        for coefficient in (*reversed(higher), secret):
            value = rns.add(rns.scale(value, [x] * len(primes), primes), coefficient, primes)
        shares[x] = value
    return shares


def weights(x: int, points: Collection[int], primes: Sequence[int]) -> list[int]:
    """lambda_x of the set `points`, of which x is one, modulo each prime."""
    found = []
    for prime in primes:
        above, below = 1, 1
        for y in points:
            if y != x:
                above, below = above * y % prime, below * (y - x) % prime
        found.append(above * pow(below, -1, prime) % prime)
    return found


def uniform_residues(primes: Sequence[int], n: int, randomness: RandomSource) -> Residues:
    """Independent uniform residues, shape (len(primes), n).

    Words from floor(2^64 / q) q on are refused, so that each residue is exactly uniform.
    """
    rows = np.empty((len(primes), n), np.uint64)
    for row, prime in zip(rows, primes, strict=True):
        filled = 0
        while filled < n:
            words = randomness.words(n - filled)
            kept = words[words <= np.uint64((1 << 64) // prime * prime - 1)] % np.uint64(prime)
            row[filled : filled + len(kept)] = kept
            filled += len(kept)
    return rows
