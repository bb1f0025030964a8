"""The sample ledger says what was sent: the bytes of whole toy runs (INSECURE) against it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.provenance import residuals, runs
from tests.provenance.runs import Run, record

RUNS: dict[str, Callable[[], Run]] = {
    "rows, with maps, parties restarted": lambda: record(
        runs.rows_session("nag", rounds=3),
        restarts={"refresh/1": ["hospital-2"], "relinearise": ["hospital-1"]},
    ),
    "rows, two parties lost": lambda: record(
        runs.rows_session("gd", rounds=2, parties=4, cover=2),
        losses={"refresh/1": ["hospital-4"], "decrypt": ["hospital-3"]},
    ),
    "lffr": lambda: record(runs.lffr_session()),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_message_is_one_sample_with_its_error(name: str) -> None:
    """Nothing unlisted, nothing else: elements, pads, sums of parties, std of every error."""
    run = RUNS[name]()
    found = residuals.check(run)
    assert len({(each.party, each.label) for each in found}) == len(found) > 40
    assert np.isfinite(run.weights).all()


@pytest.mark.slow
def test_gram_sums() -> None:
    """Refreshes without a map."""
    run = record(runs.gram_session("improved-lffr", iterations=2))
    residuals.check(run)
    assert not any(pad.through for s in run.samples["hospital-1"] for pad in s.pads)
