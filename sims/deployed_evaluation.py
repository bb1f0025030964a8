"""An evaluation across machines: its plan, and what its outcome says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from coordinator.deployment import OUTCOME
from coordinator.settings import SCHEMA, Settings
from parties.data.schema import Schema
from protocols.errors import ParameterError
from protocols.evaluation.figures import LEAST
from protocols.evaluation.objective import EvaluationObjective
from protocols.gradients import GradientPlan
from protocols.plan import Member
from protocols.plans import plan_from_dict
from protocols.privacy.calibrate.one_sum import plan_sum
from protocols.privacy.mechanism import Mechanism
from sims.deployed import UNKNOWN
from sims.documents import to_json
from sims.evaluation import FILE, objective, read_tables
from sims.figures import figures_of
from sims.predict import ReleasedModel
from sims.run_folder import write_text
from sims.sums import sums_wanted


def evaluation_plan(
    settings: Settings,
    model: ReleasedModel,
    *,
    epsilon: float | None,
    delta: float,
    colluders: int,
    threshold: float = 0.5,
    bins: int | None = None,
    sites: tuple[str, ...] = (),
    least: int = LEAST,
) -> GradientPlan:
    """The plan of one sum over the rows of all admitted parties, but for session and commitments.

    Raises:
        ParameterError: the model is for another schema, or a site is no party or too small.
    """
    cards, schema = settings.cards(), Schema.load(settings.folder / SCHEMA)
    if model.schema.digest() != schema.digest():
        raise ParameterError(
            f"the model has another schema than {SCHEMA}: parties encode their rows by the latter"
        )
    for name in sites:
        if name not in cards or cards[name].rows < least:
            raise ParameterError(f"sites={name}: no party of {least} rows or more has this name")
    task = objective(
        model, private=epsilon is not None, threshold=threshold, bins=bins, sites=sites
    )
    figures = figures_of(schema, (card.rows for card in cards.values()))
    plan = plan_sum(figures, sums_wanted(epsilon, delta, colluders), task)
    if plan.privacy:
        Mechanism.from_plan(plan, figures.norm_bound).require()
    members = tuple(
        Member(name=card.name, rows=card.rows, verify_key=card.identity, commitment=UNKNOWN)
        for card in cards.values()
    )
    return replace(plan, session="template", members=members)


def write_evaluation(
    settings: Settings, session: str, model: ReleasedModel, least: int = LEAST
) -> Path:
    """evaluation.json of a finished session.

    Raises:
        ParameterError: the session was no evaluation.
    """
    folder = settings.session_folder(session)
    outcome = json.loads((folder / OUTCOME).read_text(encoding="utf-8"))
    plan = plan_from_dict(outcome["plan"])
    task = plan.task if isinstance(plan, GradientPlan) else None
    if not isinstance(plan, GradientPlan) or not isinstance(task, EvaluationObjective):
        raise ParameterError(f"session {session!r} was no evaluation")
    noise = plan.split.total_std(max(plan.noise_scales, default=0.0))
    rows = {member.name: member.rows for member in plan.members}
    found, sites = read_tables(model, task, np.array(outcome["weights"]), noise, rows, least)
    privacy = plan.privacy
    body = {
        **found,
        "sites": sites,
        "suppressed": {"below": least},
        "privacy": {"epsilon": privacy.epsilon, "delta": privacy.delta} if privacy else None,
        "session": session,
        "plan": outcome["digest"],
    }
    write_text(folder / FILE, to_json(body))
    return folder / FILE
