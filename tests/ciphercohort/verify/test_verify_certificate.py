"""A certificate is computed again from its setting, and the setting must be the plan's."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ciphercohort.deploy.deployed import Session, trained_release
from ciphercohort.job.layout import CERTIFICATE, MODEL
from ciphercohort.results.documents import to_json
from ciphercohort.results.promise import WHOLE
from ciphercohort.verify.certificate import certificate_problems
from protocols.ckks.circuits.choice import choose_parameters
from protocols.ckks.circuits.rows import iteration_levels
from protocols.numerics.arithmetic import allowances
from protocols.plan.run_plan import PrivacyPlan
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.search.search import find_setting
from protocols.rows.plan import RowsPlan
from tests.sims.fake_run import SCHEMA, make_plan

Fields = dict[str, Any]
ROWS = {"a": 20_000, "b": 15_000, "c": 15_000}


def certified(epsilon: float | None) -> tuple[Fields, RowsPlan]:
    """A real certificate, as the file holds it, and the plan that goes with it; toy ring."""
    certificate = find_setting(
        rows=sum(ROWS.values()),
        features=SCHEMA.num_features,
        norm_bound=SCHEMA.norm_bound,
        epsilon=epsilon,
        delta=1e-5,
        parties=3,
        colluders=1 if epsilon else 0,
        rounds=25,
        degree=7,
        method="barrier",
        **(allowances(SCHEMA.norm_bound, SCHEMA.num_features) if epsilon else {}),
    )
    setting = certificate.setting
    rule = setting.rule
    link = setting.sigmoid.polynomial
    privacy = epsilon and PrivacyPlan(
        epsilon=epsilon,
        delta=1e-5,
        colluders=1,
        sigma=setting.sigma,
        share_std=NoiseSplit(parties=3, colluders=1).share_std(setting.sigma),
        sensitivity=certificate.figures["sensitivity"],
    )
    levels = iteration_levels(link, rule)
    plan = replace(
        make_plan(ROWS),
        update=rule.to_dict(),
        link=link,
        ckks=choose_parameters(levels, secure=False),
        privacy=privacy or None,
    )
    fields: Fields = json.loads(to_json(certificate.to_dict()))
    return fields, plan


@pytest.fixture(scope="module")
def private() -> tuple[Fields, RowsPlan]:
    return certified(2.0)


def test_a_deployed_model_says_what_the_whole_run_cost(private: tuple[Fields, RowsPlan]) -> None:
    """As a simulation's does, in the same words; what follows is told where it is."""
    opened = np.zeros(SCHEMA.num_features)
    session = Session(folder=Path(), plan=private[1], opened=opened)
    documents = trained_release(session, SCHEMA, "00").documents()
    due = {"epsilon": 2.0, "delta": 1e-5, "training": [2.0, 1e-5]}
    for name in (MODEL, CERTIFICATE):
        assert json.loads(documents[name])[WHOLE] == due | {"after": None, "without_result": []}


def test_a_certificate_without_privacy_comes_out_the_same() -> None:
    """Those with it: `test_mechanisms_contract`."""
    assert list(certificate_problems(*certified(None), SCHEMA)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f["conditions"][0].update(left=0.0), "conditions[0].left: found 0.0"),
        (lambda f: f["figures"].update(R=1.0), "figures.R: found 1.0"),
        (lambda f: f["epsilon"].__setitem__(0, 0.1), "epsilon[0]: found 0.1"),
        (lambda f: f["setting"].update(sigma=0.5), "setting.sigma: found 0.5"),
        (lambda f: f["setting"].update(learning_rate=-1.0), "setting.learning_rate: found -1.0"),
        (lambda f: f["setting"].update(norm_bound=0.5), "setting.norm_bound: found 0.5"),
        (lambda f: f["setting"]["budget"].update(colluders=0), "budget.colluders: found 0"),
        (lambda f: f["setting"]["budget"].update(spent_mu=0.0), "budget.spent_mu: found 0.0"),
        (lambda f: f["setting"]["sigmoid"].update(radius=3.0), "setting.sigmoid.radius"),
    ],
)
def test_forgeries_are_named(
    private: tuple[Fields, RowsPlan], change: Callable[[Fields], object], words: str
) -> None:
    fields = copy.deepcopy(private[0])
    change(fields)
    assert words in "; ".join(certificate_problems(fields, private[1], SCHEMA))


def test_a_weaker_plan_is_named(private: tuple[Fields, RowsPlan]) -> None:
    fields, plan = private
    slower = replace(
        plan, update={**plan.update, "learning_rate": plan.rule.least_learning_rate / 2}
    )
    assert "setting.learning_rate" in "; ".join(certificate_problems(fields, slower, SCHEMA))
    assert plan.privacy is not None
    for name, value in (("sigma", 1e-4), ("share_std", 1e-4), ("sensitivity", 9.0), ("delta", 0.1)):
        other = replace(plan, privacy=replace(plan.privacy, **{name: value}))
        assert name in "; ".join(certificate_problems(fields, other, SCHEMA))


def test_a_setting_that_proves_nothing_is_named(private: tuple[Fields, RowsPlan]) -> None:
    """Forged consistently, so that only the theorem itself objects."""
    fields, plan = copy.deepcopy(private[0]), private[1]
    assert plan.privacy is not None
    sigma = plan.privacy.sigma / 10
    fields["setting"]["sigma"] = sigma
    weak = replace(plan, privacy=replace(plan.privacy, sigma=sigma))
    found = "; ".join(certificate_problems(fields, weak, SCHEMA))
    assert "conditions.privacy_noise: found" in found
