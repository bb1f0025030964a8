from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from protocols.aggregate import NOISE_STD
from protocols.privacy.laws.discrete import narrow_gaussian, thresholds
from protocols.privacy.laws.seeded import SeededRandomness


def law(sigma: float) -> dict[int, float]:
    weights = {k: math.exp(-k * k / (2 * sigma**2)) for k in range(-400, 401)}
    total = math.fsum(weights.values())
    return {k: w / total for k, w in weights.items()}


@pytest.mark.parametrize("sigma", [1.0, NOISE_STD, 16.0])
def test_the_table_is_the_law(sigma: float) -> None:
    high, low = thresholds(sigma)
    cumulative = [
        (int(h) << 63 | int(x)) / 2**127 for h, x in zip(high[:, 0], low[:, 0], strict=True)
    ]
    exact = law(sigma)
    for j, got in enumerate(cumulative):
        assert got == pytest.approx(math.fsum(exact[k] for k in range(-j, j + 1)), rel=1e-13)
    # What is cut off, or rounded to 1, lies beyond 12.5 sigma: P < 2 exp(-12.5^2 / 2) = 2^-111.
    assert len(cumulative) >= 12.5 * sigma
    assert len(cumulative) < 256


@pytest.mark.parametrize("sigma", [1.5, NOISE_STD])
def test_draws_follow_the_law(sigma: float) -> None:
    count = 300_000
    draws = narrow_gaussian(sigma, count, SeededRandomness(5))
    edge = int(3.5 * sigma)
    exact = law(sigma)
    bins = [math.fsum(p for k, p in exact.items() if k < -edge)]
    bins += [exact[k] for k in range(-edge, edge + 1)]
    bins += [math.fsum(p for k, p in exact.items() if k > edge)]
    clipped = np.clip(draws, -edge - 1, edge + 1) + edge + 1
    seen = np.bincount(clipped, minlength=len(bins))
    assert stats.chisquare(seen, np.array(bins) * count).pvalue > 1e-3
    # 3 % off in the std is 15 standard errors of the variance here.
    assert draws.var() == pytest.approx(sigma**2, rel=0.02)


class Words:
    """A source that gives these words."""

    def __init__(self, top: list[int], bottom: list[int]) -> None:
        self._words = np.array(top + bottom, np.uint64)

    def words(self, count: int) -> np.ndarray:
        assert count == self._words.size
        return self._words


def test_a_tie_of_high_words_is_decided_by_the_low_ones() -> None:
    """And the most extreme words stay in the table."""
    high, low = thresholds(NOISE_STD)
    k, most = 7, 2**64 - 1
    h, x = int(high[k, 0]), int(low[k, 0])
    assert 0 < x < 2**63 - 1
    source = Words([h, h, h, h], [x << 1, (x - 1) << 1, (x << 1) | 1, ((x - 1) << 1) | 1])
    assert narrow_gaussian(NOISE_STD, 4, source).tolist() == [k + 1, k, -(k + 1), -k]
    assert narrow_gaussian(NOISE_STD, 2, Words([0, most], [1, most])).tolist() == [0, -len(high)]
