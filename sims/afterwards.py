"""What follows a training within the same promise: an evaluation, and standard errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from parties.data.schema import Label, Schema
from protocols.errors import ParameterError, PrivacyError
from protocols.evaluation.figures import LEAST
from protocols.held_out import HeldOut
from protocols.inference.budget import EVALUATION_SHARE, TRAINING_SHARE, left_mu
from protocols.plan import RunPlan
from protocols.privacy.calibrate.one_sum import plan_sum, whole_mu
from protocols.privacy.mechanism import Mechanism
from sims.config import SimulationConfig
from sims.figures import figures_of
from sims.inference import infer
from sims.inference_rows import shards_by_range, with_shards
from sims.judged import judged
from sims.judging import check_noise, objective
from sims.party_process import PartySpec
from sims.predict import ReleasedModel
from sims.prepare import PreparedData
from sims.result import RunResult
from sims.run_folder import EVALUATION_SUM, INFERENCE_SUMS, RunFolder
from sims.sums import Sums, sums_wanted, without_table

Spent = tuple[Mechanism, ...]


def check_evaluation(
    config: SimulationConfig, schema: Schema, rows: Sequence[int], held_out: HeldOut | None
) -> None:
    """Refuse, before anything is spent, an evaluation of which noise will leave nothing.

    rows: by party, of whole tables.

    Raises:
        ParameterError: see `check_noise`.
    """
    if not config.evaluate or config.epsilon is None or held_out is None:
        return
    trained = config.for_training()
    wanted, own = (sums_wanted(c.epsilon, c.delta, c.colluders) for c in (config, trained))
    left = whole_mu(wanted) ** 2 - whole_mu(own) ** 2
    outputs = () if isinstance(schema.label, Label) else (schema.label.outputs,)
    blank = ReleasedModel(
        schema=schema, weights=np.zeros((schema.num_features, *outputs)), model=config.model
    )
    figures = figures_of(schema, rows, replace(held_out, judged=True))
    mu = math.sqrt(_evaluation_share(config) * left)
    plan = plan_sum(figures, wanted, objective(blank, private=True), mu)
    check_noise(plan, wanted, {}, however_noisy=config.however_noisy)


def _evaluation_share(config: SimulationConfig) -> float:
    """Of what training leaves; standard errors take the rest."""
    return EVALUATION_SHARE / (1 - TRAINING_SHARE) if config.inference else 1.0


def follow(
    config: SimulationConfig,
    data: PreparedData,
    specs: Mapping[str, PartySpec],
    result: RunResult,
    before: RunPlan | None,
    folder: RunFolder | None,
    begin: Callable[[str], None],
) -> RunResult:
    """The result with what was asked for beside the model.

    data: the rows that it was trained on; specs: owners with their whole tables; before: the plan
    of the run that opened a second moment, if there was one; begin: is told of phases.
    """
    plans = [plan for plan in (before, result.plan) if plan is not None and plan.privacy]
    spent = tuple(Mechanism.from_plan(plan, data.schema.norm_bound) for plan in plans)
    if config.epsilon is not None:
        result = replace(result, promise=(config.epsilon, config.delta))
    if config.evaluate:
        begin("evaluation")
        result = _with_evaluation(config, specs, result, spent, folder)
        cost = result.evaluation.opened.mechanism if result.evaluation else None
        spent = (*spent, cost) if cost else spent
    if config.inference:
        begin("inference")
        result = _with_inference(config, data, specs, result, spent, folder)
    return result


def _with_evaluation(
    config: SimulationConfig,
    specs: Mapping[str, PartySpec],
    result: RunResult,
    spent: Spent,
    folder: RunFolder | None,
) -> RunResult:
    """The released model on the rows that owners hold back; else a note why not.

    specs: owners with their whole tables; spent: so far.
    """
    held_out, private = result.plan.held_out, config.epsilon is not None
    if held_out is None:
        raise AssertionError("an evaluation of rows that are held back needs some")
    model = ReleasedModel(
        schema=result.schema,
        weights=result.weights,
        model=result.plan.model,
        session=result.plan.session,
        insecure=result.insecure,
    )
    sums = Sums(
        specs=specs,
        schema=result.schema,
        wanted=sums_wanted(config.epsilon, config.delta, config.colluders),
        held_out=replace(held_out, judged=True),
        folder=folder.path / EVALUATION_SUM if folder else None,
        processes=config.processes,
    )
    try:
        if sums.rows < LEAST:
            raise ParameterError(f"fewer than {LEAST} rows: figures would tell of single ones")
        mu = None
        if config.epsilon is not None:
            share = math.sqrt(_evaluation_share(config))
            mu = share * left_mu(config.epsilon, config.delta, spent)
        opened = sums.open(objective(model, private=private), mu)
    except (PrivacyError, ParameterError) as error:
        warning = f"no evaluation on rows that were held back: {error}"
        return replace(result, warnings=(*result.warnings, warning))
    found = judged(model, opened, noise=result.noise)
    if folder:
        found.write(folder.path)
    return replace(result, evaluation=found, warnings=(*result.warnings, *found.notes))


def _with_inference(
    config: SimulationConfig,
    data: PreparedData,
    specs: Mapping[str, PartySpec],
    result: RunResult,
    spent: Spent,
    folder: RunFolder | None,
) -> RunResult:
    """Standard errors at the released model, of the same parties' rows; else a note why not.

    data: the rows that it was trained on; spent: so far.
    """
    wanted = sums_wanted(config.epsilon, config.delta, config.colluders)
    private = config.epsilon is not None
    try:
        inference = infer(
            with_shards(specs, shards_by_range(data, private=private)),
            data.schema,
            result.weights,
            result.plan.model,
            wanted,
            spent=spent,
            folder=folder.path / INFERENCE_SUMS if folder else None,
            processes=config.processes,
        )
    except (PrivacyError, ParameterError) as error:
        # The model has been trained and paid for; and so, perhaps, have some of the sums.
        warning = without_table(error, wanted)
        return replace(result, warnings=(*result.warnings, warning))
    return replace(result, inference=inference)
