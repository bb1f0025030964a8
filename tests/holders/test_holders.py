"""Where rows, secrets and noise go, beside kernel and reader: a list that only gets shorter."""

from __future__ import annotations

import pytest

from tests.holders.__main__ import outside
from tests.holders.holders import KINDS, holders_of, rare

RUNS = ("encrypted rows", "encrypted model", "Gram sums", "lffr", "sums")


@pytest.mark.parametrize("run", RUNS)
def test_nothing_else_holds_rows_secrets_or_noise(run: str) -> None:
    found = holders_of(run)
    assert outside(found) == set()
    # What it looks for is there to be found.
    held = {kind: found.modules(kind) for kind in KINDS}
    assert "parties.reader.shard" in held["row"] and held["noise"] and held["secret's object"]
    assert ("parties.kernel.keys.key_share" in held["secret"]) == (run != "sums")


def test_constants_are_no_rows() -> None:
    import numpy as np

    told = np.array([0.0, 0.5, 0.055, 1 / 3, 0.25, 0.123456789, np.pi])
    assert rare(told) == {0.123456789, np.pi}
    assert rare(np.repeat(np.pi, 5)) == set()
