"""Sums without noise show whole records, so every owner has to accept them by that name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.special import logit

from parties.agent.manifest import describe_plan
from parties.agent.vault import Vault
from parties.kernel.integers.exact import Exact
from parties.kernel.study.described import Described
from parties.kernel.study.glm import Generalised
from parties.kernel.study.hazards import CoxRows, RiskSets
from parties.kernel.study.lifetimes import Lifetimes
from parties.kernel.study.person_time import PersonTime
from parties.kernel.sums import row_functions
from parties.kernel.sums.row_function import SumFunction
from parties.policy import Policy
from protocols.aggregate.choice import choose
from protocols.errors import ParameterError, PolicyError, ProtocolError
from protocols.exchange.messages import decode, public_bytes
from protocols.plan.circuit_plan import CircuitPlan
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.whitened import moment_plan
from protocols.statistics.evaluation.objective import EvaluationObjective
from protocols.statistics.inference.objective import InformationObjective, ProductsObjective
from protocols.statistics.study.cox import written
from protocols.statistics.study.objectives import (
    CoxRowsObjective,
    DescriptionObjective,
    GeneralisedObjective,
    LifetimesObjective,
    PersonTimeObjective,
    RiskSetsObjective,
)
from protocols.sums import objectives
from protocols.sums.missing_cells import MissingObjective
from protocols.sums.objectives import MomentObjective, RowObjective
from protocols.sums.one_sum import OneSum
from protocols.sums.plan import GradientPlan
from protocols.sums.words import remarks
from protocols.updates.momentum import GradientDescent
from protocols.words import EXACT_SUMS
from tests.parties.agents import PASSPHRASE, Agents
from tests.support.helpers import Session, make_data, make_session, open_session
from tests.support.plans import dual_objective, dual_rule
from tests.support.sessions import (
    FIRST,
    THIRD,
    VICTIM,
    gram_session,
    lffr_model_session,
    lffr_session,
    model_session,
    quadratic_session,
    reply_of,
    small,
    sums_session,
)

D, B = 3, 3**0.5
OWNERS = (FIRST, VICTIM, THIRD)
LABEL = EvaluationObjective(
    model="logistic",
    weights=((1.0, 0.5, 0.0),),
    bins=8,
    width=1.0,
    centre=0.0,
    exact=True,
    row_norm=B,
)
COX: dict[str, Any] = {
    "theta": (0.5, 0.0),
    "columns": (0, 1),
    "bins": 2,
    "recorded": False,
    "row_norm": B,
}
ONE_SUMS: dict[str, OneSum] = {
    "evaluation": LABEL,
    "evaluation of sites": replace(LABEL, sites=(FIRST,)),
    "information": InformationObjective(model="logistic", theta=(0.0,) * D, row_norm=B),
    "counts": InformationObjective(model="poisson", theta=(0.0,) * D, row_norm=B),
    "products": ProductsObjective(row_norm=B, outputs=1),
    "missing cells": MissingObjective(columns=D - 1, exact=True),
    "description": DescriptionObjective(adds=Described(columns=((0, 1, -1, 4),)), exact=True),
    "lifetimes": LifetimesObjective(adds=Lifetimes(bins=2, recorded=False), exact=True),
    "generalised": GeneralisedObjective(
        adds=Generalised(
            family="poisson",
            link="log",
            theta=(0.5, 0.0),
            columns=(0,),
            target=(0, 0.0, 9.0),
            row_norm=B,
            rows=4,
        )
    ),
    "risk sets": RiskSetsObjective(adds=RiskSets(**COX)),
    "residuals": CoxRowsObjective(
        adds=CoxRows(
            **COX,
            tables=written(np.zeros(18)),
            scores=(-2.0, 1.0, 4),
        )
    ),
}


def sums(shards: Any = None, **fields: Any) -> Session:
    """Exact sums at 128 bits."""
    fields = {
        "privacy": None,
        "cipher": choose(parties=3, largest_sum=1e4, precision=2.0**-36),
        "update": GradientDescent(rounds=1, learning_rate=1.0).to_dict(),
    } | fields
    make = lambda common: GradientPlan(**(common | fields))  # noqa: E731
    return open_session(make, shards or make_data([4] * 3, D, 1), secure=True)


def one_sum(task: OneSum) -> Session:
    return sums(objective=task.to_dict(), length=task.length(D))


def dual() -> Session:
    return sums_session(objective=dual_objective(row_scale=B), update=dual_rule())


def classes(kind: str) -> Session:
    task = RowObjective(kind=kind, clip=1.0, outputs=3)
    return sums_session(objective=task.to_dict(), length=3 * D)


def rows(kind: str, **more: Any) -> Session:
    return sums_session(objective=RowObjective(kind=kind, clip=1.0, **more).to_dict())


KINDS: dict[str, Callable[[], Session]] = {
    "logistic": lambda: rows("logistic"),
    "curvature": lambda: rows("logistic", curvature_clip=1.0),
    "squared": lambda: rows("squared"),
    "torch": lambda: rows("torch"),
    "equal weights": lambda: sums_session(weights=(1 / 3,) * 3),
    "dual": dual,
    "softmax": lambda: classes("softmax"),
    "one-vs-rest": lambda: classes("one-vs-rest"),
    **{name: lambda task=task: one_sum(task) for name, task in ONE_SUMS.items()},  # type: ignore[misc]
    # From zero, one step is one sum, and so are two at a small enough rate.
    **{
        f"{name}, rounds={rounds}": lambda make=make, rounds=rounds: make(rounds=rounds)  # type: ignore[misc]
        for name, make in {
            "encrypted rows": lambda rounds: small(parties=3, rounds=rounds),
            "encrypted model": model_session,
            "products under CKKS": gram_session,
            "lffr": lffr_session,
        }.items()
        for rounds in (1, 2)
    },
    "lffr at home": lffr_model_session,
    "quadratic": quadratic_session,
}


def refusing(session: Session, *names: str) -> Session:
    """The same session, in which these have not accepted exact sums."""
    for name in names:
        party = session.parties[name]
        party._policy = replace(party._policy, exact_sums=False)
    return session


# -- what they give away -------------------------------------------------------------------------

RECORD = np.array([0.37, -0.82, 1.0, 1.0])
"""Two columns, the category that no other row has, the bias."""


def odd_one() -> Any:
    """Three owners of 40 rows; row 7 of the second has a category of its own."""
    rng = np.random.default_rng(5)
    shards = []
    for name in OWNERS:
        x = np.column_stack([rng.uniform(-1, 1, (40, 2)), -np.ones(40), np.ones(40)])
        y = (rng.random(40) < 0.5).astype(float)
        if name == VICTIM:
            x[7], y[7] = RECORD, 1.0
        shards.append((x, y))
    return shards


def points(session: Session, reader: str) -> np.ndarray:
    """Of every round, from the requests that one owner was sent."""
    key = public_bytes(session.coordinator_key)
    sent = [q for step, name, q, _ in session.recorded if name == reader and "round" in step]
    return np.array([np.frombuffer(decode(q, key).body.blobs[0], "<f8") for q in sent])


def test_an_owner_reads_the_record_of_another_from_the_points_it_was_sent() -> None:
    """g_t of the category and of the bias: their mean is p - y of the one row, p of x w_t."""
    rounds, rate = 60, 6.0
    session = sums(
        odd_one(),
        length=4,
        objective=RowObjective(kind="logistic", clip=2.0).to_dict(),
        update=GradientDescent(rounds=rounds, learning_rate=rate).to_dict(),
    )
    session.run()
    w = points(session, THIRD)
    g = -np.diff(w, axis=0) / rate * 120
    residual = (g[:, 2] + g[:, 3]) / 2
    label = float(residual[0] < 0)
    found, *_ = np.linalg.lstsq(w[1:-1], logit(residual[1:] + label), rcond=None)
    assert label == 1.0
    np.testing.assert_allclose(found, RECORD, atol=1e-3)


def test_the_coordinator_reads_it_from_one_opened_sum() -> None:
    """Products: row and column of the category, and of the bias, are twice the record."""
    task = ProductsObjective(row_norm=2.0, outputs=1)
    session = sums(odd_one(), objective=task.to_dict(), length=task.length(4))
    # Another coordinator, from the messages that were kept.
    session.run()
    kept = {(step, name): reply for step, name, _, reply in session.recorded}
    again = session.successor().run(
        lambda step, outgoing: {name: kept[step, name] for name in outgoing}
    )
    found = task.read(again.weights, 120)
    np.testing.assert_allclose((found[2] + found[3]) / 2, [*RECORD, 1.0], atol=1e-6)


# -- who has to accept them ----------------------------------------------------------------------


class AgreedError(Exception):
    """Enough is seen."""


def agreements(session: Session) -> dict[str, dict[str, Any]]:
    """What each owner says to the plan."""
    found: dict[str, dict[str, Any]] = {}

    def until_agreed(step: str, outgoing: Any) -> Any:
        if step != "agree":
            return session.ask(step, outgoing)
        for name, data in outgoing.items():
            reply = session.parties[name].handle(data)
            found[name] = dict(reply_of(session, name, reply).body.meta)
        raise AgreedError

    with pytest.raises(AgreedError):
        session.run(until_agreed)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_each_owner_has_to_accept_each_kind(kind: str) -> None:
    """Before any key is made; the words name what is given away and the cure."""
    session = refusing(KINDS[kind](), *OWNERS)
    for name, said in agreements(session).items():
        assert "exact_sums = true in the policy" in said["error"]
        assert EXACT_SUMS in said["error"] and session.parties[name]._half is None
    plan = session.plan
    assert plan.opens_exact_sums
    Policy(exact_sums=True, allow_insecure=True).check(plan)
    assert f"EXACT SUMS: {EXACT_SUMS}" in describe_plan(plan, VICTIM, 2.0)


@pytest.mark.parametrize("epsilon", [2.0, None])
def test_a_noisy_sum_before_a_run_without_noise_needs_it_as_well(epsilon: float | None) -> None:
    """Or its epsilon would be spent for a training that the owner refuses."""
    shape = PublicFigures.even(rows=12, features=2, parties=3, norm_bound=3**0.5)
    wanted = Wanted(epsilon=epsilon, moment_epsilon=1.0, update="quadratic-gd")
    plan = replace(moment_plan(shape, wanted), profile="fast-insecure")
    assert plan.privacy is not None and plan.exact_follows == (epsilon is None)
    Policy(allow_insecure=True, exact_sums=True).check(plan)
    if epsilon is None:
        with pytest.raises(PolicyError, match="training that follows has no privacy noise"):
            Policy(allow_insecure=True).check(plan)
    else:
        Policy(allow_insecure=True, max_epsilon=2.0).check(plan)


@pytest.mark.parametrize("protocol", ["encrypted-rows", "encrypted-model"])
@pytest.mark.parametrize("model", ["logistic", "linear"])
def test_a_noisy_sum_before_a_run_without_a_proof_needs_consent_to_that(
    model: str, protocol: str
) -> None:
    """Of what is drafted as it will be; see `RunPlan.unproven_follows`."""
    shape = PublicFigures.even(rows=1200, features=2, parties=3, norm_bound=3**0.5)
    usual = Wanted(epsilon=None, update="", model=model, protocol=protocol)
    found = calibrate(shape, usual)
    plan, then = found.first, found.template
    assert isinstance(plan, GradientPlan) and isinstance(then, CircuitPlan)
    assert plan.exact_follows and plan.unproven_follows == (then.slot_bound is None)
    assert plan.unproven_follows == (model == "logistic")
    assert ("accept_unbounded" in " ".join(remarks(plan))) == plan.unproven_follows
    Policy(exact_sums=True, accept_unbounded=True).check(plan)
    if plan.unproven_follows:
        with pytest.raises(PolicyError, match="that follows .* accept_unbounded = true"):
            Policy(exact_sums=True).check(plan)
    else:
        Policy(exact_sums=True).check(plan)


@pytest.mark.parametrize("owner", OWNERS)
def test_one_owner_who_has_not_is_enough(owner: str) -> None:
    session = refusing(sums_session(), owner)
    with pytest.raises(ProtocolError, match="exact_sums = true in the policy") as refused:
        session.run()
    assert refused.value.culprit == owner
    assert {step for step, *_ in session.recorded} == {"enrol", "agree"}


def test_every_sum_is_among_them() -> None:
    """A new one has to be added here, and needs the consent whether it is or not."""

    def below(kind: type) -> Iterator[type]:
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    ours = {k.__name__ for k in below(OneSum) if k.__module__.startswith("protocols.")}
    told = {type(task).__name__ for task in ONE_SUMS.values()}
    never_exact = {each.__name__ for each in (MomentObjective, PersonTimeObjective)}
    assert ours - told == never_exact | {"_Study", "_Exact"}


def test_hazards_have_noise() -> None:
    adds = PersonTime(
        columns=(0,), cuts=(), base=(0.0,), scale=(1.0,), centre=(0.0,), matrix=(1.0,),
        theta=(0.0, 0.0), clip=1.0, kappa=1.0, most_hazard=1.0,
    )  # fmt: skip
    with pytest.raises(ParameterError, match="exact where it has no epsilon"):
        one_sum(PersonTimeObjective(adds=adds, epsilon_in_all=1.0)).run()


@dataclass(frozen=True, slots=True)
class Positives(SumFunction):
    """A statistic of tomorrow: in how many rows each column is positive."""

    kind = "count"

    def length(self, features: int) -> int:
        return features

    def most(self, query: str) -> float:
        return B

    def exact_sum(self, x: Any, y: Any, name: str) -> Exact:
        return Exact((x > 0).sum(axis=0, dtype=np.int64), 0)


@dataclass(frozen=True, slots=True)
class Count(OneSum):
    """Its run."""

    kind: ClassVar[str] = "count"
    released: ClassVar[str] = "counts of columns"
    row_function: ClassVar[SumFunction] = Positives()

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind}


def test_a_statistic_of_tomorrow_needs_the_consent_too(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {**objectives._KINDS, "count": f"{__name__}:Count"}
    monkeypatch.setattr(objectives, "_KINDS", named)
    monkeypatch.setattr(row_functions, "KINDS", {**row_functions.KINDS, "count": Positives})
    one_sum(Count()).run()
    with pytest.raises(ProtocolError, match="exact_sums"):
        refusing(one_sum(Count()), VICTIM).run()


@pytest.mark.parametrize("label", [0.0, 1.0])
@pytest.mark.parametrize("make", [make_session, model_session])
def test_the_model_of_two_small_steps_is_an_exact_sum(
    make: Callable[..., Session], label: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """-w / (2 rate) is the mean gradient at 0: in the category's place p - y of the one row."""
    shards, rate = odd_one(), 1e-3
    shards[1][1][7] = label
    monkeypatch.setattr("tests.support.helpers.make_data", lambda *a, **k: shards)
    update = GradientDescent(rounds=2, learning_rate=rate).to_dict()
    toy: dict[str, Any] = {"ring_dim": 512, "degree": 3, "parties": 3, "rows": 40, "features": 4}
    session = make(**toy, rounds=2, update=update)
    w = np.asarray(session.run().weights)
    found = (w[2] + w[3]) / 2 * -120 / (2 * rate)
    assert found == pytest.approx(0.5 - label, abs=0.05)
    assert session.plan.opens_exact_sums


def test_a_policy_that_asks_for_noise_accepts_none() -> None:
    with pytest.raises(ParameterError, match="exact_sums=True with max_epsilon=1.*no-privacy"):
        Policy(max_epsilon=1.0, exact_sums=True)
    session = sums_session()
    session.run()
    with pytest.raises(PolicyError, match="sets without max_epsilon, exact_sums = true"):
        Policy(max_epsilon=1.0, allow_insecure=True).check(session.plan)


@pytest.mark.parametrize("fears", [0, 1, 2])
def test_sums_withstand_two_less_than_all(fears: int) -> None:
    """Exact or not: P - 1 owners who pool know the last one's own sum."""
    session = sums_session()
    session.run()
    plan = session.plan
    policy = Policy(exact_sums=True, allow_insecure=True, min_colluders=fears)
    if fears < 2:
        policy.check(plan)
        return
    with pytest.raises(PolicyError, match="3 parties withstand 1 .* min_colluders=2: take 4"):
        policy.check(plan)


# -- behind an agent -----------------------------------------------------------------------------


def test_nobody_is_asked_about_a_plan_that_the_policy_refuses(tmp_path: Path) -> None:
    session = refusing(sums_session(), VICTIM)
    agents = Agents(tmp_path, None, session=session, ask=True, wait_seconds=0.1)
    agents.terms["ask"] = False
    for name in (FIRST, THIRD):
        agents.restart(name)
    with pytest.raises(ProtocolError, match="exact_sums = true in the policy") as refused:
        session.run(agents.ask)
    assert refused.value.culprit == VICTIM


def test_an_owner_who_takes_it_back_does_not_go_on_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = sums_session()
    agents = Agents(tmp_path, Vault(PASSPHRASE), session=session)

    def restarted(step: str, outgoing: Any) -> Any:
        if step == "mask-keys":
            refusing(session, VICTIM)
            agents.restart(VICTIM)
        return agents.ask(step, outgoing)

    with pytest.raises(ProtocolError, match="is over: see its own log") as refused:
        session.run(restarted)
    assert refused.value.culprit == VICTIM and "exact_sums" in caplog.text
