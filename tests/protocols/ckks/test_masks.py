"""Masks of a refresh: uniform, as wide as the primes leave room for, exact when they are lifted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from parties.kernel.rows.masks import draw_mask
from protocols.ckks import REFRESH_TOWERS, CkksParameters
from protocols.ckks.circuits.choice import smallest_mask_bits, smallest_room
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.lift import lift
from protocols.ckks.sampling import mask_bits, room
from protocols.privacy.laws.seeded import SeededRandomness
from tests.support import exact

N = 512
PARAMS = CkksParameters(ring_dim=N, depth=6, security_bits=0)
CONTEXT = CkksContext(PARAMS, "masks")
LOW = CONTEXT.primes[:REFRESH_TOWERS]
Q3 = math.prod(LOW)


def integers(residues: np.ndarray) -> list[int]:
    """Centred integers behind coefficients modulo each prime."""
    total = sum(
        row.astype(object) * (Q3 // prime * pow(Q3 // prime, -1, prime))
        for row, prime in zip(residues, LOW, strict=True)
    )
    return [int(value) for value in exact.centred(total, Q3)]


@pytest.mark.parametrize("parties", [2, 3, 50, 1000])
def test_all_masks_and_a_message_fit(parties: int) -> None:
    """Q3 / 2 is reached by no sum, and missed by less than a factor of four in every mask."""
    bits = mask_bits(LOW, parties)
    assert parties * 2 ** (bits - 1) + room(LOW) <= Q3 / 2 < 2 * parties * 2 ** (bits - 1) * 1.01
    assert smallest_mask_bits(PARAMS, parties) <= bits
    assert smallest_room(PARAMS) <= room(LOW)


def test_masks_are_uniform_in_their_whole_range() -> None:
    """The top 6 bits and the bottom 6 are, and no mask is outside."""
    random, bits = SeededRandomness(5), mask_bits(LOW, 3)
    drawn = [v for _ in range(40) for v in integers(draw_mask(LOW, 3, N, random))]
    assert min(drawn) >= -(2 ** (bits - 1)) and max(drawn) < 2 ** (bits - 1)
    lifted = [v + 2 ** (bits - 1) for v in drawn]
    for place in (0, bits // 2, bits - 6):
        counts = np.bincount([v >> place & 63 for v in lifted], minlength=64)
        assert stats.chisquare(counts).pvalue > 1e-6


def test_a_mask_is_the_integer_of_its_words() -> None:
    """Little-endian, the last word cut off at the top, less 2^(k-1)."""
    bits, words = mask_bits(LOW, 3), SeededRandomness(7).words(3 * N).reshape(3, N).astype(object)
    wanted = words[0] + (words[1] << 64) + (words[2] >> 192 - bits << 128) - (1 << bits - 1)
    assert integers(draw_mask(LOW, 3, N, SeededRandomness(7))) == wanted.tolist()


def test_a_lift_is_the_same_integer_at_every_prime() -> None:
    """Masks, small errors of either sign, zero."""
    random = SeededRandomness(6)
    errors = np.arange(N) % 7 - 3
    small = [np.array([each % prime for prime in LOW], np.uint64) for each in (errors, errors * 0)]
    polynomials = [draw_mask(LOW, 2, N, random), *small]
    for polynomial, lifted in zip(polynomials, lift(CONTEXT, polynomials), strict=True):
        whole = integers(polynomial)
        for row, prime in zip(lifted, CONTEXT.primes, strict=True):
            assert (exact.coefficients(row, prime) == exact.centred(whole, prime)).all()
