"""A share of `python -m tests.boundaries --only say`: every protocol and option."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.boundaries.explore import explore
from tests.boundaries.replies import CASES, Runs, changes, observe, taped

EACH = 2


@pytest.mark.parametrize("name", CASES)
def test_an_owner_says_the_same_of_other_rows(name: str, tmp_path: Path) -> None:
    found = explore(name, Runs(CASES[name], tmp_path).check, changes, EACH, by=1)
    assert found.pairs == EACH
    assert not found.failures, found.least


def test_a_tape_is_all_that_a_secure_sum_follows_from(tmp_path: Path) -> None:
    """Digests, commitments and keys included: what differs follows from rows."""
    case = CASES["sums, noise"]
    once, again = (observe(case, lambda shard: shard, tmp_path) for _ in range(2))
    assert once == again
    with taped("another") as tape:
        case.open()
    assert tape.read > 0
