"""Recorded runs on whitened rows: what an auditor sees. INSECURE toy rings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.replay import evidence, replay
from protocols.errors import PolicyError
from protocols.exchange.messages import Body
from protocols.plan.run_plan import Member
from protocols.steps.second_moment import STEP
from tests.support.sessions import (
    VICTIM,
    altered,
    evidence_of,
    moment_session,
    record,
    whitened_session,
)


def test_evidence_is_read_from_the_record_of_the_run_before(tmp_path: Path) -> None:
    before = record(tmp_path, moment_session())
    found = evidence(tmp_path)
    assert found == evidence_of(before)
    assert replay(tmp_path).passed


def test_an_honest_run_passes(tmp_path: Path) -> None:
    record(tmp_path, whitened_session())
    found = replay(tmp_path)
    assert found.passed, found.checks[-1]


def test_evidence_that_differs_between_parties_is_found(tmp_path: Path) -> None:
    """The other is a true run as well: the party itself would not take it for the plan's."""
    session = whitened_session()
    before = moment_session()
    before.run()

    def another(body: Body) -> Body:
        return evidence_of(before).to_body()

    record(tmp_path, session, altered(STEP, another, VICTIM))
    found = replay(tmp_path)
    assert not found.passed
    assert STEP in found.checks[-1].detail


def test_a_plan_about_another_moment_is_not_shown(tmp_path: Path) -> None:
    """Not by an honest program, and an auditor runs the same."""
    session = whitened_session()
    make = session.coordinator._make_plan

    def lying(members: tuple[Member, ...]) -> Any:
        plan: Any = make(members)
        moment = tuple(0.5 * value for value in plan.whitening.moment)
        return replace(plan, whitening=replace(plan.whitening, moment=moment))

    session.coordinator._make_plan = lying
    with pytest.raises(PolicyError, match="moment of the plan"):
        record(tmp_path, session)
