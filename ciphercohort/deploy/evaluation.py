"""An evaluation across machines: its plan, and what its outcome says."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from ciphercohort.after.judged import ALL, HELD_OUT, Evaluation, judged
from ciphercohort.after.judging import check_noise, objective, objective_at
from ciphercohort.after.sums import Opened, sums_wanted
from ciphercohort.deploy.deployed import (
    UNKNOWN,
    agreed_and_opened,
    digest_of,
    shared_schema,
    training_plans,
    transcript_head,
)
from ciphercohort.job.config import DEFAULT_DELTA
from ciphercohort.job.figures import figures_of
from ciphercohort.results.documents import compare
from ciphercohort.results.predict import ReleasedModel
from ciphercohort.results.result import encoding_of
from coordinator.deployment import OUTCOME
from coordinator.settings import Settings
from parties.reader.schema import Schema
from protocols.errors import ParameterError
from protocols.plan.kinds import only
from protocols.plan.run_plan import Member, RunPlan
from protocols.privacy.calibrate.one_sum import plan_sum
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.statistics.evaluation.figures import LEAST
from protocols.statistics.evaluation.objective import EvaluationObjective
from protocols.sums.plan import GradientPlan

ROUNDING = 1e-6
"""Relative slack of a plan that is made again from the epsilon that it came to."""


def evaluation_plan(
    settings: Settings,
    model: ReleasedModel,
    *,
    epsilon: float | None,
    delta: float,
    colluders: int,
    rows: str = ALL,
    parties: tuple[str, ...] = (),
    threshold: float = 0.5,
    sites: tuple[str, ...] = (),
    least: int = LEAST,
    however_noisy: bool = False,
) -> GradientPlan:
    """The plan of one sum over rows of admitted parties, but for session and commitments.

    rows: `ALL`, or `HELD_OUT`: those that the parties held back when they trained this model here.
    parties: empty: all that are admitted, or that trained it. however_noisy: see `check_noise`.

    Raises:
        ParameterError: the model is for another schema, no rows were held back from its training,
            or a name is no party's, or a site's that is too small.
    """
    cards, schema = settings.owners(), encoding_of(shared_schema(settings, model), model.view)
    if rows not in (ALL, HELD_OUT):
        raise ParameterError(f"rows={rows!r} is not {ALL} or {HELD_OUT}")
    held_out = None
    if rows == HELD_OUT:
        trained = _training(settings, model)
        parties = parties or trained.names
        held_out = trained.held_out and replace(trained.held_out, judged=True)
    chosen = {name: cards.get(name) for name in parties or cards}
    known = {name: card for name, card in chosen.items() if card is not None}
    if len(known) < len(chosen):
        raise ParameterError(f"{', '.join(chosen.keys() - known.keys())}: no such admitted party")
    figures = figures_of(schema, (card.rows for card in known.values()), held_out)
    sizes = dict(zip(known, figures.rows_by_party, strict=True))
    for name in sites:
        if sizes.get(name, 0) < least:
            raise ParameterError(f"sites={name}: no party of {least} rows or more has this name")
    if figures.rows < least:
        raise ParameterError(f"fewer than {least} rows: figures would tell of single ones")
    task = objective(model, private=epsilon is not None, threshold=threshold, sites=sites)
    wanted = sums_wanted(epsilon, delta, colluders)
    plan = plan_sum(figures, wanted, task)
    check_noise(plan, wanted, sizes, however_noisy=however_noisy)
    if plan.privacy:
        Mechanism.from_plan(plan, figures.norm_bound).require()
    members = tuple(
        Member(name=name, rows=card.rows, verify_key=card.identity, commitment=UNKNOWN)
        for name, card in known.items()
    )
    of_training = digest_of(training_plans(settings, model.session))
    return replace(plan.among("template", members), of_training=of_training)


def _training(settings: Settings, model: ReleasedModel) -> RunPlan:
    """The plan that a model was trained by.

    Raises:
        ParameterError: no session of this folder, or no rows were held back from it.
    """
    session = model.session or "unknown"
    if not (settings.session_folder(session) / OUTCOME).exists():
        raise ParameterError(
            f"the model's session {model.session!r} is none that finished in {settings.folder}: "
            "nobody knows which rows were held back from it"
        )
    plan, _ = agreed_and_opened(settings, session)
    if plan.held_out is None:
        raise ParameterError(
            f"no rows were held back from session {model.session}: train with held_out = 0.2 under "
            "[training] of coordinator.toml, or judge the model on all rows"
        )
    return plan


def finished_evaluation(
    settings: Settings, session: str, model: ReleasedModel, least: int = LEAST
) -> Evaluation:
    """Write evaluation.json of a finished session, see `evaluated`."""
    found = evaluated(settings, session, model, least)
    found.write(settings.session_folder(session))
    return found


def evaluated(
    settings: Settings, session: str, model: ReleasedModel, least: int = LEAST
) -> Evaluation:
    """What a finished session says of a model.

    Raises:
        ParameterError: the session was no evaluation, or by another plan than one of this model
            has. ProtocolError: its transcript is broken.
    """
    folder = settings.session_folder(session)
    agreed, values = agreed_and_opened(settings, session)
    if not agreed.judges:
        raise ParameterError(f"session {session!r} was no evaluation")
    plan = only(GradientPlan, agreed)
    _check_plan(plan, encoding_of(shared_schema(settings, model), model.view), model)
    opened = Opened(
        plan=plan,
        values=values,
        norm_bound=model.encoding.norm_bound,
        head=transcript_head(folder),
    )
    return judged(model, opened, noise="system" if plan.privacy else "none", least=least)


def _check_plan(plan: GradientPlan, schema: Schema, model: ReleasedModel) -> None:
    """Of what was agreed the rows, the threshold, the sites and the promise are anybody's choice.

    All else follows from them: other bins or bounds would give other figures of the same rows. Of
    the threshold no bin follows: it moves the confusion matrix and the accuracy alone. The
    noise follows up to rounding: a plan states the epsilon that it comes to, not the one asked.
    """
    task, promise = cast(EvaluationObjective, plan.task), plan.privacy
    asked: tuple[float | None, float, int] = (None, DEFAULT_DELTA, 0)
    if promise is not None:
        asked = promise.epsilon, promise.delta, promise.colluders
    found = figures_of(schema, (each.rows for each in plan.members))
    own = objective_at(model, task.centre, private=promise is not None, sites=task.sites)
    due = replace(
        plan_sum(found, sums_wanted(*asked), own),
        session=plan.session,
        members=plan.members,
        held_out=plan.held_out,
        of_training=plan.of_training,
    )
    pair = plan.to_dict(), due.to_dict()
    if others := [*compare("what was agreed", "plan", *pair, tolerance=ROUNDING)]:
        raise ParameterError(
            f"session {plan.session!r} agreed on another plan than an evaluation of this model "
            f"has: {others[0]}"
        )
