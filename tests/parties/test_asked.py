"""Nobody is asked about a plan that the owner's policy refuses, whatever field refuses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from parties.policy import Policy
from protocols.errors import ProtocolError
from protocols.plan.run_plan import RunPlan
from protocols.updates.momentum import GradientDescent
from tests.parties.agents import Agents
from tests.parties.test_exact_sums import LABEL, B, D
from tests.support.helpers import Session, party_names
from tests.support.sessions import holding, moment_session, small, sums_session

TABLE = replace(LABEL, sites=(*party_names(3),))


def tables() -> Session:
    update = GradientDescent(rounds=1, learning_rate=1.0)
    return sums_session(objective=TABLE.to_dict(), update=update.to_dict(), length=TABLE.length(D))


def secure() -> Session:
    """A plan that refuses toy ciphers."""
    return sums_session(profile="secure")


WIDE = Policy(allow_insecure=True, accept_unbounded=True, exact_sums=True, site_tables=True)
WIDE = replace(WIDE, min_rows_apart=0, min_security_bits=0)
Case = tuple[Callable[[], Session], dict[str, Any], str]
CASES: dict[str, Case] = {
    "protocols": (small, {"protocols": ("encrypted-model",)}, "encrypted-rows"),
    "max_epsilon": (moment_session, {"max_epsilon": 0.01, "exact_sums": False}, "exceeds"),
    "max_delta": (moment_session, {"max_delta": 1e-9}, "exceeds"),
    "min_colluders": (moment_session, {"min_colluders": 2}, "withstand"),
    "min_security_bits": (secure, {"min_security_bits": 9999}, "is below 9999"),
    "allow_insecure": (small, {"allow_insecure": False}, "only secure runs"),
    "accept_unbounded": (small, {"accept_unbounded": False}, "accept_unbounded = true"),
    "exact_sums": (small, {"exact_sums": False}, "exact_sums = true"),
    "site_tables": (tables, {"site_tables": False}, "site_tables = true"),
    "replica": (small, {"replica": "own"}, "relay = true"),
    "min_rows_apart": (lambda: holding(small()), {"min_rows_apart": 10}, "min_rows_apart=10"),
}


def reach(make: Callable[[], Session], policy: Policy, folder: Path) -> tuple[list[RunPlan], str]:
    """Plans that owners were asked about, and why the session ended."""
    session, seen = make(), list[RunPlan]()
    for party in session.parties.values():
        party._policy = policy
    agents = Agents(folder, None, session=session, ask=True, norm_bound=B)
    for agent in agents.agents.values():
        agent.consent.require = seen.append  # type: ignore[method-assign]

    def ask(step: str, outgoing: Any) -> Any:
        if step == "reveal":
            raise ProtocolError("agreed")
        return agents.ask(step, outgoing)

    with pytest.raises(ProtocolError) as error:
        session.run(ask)
    return seen, str(error.value)


@pytest.mark.parametrize("field", CASES)
def test_the_policy_refuses_before_anybody_is_asked(field: str, tmp_path: Path) -> None:
    make, changes, words = CASES[field]
    asked, reason = reach(make, replace(WIDE, **changes), tmp_path)
    assert words in reason and not asked


@pytest.mark.parametrize("make", {case[0]: None for case in CASES.values()})
def test_what_it_accepts_is_asked_of_everybody(make: Callable[[], Session], tmp_path: Path) -> None:
    asked, reason = reach(make, WIDE, tmp_path)
    parties = len(make().parties)
    assert reason == "agreed" and len(asked) == parties
    assert len({plan.digest() for plan in asked}) == 1


def test_every_field_is_among_them() -> None:
    assert CASES.keys() == {each.name for each in fields(Policy)}


def test_a_plan_out_of_order_is_asked_of_nobody(tmp_path: Path) -> None:
    """Another plan, once one is agreed to."""
    agents, name = Agents(tmp_path, None), party_names(1)[0]
    agent, seen = agents.agents[name], list[RunPlan]()
    agent.consent.require = seen.append  # type: ignore[method-assign]

    def ask(step: str, outgoing: Any) -> Any:
        if step == "reveal":
            plan = {**agents.session.plan.to_dict(), "session": "another"}
            agent.handle(agents.request("agree", name, plan=plan))
            raise ProtocolError("agreed")
        return agents.ask(step, outgoing)

    with pytest.raises(ProtocolError, match="agreed"):
        agents.session.run(ask)
    assert len(seen) == 1
