"""Uniform words and integers: repeatable when seeded, fair, and honestly labelled."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from protocols.aggregate.packed import uniform_below_each
from protocols.errors import ParameterError
from protocols.privacy.laws import (
    SystemRandomness,
    random_bits,
    uniform_below,
)
from protocols.privacy.laws.seeded import SeededRandomness


def test_a_seed_repeats_whatever_the_call_sizes() -> None:
    first = SeededRandomness(7).words(70_000)
    again = SeededRandomness(7)
    pieces = [again.words(n) for n in (1, 40_000, 0, 29_999)]
    assert np.array_equal(first, np.concatenate(pieces))
    assert not np.array_equal(first, SeededRandomness(8).words(70_000))
    assert not np.array_equal(first, SeededRandomness(7, label="party 1").words(70_000))


def test_the_label_is_loud() -> None:
    assert "NOT PRIVATE" in repr(SeededRandomness(1))


def test_the_systems_source_does_not_repeat() -> None:
    assert not np.array_equal(SystemRandomness().words(4), SystemRandomness().words(4))


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 1000])
def test_uniform_below_is_uniform(bound: int) -> None:
    values = uniform_below(SeededRandomness(bound), bound, 50_000)
    counts = np.bincount(values, minlength=bound)
    assert counts.size == bound
    assert bound == 1 or stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.parametrize("bound", [(1 << 40) + 1, 1 << 62])
def test_uniform_below_reaches_large_bounds(bound: int) -> None:
    values = uniform_below(SeededRandomness(3), bound, 20_000)
    assert values.min() >= 0
    assert values.max() < bound
    assert stats.kstest(values / bound, "uniform").pvalue > 1e-6


def test_uniform_below_each_obeys_every_bound() -> None:
    bounds = np.tile(np.array([1, 2, 3, 7, 1 << 50]), 20_000)
    values = uniform_below_each(SeededRandomness(5), bounds)
    assert (values >= 0).all()
    assert (values < bounds).all()
    assert stats.chisquare(np.bincount(values[bounds == 7], minlength=7)).pvalue > 1e-6
    assert stats.kstest(values[bounds == 1 << 50] / 2**50, "uniform").pvalue > 1e-6


def test_bits_are_fair() -> None:
    bits = random_bits(SeededRandomness(2), 100_001)
    assert bits.size == 100_001
    assert stats.binomtest(int(bits.sum()), bits.size).pvalue > 1e-6


@pytest.mark.parametrize("bound", [0, -1, (1 << 62) + 1])
def test_impossible_bounds_are_refused(bound: int) -> None:
    with pytest.raises(ParameterError, match="bound"):
        uniform_below(SystemRandomness(), bound, 1)
