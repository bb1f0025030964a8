"""Elements of the subring are the polynomials that they stand for, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from protocols.ckks import CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.context import RingContext
from protocols.ckks.subring import drawn, embed, outside
from protocols.ckks.transform import evaluations
from protocols.privacy.laws.seeded import SeededRandomness

N = 512
CONTEXT = RingContext(CkksParameters(ring_dim=N, depth=4, security_bits=0), "subring")


@pytest.mark.parametrize("period", [1, 2, 8, N // 2])
@pytest.mark.parametrize("towers", [1, 3, 5])
def test_an_element_is_its_polynomial(period: int, towers: int) -> None:
    """sum_j c_j X^(j n / 2k), of either sign, by the transform of all n coefficients."""
    primes = CONTEXT.primes[:towers]
    own = SeededRandomness(period).words(2 * period).astype(np.int64) >> 6
    whole = np.zeros(N, np.int64)
    whole[:: N // (2 * period)] = own
    assert (embed(own.tolist(), primes, N) == evaluations(whole, primes)).all()


def test_large_coefficients_are_embedded_exactly() -> None:
    """Of 178 bits: by parts of 59 bits, each its own polynomial."""
    primes, words = CONTEXT.primes[:3], SeededRandomness(3).words(24).reshape(3, 8) >> np.uint64(5)
    large = [sum(int(w) << 59 * k for k, w in enumerate(column)) for column in words.T]
    found = rns.zeros(3, N)
    for k, part in enumerate(words):
        shifted = rns.scale(embed([int(w) for w in part], primes, N), [1 << 59 * k] * 3, primes)
        found = rns.add(found, shifted, primes)
    assert (embed(large, primes, N) == found).all()


def test_what_is_outside_of_the_subring_has_no_part_in_it() -> None:
    """Its values of each Y add up to zero; what is drawn is below its prime."""
    primes = CONTEXT.primes[:3]
    for found in (
        outside(primes, N, 4, SeededRandomness(1)),
        drawn(primes, N, SeededRandomness(1)),
    ):
        rns.check(found, primes, N)
    chunks = outside(primes, N, 4, SeededRandomness(1)).reshape(3, 8, -1).astype(object)
    assert not any(
        (row.sum(axis=1) % prime).any() for row, prime in zip(chunks, primes, strict=True)
    )
