"""What follows a training within the same promise: an evaluation, and standard errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ciphercohort.after.inference import infer_by
from ciphercohort.after.judged import judged
from ciphercohort.after.judging import check_noise, objective
from ciphercohort.after.sums import following_mu, sums_wanted, without_table
from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.figures import figures_of
from ciphercohort.job.layout import EVALUATION_SUM, INFERENCE_SUMS
from ciphercohort.report.run_folder import RunFolder
from ciphercohort.results.predict import ReleasedModel
from ciphercohort.results.promise import Promise
from ciphercohort.results.result import FAR, UNCONVERGED, Array, RunResult, scored
from parties.reader.look import SHORTENED
from parties.reader.schema import Label, Schema
from parties.reader.views import by_range
from protocols.errors import ParameterError, PrivacyError
from protocols.names import RANGES_VIEW
from protocols.plan.held_out import HeldOut
from protocols.plan.published import REACH
from protocols.plan.run_plan import RunPlan
from protocols.privacy.calibrate.one_sum import plan_sum
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.privacy.certificates.sums import MECHANISM_SHARE
from protocols.privacy.loss.accounting import compose
from protocols.statistics.evaluation.figures import LEAST
from protocols.statistics.inference.budget import left_mu
from sims.held_out import otherwise_encoded
from sims.party_process import PartySpec
from sims.prepare import PreparedData
from sims.simulated_sums import Sums, ranged, shards_by_range, with_shards

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
    wanted = sums_wanted(config.epsilon, config.delta, config.colluders)
    outputs = () if isinstance(schema.label, Label) else (schema.label.outputs,)
    blank = ReleasedModel(
        schema=schema, weights=np.zeros((schema.num_features, *outputs)), model=config.model
    )
    figures = figures_of(schema, rows, replace(held_out, judged=True))
    _, mu = following_mu(config)
    plan = plan_sum(figures, wanted, objective(blank, private=True), mu)
    check_noise(plan, wanted, {}, however_noisy=config.however_noisy)


def follow(
    config: SimulationConfig,
    data: PreparedData,
    whole: PreparedData,
    specs: Mapping[str, PartySpec],
    result: RunResult,
    before: RunPlan | None,
    folder: RunFolder | None,
    begin: Callable[[str], None],
) -> RunResult:
    """The result with what was asked for beside the model.

    data: the rows that it was trained on; whole, specs: owners with their whole tables; before: the
    plan of the run that opened a second moment, if there was one; begin: is told of phases.
    """
    plans = [plan for plan in (before, result.plan) if plan is not None and plan.privacy]
    spent = tuple(Mechanism.from_plan(plan, data.schema.norm_bound) for plan in plans)
    followed: dict[str, Sums] = {}
    alone = data.schema.row_terms or data.schema.projection is not None
    if config.inference or (config.ends_at_maximum and not alone):
        begin("inference")
        result, sums = _with_inference(config, data, specs, result, spent, folder)
        followed["standard errors"] = sums
        spent = (*spent, *sums.mechanisms)
    if config.evaluate:
        begin("evaluation")
        own = dict(specs)
        if result.view:
            seen = shards_by_range(whole, private=False)
            own = {name: otherwise_encoded(spec, seen[name]) for name, spec in specs.items()}
        result, sums = _with_evaluation(config, own, result, spent, folder)
        followed["evaluation"] = sums
    return replace(result, promise=_promise(config, result, followed))


def _promise(
    config: SimulationConfig, result: RunResult, followed: Mapping[str, Sums]
) -> Promise | None:
    """Of the run, whatever became of the sums that followed; None without privacy."""
    privacy = result.plan.privacy
    if privacy is None or config.epsilon is None:
        return None
    opened = {name: sums for name, sums in followed.items() if sums.done}
    events = [e for sums in opened.values() for each in sums.mechanisms for e in each.events]
    given = {"evaluation": result.evaluation, "standard errors": result.inference}
    training = (privacy.epsilon, privacy.delta)
    epsilon, delta = (config.epsilon, config.delta) if opened else training
    return Promise(
        epsilon=epsilon,
        delta=delta,
        training=training,
        after=compose(events, delta=MECHANISM_SHARE * delta) if opened else None,
        without_result=tuple(name for name in opened if given[name] is None),
    )


def _with_evaluation(
    config: SimulationConfig,
    specs: Mapping[str, PartySpec],
    result: RunResult,
    spent: Spent,
    folder: RunFolder | None,
) -> tuple[RunResult, Sums]:
    """The released model on the rows that owners hold back, else a note why not; and its sums.

    specs: owners with their whole tables, as the model scores rows; spent: so far.
    """
    held_out, private = result.plan.held_out, config.epsilon is not None
    if held_out is None:
        raise AssertionError("an evaluation of rows that are held back needs some")
    model = ReleasedModel(
        schema=result.schema,
        view=result.view,
        weights=result.weights,
        model=result.plan.model,
        session=result.plan.session,
        insecure=result.insecure,
        schema_from=result.schema_from,
    )
    sums = Sums(
        specs=specs,
        schema=model.encoding,
        wanted=sums_wanted(config.epsilon, config.delta, config.colluders),
        held_out=replace(held_out, judged=True),
        of_training=result.plan.digest(),
        folder=folder.release / EVALUATION_SUM if folder else None,
        processes=config.processes,
    )
    try:
        if sums.rows < LEAST:
            raise ParameterError(f"fewer than {LEAST} rows: figures would tell of single ones")
        mu = None
        if config.epsilon is not None:
            mu = left_mu(config.epsilon, config.delta, spent)
        opened = sums.open(objective(model, private=private), mu)
    except (PrivacyError, ParameterError) as error:
        warning = f"no evaluation on rows that were held back: {error}"
        return replace(result, warnings=(*result.warnings, warning)), sums
    found = judged(model, opened, noise=result.noise)
    if folder:
        found.write(folder.release)
    return replace(result, evaluation=found, warnings=(*result.warnings, *found.notes)), sums


def _with_inference(
    config: SimulationConfig,
    data: PreparedData,
    specs: Mapping[str, PartySpec],
    result: RunResult,
    spent: Spent,
    folder: RunFolder | None,
) -> tuple[RunResult, Sums]:
    """Standard errors at the released model, of the same rows, else a note why not; and their sums.

    data: the rows that it was trained on; spent: so far.
    """
    wanted = sums_wanted(config.epsilon, config.delta, config.colluders)
    private = config.epsilon is not None
    sums = Sums(
        specs=with_shards(specs, shards_by_range(data, private=private)),
        schema=by_range(data.schema, private=private),
        wanted=wanted,
        however_noisy=True,  # else refused before the training, by `check_inference`
        of_training=result.plan.digest(),
        folder=folder.release / INFERENCE_SUMS if folder else None,
        processes=config.processes,
    )
    try:
        _, errors, judged = config.shares
        model = result.plan.model
        inference = infer_by(
            sums,
            data.schema,
            result.weights,
            model,
            spent=spent,
            share=errors / (errors + judged) if errors else 1.0,
            insecure=result.insecure,
        )
    except (PrivacyError, ParameterError) as error:
        # The model has been trained and paid for; and so, perhaps, have some of the sums.
        warning = without_table(error, sums)
        return replace(result, warnings=(*result.warnings, warning)), sums
    inference = replace(inference, notes=(*result.unmet, *inference.notes))
    return _ended(replace(result, inference=inference), inference.weights, data), sums


def _ended(result: RunResult, weights: Array, data: PreparedData) -> RunResult:
    """With the estimates of its table for the model."""
    own = by_range(data.schema)
    x, _ = ranged(data.raw_test, own)
    scores = scored(result.model, weights, x, result.test_y, data.schema, result.test_offset)
    # What training has left is made up for.
    told, public = (
        tuple(w for w in words if not w.startswith((FAR, UNCONVERGED, REACH, SHORTENED)))
        for words in (result.warnings, result.public_warnings)
    )
    return replace(
        result,
        weights=weights,
        trained=(result.weights, result.scores),
        view=RANGES_VIEW,
        own_x=x,
        scores=scores,
        warnings=told,
        public_warnings=public,
    )
