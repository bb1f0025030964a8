"""A share of `python -m tests.boundaries --only keep`: a simulation of every protocol, twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.boundaries.folders import OPTIONS, Folders, OneRow

# Nothing of it is usual: an empty cell, one out of range, one of no category.
ODD = OneRow(at=3, cells=(None, -1e9, "unknown", "yes"))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_release_is_the_same_for_other_rows(name: str, tmp_path: Path) -> None:
    assert Folders(OPTIONS[name], tmp_path).check(ODD)
