"""Nothing follows from a run's equations; from mutants' it does, and the ledger refuses them."""

from __future__ import annotations

from functools import cache

import pytest

from protocols.ckks import NARROW_ERROR_STD
from protocols.errors import PolicyError
from protocols.steps.samples import SMALLEST_ERROR_STD, SampleLedger
from tests.provenance import runs
from tests.provenance.audit import Finding, audit
from tests.provenance.equations import Ledgers
from tests.provenance.mutants import MUTANTS
from tests.provenance.options import COVERED, LOST, examined
from tests.provenance.runs import record


@cache
def rows() -> Ledgers:
    return record(runs.rows_session("gd", rounds=2)).samples


@cache
def covered() -> Ledgers:
    return record(runs.rows_session("gd", **COVERED), LOST).samples


def words(found: Finding) -> str:
    return f"{found}: {found.where}"


def test_a_run_with_maps() -> None:
    """All samples at once and part by part."""
    found = audit(rows())
    assert found.passed, words(found)
    assert found.samples == 20 and found.left == 18 and found.random > 1000


@pytest.mark.parametrize(
    "name",
    [
        "rows, quadratic nesterov",
        "rows, parties restarted",
        "rows, coordinator resumed",
        "rows, cover, two lost",
        "lffr",
        "model, parties restarted",
        "model, cover, two lost",
        pytest.param("gram, improved lffr (no map)", marks=pytest.mark.slow),
    ],
)
def test_protocols_and_options(name: str) -> None:
    """The ledger is true, and nothing follows from it, part by part.

    `python -m tests.provenance` has all runs, and all samples at once.
    """
    count, found = examined(name, whole=0, part=8)
    assert found.passed, words(found)
    assert count > 40 and count > 2 * found.left


def test_t_shares_give_a_secret() -> None:
    """The colluders of a plan with t = 3 would see two: here the polynomial has degree 1."""
    found = audit(covered(), 3, whole=0, part=8)
    assert found.exact == 8 and not found.passed


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_refused_and_found(name: str) -> None:
    """By the ledger, before anything is sent, and by the audit, had it been."""
    leaking = {party: MUTANTS[name](samples) for party, samples in rows().items()}
    with pytest.raises(PolicyError, match=r"must not be published|already given"):
        SampleLedger().note(*leaking["hospital-1"])
    found = audit(leaking, whole=0, part=8)
    assert not found.passed, words(found)
    assert found.exact or min(found.cancelling, found.leaving) < 10, words(found)


def test_the_ledger_knows_the_narrowest_error() -> None:
    assert SMALLEST_ERROR_STD == NARROW_ERROR_STD
