from __future__ import annotations

import numpy as np
import pytest

from protocols.aggregate import is_prime
from protocols.aggregate.choice import smallest_modulus
from protocols.aggregate.ntt import Ring

LARGEST = {
    n: next(p for p in range(2**31 - 2 * n + 1, 0, -2 * n) if is_prime(p)) for n in (8, 2048)
}


def schoolbook(a: list[int], b: list[int], p: int) -> list[int]:
    n = len(a)
    out = [0] * n
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            k, sign = (i + j, 1) if i + j < n else (i + j - n, -1)
            out[k] = (out[k] + sign * x * y) % p
    return out


@pytest.mark.parametrize("n", [2, 8, 64])
def test_product_is_the_schoolbook_product(n: int) -> None:
    primes = (smallest_modulus(2048, 1 << 22, 54)[0], LARGEST[2048])
    ring = Ring(n, primes)
    rng = np.random.default_rng(n)
    a = rng.integers(0, np.array(primes)[:, None], (2, n))
    b_signed = rng.integers(-300, 300, n)
    got = ring.inverse(ring.multiplier(b_signed).times(ring.forward(a.astype(np.uint64))))
    for row, p in enumerate(primes):
        assert got[row].tolist() == schoolbook(a[row].tolist(), b_signed.tolist(), p)


@pytest.mark.parametrize("n", [2048, 8192])
def test_one_coefficient_of_a_full_ring_by_its_definition(n: int) -> None:
    primes = smallest_modulus(n, 1 << 53, 54 if n == 2048 else 218)
    ring = Ring(n, primes)
    rng = np.random.default_rng(n)
    a = rng.integers(0, np.array(primes)[:, None], (len(primes), n))
    b = rng.integers(-80, 80, n)
    got = ring.inverse(ring.multiplier(b).times(ring.forward(a.astype(np.uint64))))
    for k in (0, 1, n // 2, n - 1):
        j = np.arange(n)
        terms = np.where(j <= k, 1, -1) * b[j]
        for row, p in enumerate(primes):
            assert int(got[row, k]) == sum(map(int, a[row, (k - j) % n] * terms)) % p


def test_inverse_undoes_forward_at_the_extremes_of_the_residues() -> None:
    n, p = 2048, LARGEST[2048]
    ring = Ring(n, (p,))
    for x in (np.full((1, n), p - 1), np.zeros((1, n)), np.arange(n)[None] % 2 * (p - 1)):
        x = x.astype(np.uint64)
        assert (ring.inverse(ring.forward(x)) == x).all()
        assert (ring.forward(ring.inverse(x)) == x).all()
