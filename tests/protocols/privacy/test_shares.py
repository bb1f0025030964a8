"""What is left without any t colluders is enough noise; a mutant of the split is noticed."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from protocols.errors import ParameterError
from protocols.privacy.grid import NoiseGrid, discretisation_delta
from protocols.privacy.polya import poisson_of_inverse, polya
from protocols.privacy.randomness import SeededRandomness
from protocols.privacy.shares import NoiseSplit, gaussian_shares
from tests.protocols.privacy.checks import (
    gaussian_accepted,
    pmf_accepted,
    std_accepted,
)

SIGMA = 0.0335
SPLIT = NoiseSplit(parties=5, colluders=2)


def _everyone(sigma: float, split: NoiseSplit) -> list[NDArray[np.float64]]:
    return [
        gaussian_shares(sigma, split, 400, 25, SeededRandomness(1, f"party {p}")).ravel()
        for p in range(split.parties)
    ]


def _leaves_enough(shares: list[NDArray[np.float64]], split: NoiseSplit, sigma: float) -> bool:
    """Whether the noise outside every coalition of t has standard deviation sigma."""
    outside = combinations(range(split.parties), split.honest)
    return all(
        gaussian_accepted(np.sum([shares[p] for p in group], axis=0), sigma) for group in outside
    )


def test_any_honest_group_leaves_sigma() -> None:
    assert _leaves_enough(_everyone(SIGMA, SPLIT), SPLIT, SIGMA)


def test_everyone_together_has_the_total() -> None:
    total = np.sum(_everyone(SIGMA, SPLIT), axis=0)
    assert gaussian_accepted(total, SPLIT.total_std(SIGMA))
    assert not gaussian_accepted(total, SIGMA)


@pytest.mark.parametrize(
    ("mutant", "what"),
    [
        (SIGMA / 2, "sigma halved"),
        (SIGMA * math.sqrt(SPLIT.honest / SPLIT.parties), "split as P instead of P - t"),
        (SIGMA * 0.95, "5 % too little"),
        (SIGMA * 1.05, "5 % too much"),
    ],
)
def test_mutants_of_the_split_are_noticed(mutant: float, what: str) -> None:
    assert not _leaves_enough(_everyone(mutant, SPLIT), SPLIT, SIGMA), what


@pytest.mark.parametrize(("parties", "colluders"), [(1, 0), (2, 0), (2, 1), (16, 15), (10, 3)])
def test_formulas(parties: int, colluders: int) -> None:
    split = NoiseSplit(parties=parties, colluders=colluders)
    assert split.honest * split.share_std(1.0) ** 2 == pytest.approx(1.0)
    assert parties * split.share_std(1.0) ** 2 == pytest.approx(split.total_std(1.0) ** 2)
    assert split.seen_std(1.0, colluders) == pytest.approx(1.0)
    assert split.seen_std(1.0, 0) == pytest.approx(split.total_std(1.0))
    assert split.seen_std(1.0, parties - 1) == pytest.approx(split.share_std(1.0))


@pytest.mark.parametrize(("parties", "colluders"), [(0, 0), (3, 3), (3, -1)])
def test_impossible_splits_are_refused(parties: int, colluders: int) -> None:
    with pytest.raises(ParameterError, match="parties|colluders"):
        NoiseSplit(parties=parties, colluders=colluders)


def test_the_grid_is_fine_enough_and_rounds_up() -> None:
    for sigma in (1e-9, 0.0335, 1.0, 7e6):
        grid = SPLIT.grid(sigma)
        units = grid.units(SPLIT.share_std(sigma))
        assert 2**30 <= units <= 2**31
        assert units * grid.unit >= SPLIT.share_std(sigma)
    assert NoiseGrid(granularity_bits=3).units(0.3) == 3


def test_discretisation_costs_next_to_nothing() -> None:
    cost = discretisation_delta(units=2**30, shares=1, values=400 * 101, epsilon=8.0)
    assert 0 < cost < 1e-11
    coarse = discretisation_delta(units=2, shares=10, values=1, epsilon=1.0)
    assert coarse == pytest.approx((1 + math.e) / (24 * 10 * 4), rel=1e-9)


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("scale", [1, 4])
def test_polya_has_the_exact_pmf(n: int, scale: int) -> None:
    values = polya(scale, n, 150_000, SeededRandomness(4))
    k = np.arange(60 * scale)
    rising = np.concatenate([[0.0], np.cumsum(np.log((k[1:] - 1 + 1 / n) / k[1:]))])
    assert pmf_accepted(values, rising - k / scale, 0)
    assert not pmf_accepted(values, rising - k / (1.15 * scale), 0)


@pytest.mark.parametrize("n", [1, 3])
def test_poisson_of_inverse_has_the_exact_pmf(n: int) -> None:
    values = poisson_of_inverse(n, 60_000, SeededRandomness(6))
    k = np.arange(12)
    factorial = np.cumsum(np.log(np.maximum(k, 1)))
    assert pmf_accepted(values, -k * math.log(n) - factorial, 0)
    assert not pmf_accepted(values, -k * math.log(0.9 * n) - factorial, 0)


def test_the_verdict_itself_has_power() -> None:
    values = gaussian_shares(1.0, NoiseSplit(parties=1, colluders=0), 5000, 1, SeededRandomness(9))
    assert std_accepted(values.ravel(), 1.0)
    assert not std_accepted(values.ravel(), 1.1)
