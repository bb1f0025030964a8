"""Encrypted sums: the ledger says what was sent, and nothing follows from it."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

import parties.kernel.sums.aggregate_share as aggregate_share
from protocols.errors import PolicyError
from protocols.steps.samples import SampleLedger
from tests.provenance import sums
from tests.provenance.audit import audit
from tests.provenance.mutants import element
from tests.provenance.residuals import UntrueError
from tests.provenance.runs import Run, record
from tests.support.sessions import sums_session


@pytest.fixture(scope="module")
def run() -> Run:
    return record(sums_session(features=64))


def test_every_message_is_a_sample_with_its_error(run: Run) -> None:
    found = sums.check(run)
    assert len(found) == 9 and {each.stated for each in found} == {6.38}


def test_nothing_follows(run: Run) -> None:
    """While one other party is honest: its pad hides the masked secret."""
    found = audit(run.samples)
    assert found.passed and found.samples == 4 and found.left == 3


def test_one_element_for_two_rounds_is_refused_and_found(run: Run) -> None:
    leaking = {
        party: tuple(element("round/0/0")(s) if s.label.startswith("round") else s for s in samples)
        for party, samples in run.samples.items()
    }
    with pytest.raises(PolicyError, match="used a second time"):
        SampleLedger().note(*leaking["hospital-1"])
    found = audit(leaking, part=8)
    assert not found.passed and found.leaving < 20


def test_a_masked_secret_needs_its_lemma(run: Run) -> None:
    """Without pads or a lemma, s_p would stand there as it is."""
    (masked, *_) = run.samples["hospital-1"]
    for bare in (replace(masked, lemma=""), replace(masked, lemma="secret sharing", pads=())):
        with pytest.raises(PolicyError, match="must not be published"):
            SampleLedger().note(bare)


@pytest.mark.parametrize("lie", ["no error", "one error"])
def test_errors_that_are_not_what_the_ledger_says(lie: str) -> None:
    draw = aggregate_share.narrow_gaussian
    kept: dict[int, np.ndarray] = {}

    def false(std: float, count: int, randomness: object) -> np.ndarray:
        drawn = draw(std, count, randomness)
        if count > 64:  # a secret
            return drawn
        return 0 * drawn if lie == "no error" else kept.setdefault(count, drawn)

    with patch.object(aggregate_share, "narrow_gaussian", false):
        run = record(sums_session(features=64))
    with pytest.raises(UntrueError, match=r"has std 0|are not independent"):
        sums.check(run)
