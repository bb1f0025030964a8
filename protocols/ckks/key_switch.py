"""What a key switch is off by on average, and the public number that takes it away.

A key switch ends with a division by P, the product of K special primes. OpenFHE subtracts a
remainder in [0, K P) where one in [-P/2, P/2) is due, so every coefficient of both polynomials is
too small, by K/2 on average. Under a secret s that is the error

    -K/2 (1 + X + ... + X^(n-1)) (1 + s),

the same in every key switch of a run: such errors do not average out, over rounds or over rows that
are alike. `centre` is added to both polynomials: K/2, where K is odd by turns rounded up and down.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from protocols.ckks import residues as rns
from protocols.ckks.residues import Residues
from protocols.ckks.subring import monomial


@lru_cache(maxsize=8)
def centre(primes: tuple[int, ...], ring_dim: int, special: int) -> Residues:
    """Residues of K/2 (1 + X + ...), K special primes, shape (len(primes), n)."""
    places = [1 << k for k in range(ring_dim.bit_length() - 1)]
    # 1 + X^2 + X^4 + ..., and with the odd powers: products of 1 + X^(2^k).
    even: Residues = np.ones((len(primes), ring_dim), np.uint64)
    one = even
    for place in places[1:]:
        even = rns.product(even, rns.add(one, monomial(primes, ring_dim, place), primes), primes)
    every = rns.product(even, rns.add(one, monomial(primes, ring_dim, 1), primes), primes)
    whole = rns.scale(every, [special // 2] * len(primes), primes)
    return rns.add(whole, even, primes) if special % 2 else whole
