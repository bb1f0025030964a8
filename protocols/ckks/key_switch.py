"""What a key switch is off by on average, and the public number that takes it away.

A key switch ends with a division by P, the product of K special primes: (x - S) / P, S = x mod P.
OpenFHE takes S from residues by themselves,

    S = P (y_1 / p_1 + ... + y_K / p_K),    y_i = x (P / p_i)^-1 mod p_i in [0, p_i),

with no multiple of P taken off. x is uniform modulo P, hence the K fractions are uniform in [0, 1)
and independent: every coefficient is too small by K/2 on average, with variance K/12, in both
polynomials. Under a secret s that is

    -K/2 (1 + X + ... + X^(n-1)) (1 + s)    and noise, sqrt(K) times that of a rescaling.

The first is the same in every key switch of a run: such errors do not average out, over rounds or
over rows that are alike. `centre`, added before the division, takes it away, for odd K as well. Of
it is left what P / 2 is rounded by, and what fractions stop short of 1: below K 2^-59.

Digits of size Q_d are raised from Q to P Q in the same way. Each of their k primes adds Q_d / 2 on
average, times the key's errors and over P: below 2^-50 of a rounding wherever fewer than six primes
of 59 bits make a digit. Beyond, where Q_d is 2^-5 P, it is a fifth of a switch's noise, the same
under one key.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from protocols.ckks import residues as rns
from protocols.ckks.residues import Residues
from protocols.ckks.subring import monomial


@lru_cache(maxsize=8)
def centre(primes: tuple[int, ...], ring_dim: int, special: int) -> Residues:
    """Residues of P K / 2 (1 + X + ...), shape (len(primes), n).

    primes: of Q, and last the `special` ones, K of them, whose product is P.
    """
    one: Residues = np.ones((len(primes), ring_dim), np.uint64)
    every = one
    # 1 + X + X^2 + ... is the product of 1 + X^(2^k).
    for k in range(ring_dim.bit_length() - 1):
        factor = rns.add(one, monomial(primes, ring_dim, 1 << k), primes)
        every = rns.product(every, factor, primes)
    half = prod(primes[-special:]) * special // 2
    return rns.scale(every, [half % p for p in primes], primes)
