"""Splits of noise, their grid, and the laws of its parts."""

from __future__ import annotations

import math

import pytest

from protocols.errors import ParameterError
from protocols.privacy.laws.grid import NoiseGrid, discretisation_delta
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.laws.shares import NoiseSplit, gaussian_shares
from tests.protocols.privacy.checks import (
    std_accepted,
)

SPLIT = NoiseSplit(parties=5, colluders=2)


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


def test_the_verdict_itself_has_power() -> None:
    values = gaussian_shares(1.0, NoiseSplit(parties=1, colluders=0), 5000, 1, SeededRandomness(9))
    assert std_accepted(values.ravel(), 1.0)
    assert not std_accepted(values.ravel(), 1.1)
