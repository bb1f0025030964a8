"""A share of `python -m tests.boundaries --only move`: every plan of sums with a certificate."""

from __future__ import annotations

import pytest

from tests.boundaries.explore import explore
from tests.boundaries.moves import MOVED, SIZES, Move, Moves, moves
from tests.boundaries.replies import CASES, Change

EACH = 12


@pytest.mark.parametrize("name", [case.name for case in MOVED])
def test_a_row_moves_a_sum_by_no_more_than_is_certified(name: str) -> None:
    found = explore(name, Moves(CASES[name]).check, moves, EACH, by=1)
    assert found.pairs == EACH
    assert not found.failures, found.least


@pytest.mark.parametrize("name", [case.name for case in MOVED])
def test_no_point_is_too_far_out(name: str) -> None:
    """Without a warning of numpy's, too, which whatever is loaded beside decides to show."""
    one = Change(
        at=0.99, cells=(5e-324, -1.0, 0.0), outcome=0.98, weight=1e-89, offset=1.0, order=9
    )
    other = Change(at=0.99, cells=(-0.9, 0.0), outcome=0.35, weight=1.0, offset=0.5, order=7)
    check = Moves(CASES[name]).check
    assert all(check(Move(one, other, 511, size)) for size in SIZES)
