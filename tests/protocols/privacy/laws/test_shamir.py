"""Sharing over R_Q: what t shares give, and what t - 1 do not."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from parties.kernel.cover import shamir
from protocols.ckks import residues as rns
from protocols.privacy.laws import SystemRandomness
from protocols.privacy.laws.seeded import SeededRandomness

PRIMES = ((1 << 60) - 93, (1 << 59) - 55, 97)


class Words:
    """A source that gives these words."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, count: int) -> Any:
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, np.uint64)


def random_rows(seed: int, n: int = 16) -> Any:
    return shamir.uniform_residues(PRIMES, n, SeededRandomness(seed, "rows"))


@pytest.mark.parametrize("factor", [0, 1, 3, 15, 2**59 + 12345, 2**60 - 94, -7, 2**70])
def test_scale_is_multiplication(factor: int) -> None:
    rows = random_rows(1)
    rows[:2, 0] = [p - 1 for p in PRIMES[:2]]
    found = rns.scale(rows, [factor] * 3, PRIMES)
    wanted = [
        [int(v) * factor % p for v in row] for row, p in zip(rows.tolist(), PRIMES, strict=True)
    ]
    assert found.tolist() == wanted


@pytest.mark.parametrize(("threshold", "parties"), [(2, 3), (3, 5), (4, 5), (2, 12)])
def test_any_t_reconstruct_and_no_other_weights_do(threshold: int, parties: int) -> None:
    secret, points = random_rows(2), range(1, parties + 1)
    shares = shamir.deal(secret, PRIMES, threshold, points, SystemRandomness())

    def combined(present: tuple[int, ...], weighted_as: tuple[int, ...]) -> Any:
        total = np.zeros_like(secret)
        for x, y in zip(present, weighted_as, strict=True):
            part = rns.scale(shares[x], shamir.weights(y, weighted_as, PRIMES), PRIMES)
            total = rns.add(total, part, PRIMES)
        return total

    sets = list(combinations(points, threshold))
    for present in sets:
        assert (combined(present, present) == secret).all()
    # Modulo 97, the last prime, three of sixteen agree by chance in one of 2000 runs.
    assert not (combined(sets[0], sets[-1]) == secret)[:-1].any()
    fewer = sets[0][1:]
    assert not (combined(fewer, fewer) == secret)[:-1].any()


@pytest.mark.parametrize("threshold", [2, 3])
def test_fewer_than_t_shares_are_uniform_whatever_the_secret(threshold: int) -> None:
    """All polynomials over F_5: every value of t - 1 shares comes from exactly one of them."""
    for secret, points in product(range(5), combinations((1, 2, 3, 4), threshold - 1)):
        seen: Counter[tuple[int, ...]] = Counter()
        for coefficients in product(range(5), repeat=threshold - 1):
            rows = np.array([[secret]], np.uint64)
            shares = shamir.deal(rows, [5], threshold, points, Words(*coefficients))
            seen[tuple(int(shares[x][0, 0]) for x in points)] += 1
        assert set(seen.values()) == {1} and len(seen) == 5 ** (threshold - 1)


def test_residues_are_uniform() -> None:
    """Words from the last incomplete run of a prime are refused; none is biased by its rest."""
    prime = (1 << 62) + 1
    last = (1 << 64) // prime * prime
    found = shamir.uniform_residues([prime], 2, Words(last, 5, last + 1, last - 1))
    assert found.tolist() == [[5, prime - 1]]
    drawn = shamir.uniform_residues([7], 70_000, SystemRandomness())
    counts = np.bincount(drawn[0].astype(int), minlength=7)
    # Chi-square with 6 degrees of freedom: above 45 with p = 5e-8.
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 45
