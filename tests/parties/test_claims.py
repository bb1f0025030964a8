"""Privacy that a plan claims is recomputed by every party, whatever its limits, ledger or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parties.policy import Policy
from parties.verifier.party import Party
from protocols.errors import ParameterError
from protocols.plan.run_plan import LARGEST_EPSILON, PrivacyPlan, RunPlan
from protocols.privacy.loss.ledger import Ledger
from protocols.statistics.evaluation.objective import EvaluationObjective
from protocols.statistics.inference.objective import InformationObjective, ProductsObjective
from protocols.sums.missing_cells import MissingObjective
from protocols.sums.objectives import RowObjective, objective_from_dict
from protocols.updates.momentum import GradientDescent
from tests.parties.test_exact_sums import B, D, agreements
from tests.support.helpers import Session
from tests.support.plans import dual_objective, dual_rule
from tests.support.sessions import (
    gram_session,
    lffr_model_session,
    lffr_session,
    model_session,
    moment_session,
    small,
    sums_session,
    whitened_session,
)

SIGMA = 1e-6


def claim(**changes: Any) -> PrivacyPlan:
    """Of epsilon 1, beside hardly any noise."""
    fields: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "colluders": 0}
    noise = {"sigma": SIGMA, "share_std": SIGMA / 3**0.5, "sensitivity": 1.0}
    return PrivacyPlan(**fields | noise | changes)


def sums(task: Any, **fields: Any) -> Session:
    noise: dict[str, Any] = {"privacy": claim(), "noise_scales": (SIGMA,) * 3}
    return sums_session(objective=task.to_dict(), **noise | fields)


def one_sum(task: Any) -> Session:
    update = GradientDescent(rounds=1, learning_rate=1.0)
    fields = {"length": task.length(D), "noise_scales": (SIGMA,)}
    return sums(task, update=update.to_dict(), **fields)


def moment() -> Session:
    session = moment_session()
    honest = session.coordinator._make_plan

    def less(members: Any) -> Any:
        plan: Any = honest(members)
        noise = {"sigma": SIGMA, "share_std": SIGMA / 3**0.5}
        privacy = replace(plan.privacy, **noise)
        session.plan = replace(plan, privacy=privacy, noise_scales=(SIGMA,))
        return session.plan

    session.coordinator._make_plan = less
    return session


TABLE = EvaluationObjective(
    model="logistic",
    weights=((1.0, 0.5, 0.0),),
    bins=8,
    width=1.0,
    centre=0.0,
    exact=False,
    row_norm=B,
)
KINDS: dict[str, Callable[[], Session]] = {
    "rows": lambda: small(parties=3, privacy=claim()),
    "model": lambda: model_session(privacy=claim()),
    "gram": lambda: gram_session(privacy=claim(sensitivity=3.0)),
    "lffr": lambda: lffr_session(privacy=claim(), curvature=None, learning_rate=0.1),
    "lffr at home": lambda: lffr_model_session(privacy=claim()),
    "whitened": whitened_session,
    "moment": moment,
    "logistic": lambda: sums(RowObjective(kind="logistic", clip=1.0), length=D),
    "squared": lambda: sums(RowObjective(kind="squared", clip=1.0), length=D),
    "torch": lambda: sums(RowObjective(kind="torch", clip=1.0), length=D),
    "softmax": lambda: sums(RowObjective(kind="softmax", clip=1.0, outputs=3), length=3 * D),
    "dual": lambda: sums(
        objective_from_dict(dual_objective(row_scale=B)),
        update=dual_rule(),
        length=D,
    ),
    "evaluation": lambda: one_sum(TABLE),
    "information": lambda: one_sum(
        InformationObjective(model="logistic", theta=(0.0,) * D, row_norm=B, epsilon_in_all=1.0)
    ),
    "products": lambda: one_sum(ProductsObjective(row_norm=B, outputs=1, epsilon_in_all=1.0)),
    "missing cells": lambda: one_sum(MissingObjective(columns=D - 1, exact=False)),
}


def owners(session: Session, folder: Path, **terms: Any) -> Session:
    """The same, of owners with these terms, who believe nobody; ledger=True: with a ledger."""
    kept, policy = terms.pop("ledger", False), Policy(allow_insecure=True, accept_unbounded=True)
    for name, old in session.parties.items():
        ledger = Ledger(path=folder / name, epsilon=1e6, delta=0.5) if kept else None
        session.parties[name] = Party.of(
            name=name,
            shard=old.run.rows._value,
            signing_key=old.run.signing_key,
            coordinator_key=old._coordinator_key,
            policy=replace(policy, **terms),
            randomness=old.run._randomness,
            ledger=ledger,
            dataset="rows",
        )
    return session


TERMS: dict[str, dict[str, Any]] = {
    "default": {},
    "exact sums accepted": {"exact_sums": True},
    "limit": {"max_epsilon": 2.0},
    "ledger": {"ledger": True},
    "limit and ledger": {"max_epsilon": 2.0, "ledger": True},
}


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("kind", KINDS)
def test_too_little_noise_for_what_is_claimed_is_refused(
    kind: str, terms: str, tmp_path: Path
) -> None:
    """Before any key, and before a row is looked at."""
    session = owners(KINDS[kind](), tmp_path, **TERMS[terms])
    for name, said in agreements(session).items():
        assert "epsilon=" in said["error"] and " of the plan is below " in said["error"]
        assert session.parties[name]._half is None
    assert not any((tmp_path / name).exists() for name in session.parties)


@pytest.mark.parametrize("terms", TERMS)
def test_noise_that_keeps_the_promise_is_agreed_to(terms: str, tmp_path: Path) -> None:
    session = owners(moment_session(), tmp_path, **TERMS[terms])
    assert all("error" not in said for said in agreements(session).values())


def test_every_kind_of_plan_is_among_them() -> None:
    def below(kind: Any) -> Iterator[Any]:
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    def seen(make: Callable[[], Session]) -> str:
        session = make()
        agreements(session)
        return type(session.plan).__name__

    made = {
        seen(KINDS[kind]) for kind in ("rows", "model", "gram", "lffr", "lffr at home", "logistic")
    }
    ours = {kind for kind in below(RunPlan) if kind.__module__.startswith("protocols.")}
    assert {kind.__name__ for kind in ours if not kind.__abstractmethods__} == made


@pytest.mark.parametrize("epsilon", [LARGEST_EPSILON * 1.001, 1e5])
def test_no_promise_is_larger_than_hides_something(epsilon: float) -> None:
    """Its noise would be as good as none, which needs the owners' consent."""
    claim(epsilon=LARGEST_EPSILON)
    with pytest.raises(ParameterError, match=r"is above 20: .* take a smaller epsilon, or none"):
        claim(epsilon=epsilon)


def test_a_delta_that_hides_nothing_is_refused_without_a_limit_of_epsilon(tmp_path: Path) -> None:
    make = lambda: small(parties=3, privacy=claim(delta=0.99))  # noqa: E731
    for said in agreements(owners(make(), tmp_path)).values():
        assert "exceeds max_epsilon=inf at max_delta=1e-05" in said["error"]
