"""Sums after a training, or without one, against owners with replicas. INSECURE where said.

Evaluation, standard errors, counts of empty cells, studies: one session each, of one round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coordinator.deployment as deployment
from coordinator.coordinator import Coordinator
from coordinator.status import read_status
from parties.agent.vault import Vault
from parties.kernel.study.person_time import PersonTime
from parties.reader.schema import NumericColumn, Targets
from protocols.errors import ProtocolError
from protocols.exchange.messages import Body
from protocols.names import SECURE_AGGREGATION
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.one_sum import plan_sum
from protocols.statistics.inference.objective import InformationObjective
from protocols.statistics.study.objectives import PersonTimeObjective
from protocols.sums.one_sum import OneSum
from tests.coordinator.test_deployment import NAMES, with_replicas
from tests.coordinator.test_inference import Hospitals
from tests.parties.agents import PASSPHRASE
from tests.parties.test_exact_sums import LABEL, ONE_SUMS, B, D
from tests.replicas.deviations import Change, blob, one_bit, ran, refusals
from tests.support.helpers import Session, make_data, open_session, party_names
from tests.support.sessions import VICTIM, altered
from tests.support.sessions import with_meta as meta

ALL = party_names(3)


STAYS = ("lifetimes", "generalised", "risk sets", "residuals", "person time")
"""Whose rows end at a time, with an event or without."""
INFORMATION = InformationObjective(model="logistic", theta=(0.0,) * D, row_norm=B)
HAZARDS = PersonTime(
    **{"columns": (0,), "cuts": (), "base": (0.0,), "scale": (1.0,), "centre": (0.0,)},
    **{"matrix": (1.0,), "theta": (0.0, 0.0), "clip": 1.0, "kappa": 1.0, "most_hazard": 1.0},
)


def opened(name: str, task: OneSum, epsilon: float | None = None) -> Session:
    """One sum of three owners, who accept those that tell of their rows alone."""
    wanted = Wanted(protocol=SECURE_AGGREGATION, update="gd", epsilon=epsilon)
    shape = PublicFigures.even(rows=12, features=D - 1, parties=3, norm_bound=B)
    template = replace(plan_sum(shape, wanted, task), profile="fast-insecure")
    shards, label = make_data([4] * 3, D, 1), None
    if name in STAYS:
        shards = [(x, np.column_stack([np.abs(x[:, 0]), y])) for x, y in shards]
        label = Targets(columns=tuple(NumericColumn(n, 0.0, 1.0) for n in ("time", "event")))
    session = open_session(lambda common: replace(template, **common), shards, label)
    for party in session.parties.values():
        party._policy = replace(party._policy, site_tables=True)
        party.run.terms = party._policy.terms()
    return session


MAKE: dict[str, Callable[[], Session]] = {
    **{name: partial(opened, name, task) for name, task in ONE_SUMS.items()},
    "noisy evaluation": partial(opened, "", replace(LABEL, exact=False), 2.0),
    "noisy information": partial(opened, "", replace(INFORMATION, epsilon_in_all=2.0), 2.0),
    "person time": partial(
        opened, "person time", PersonTimeObjective(adds=HAZARDS, epsilon_in_all=2.0), 2.0
    ),
}


@pytest.mark.parametrize("name", ["evaluation", "noisy information", "risk sets"])
def test_an_honest_sum_comes_to_its_end(name: str) -> None:
    """All others: `python -m tests.replicas`, which begins with that."""
    assert ran(MAKE[name]()) == ""


@pytest.mark.parametrize("name", MAKE)
def test_another_point_for_one_owner_is_refused(name: str) -> None:
    session = MAKE[name]()
    assert ran(session, altered("round/0", blob(0, one_bit), VICTIM))
    found = refusals(session)
    assert session.recorded[-1][0] == "round/0" and "follow" in found[VICTIM]
    assert session.parties[VICTIM].answered == 0 and not found[ALL[0]]


def other_plan(body: Body) -> Body:
    """It judges another model."""
    plan = {**body.meta["plan"]}
    plan["objective"] = {**plan["objective"], "weights": [[0.5, 1.0, 0.0]]}
    return Body({**body.meta, "plan": plan})


ATTACKS: dict[str, tuple[str, Change]] = {
    "signatures of another plan": ("reveal", meta(signatures={})),
    "other seeds": ("mask-keys", meta(seeds={})),
    "keys of the coordinator's": ("opening-key", meta(keys={})),
    "a second opening": ("round/0", meta(more=1)),
    "other figures": ("finish", lambda body: Body(body.meta, (bytes(len(body.blobs[0])),))),
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("told", [ALL, (VICTIM,)], ids=["all", "one"])
def test_what_does_not_follow_in_an_evaluation_is_refused(
    attack: str, told: tuple[str, ...]
) -> None:
    """All else: `python -m tests.replicas evaluation`, and the names of the other sums."""
    (step, change), session = ATTACKS[attack], MAKE["evaluation"]()
    assert ran(session, altered(step, change, *told))
    found = refusals(session)
    assert session.recorded[-1][0] == step
    assert all(found[name] and session.parties[name].answered == 0 for name in told), found


def test_another_model_is_not_judged_for_one_owner() -> None:
    session = MAKE["evaluation"]()
    assert "agreed to a different plan" in ran(session, altered("agree", other_plan, VICTIM))
    assert session.recorded[-1][0] == "agree"


# -- across machines -----------------------------------------------------------------------------


@pytest.fixture
def centre(tmp_path: Path) -> Hospitals:
    made = Hospitals(tmp_path, Vault(PASSPHRASE))
    with_replicas(made)
    return made


def test_a_centre_that_deviates_in_a_later_sum_gets_no_share_of_it(
    centre: Hospitals, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[str] = []

    class Deviating(Coordinator):
        """From the second sum on it asks one owner for something else."""

        def protocol(self) -> Any:
            """The exchange, altered."""
            sessions.append(self.session)
            change = altered("round/0", blob(0, one_bit), NAMES[1])
            return change(super().protocol()) if len(sessions) == 2 else super().protocol()

    monkeypatch.setattr(deployment, "Coordinator", Deviating)
    with pytest.raises(ProtocolError, match="round/0.*follow"):
        centre.infer(None)
    status = read_status(centre.settings.session_folder(sessions[1]))
    assert status is not None and (status["state"], status["culprit"]) == ("aborted", NAMES[1])
    assert len(sessions) == 2 and centre.forgotten()


# -- open ----------------------------------------------------------------------------------------


def test_the_point_of_a_sum_is_its_plans_word() -> None:
    """NOT prevented: a replica is of one session, and its plan is what owners consent to.

    At a point of the coordinator's choice one row can have all the weight; a judged model need not
    be the trained one. Exact sums need consent that says so, and noise holds at every point.
    """
    chosen = replace(INFORMATION, theta=(40.0,) * D)
    session = opened("", chosen)
    assert ran(session) == "" and session.outcome.plan.task == chosen
