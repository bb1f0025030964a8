"""A share of `python -m tests.boundaries --only move`: every plan of sums with a certificate."""

from __future__ import annotations

import pytest

from tests.boundaries.explore import explore
from tests.boundaries.moves import MOVED, Moves, moves
from tests.boundaries.replies import CASES

EACH = 12


@pytest.mark.parametrize("name", [case.name for case in MOVED])
def test_a_row_moves_a_sum_by_no_more_than_is_certified(name: str) -> None:
    found = explore(name, Moves(CASES[name]).check, moves, EACH, by=1)
    assert found.pairs == EACH
    assert not found.failures, found.least
