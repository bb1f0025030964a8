"""One federated run in this process: the same roles, messages and code as a deployment."""

from __future__ import annotations

import secrets
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ciphercohort.after.inference import PROJECTED
from ciphercohort.after.inference_cost import check_inference
from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.figures import check_kind, figures_of, new_draw, settled
from ciphercohort.job.inputs import schema_notes, with_cover, with_inputs
from ciphercohort.job.layout import MESSAGES, SECOND_MOMENT, TRANSCRIPT
from ciphercohort.planning.within import choose
from ciphercohort.report.run_folder import RunFolder
from ciphercohort.results.exact_sums import opens_exact_sums, tell
from ciphercohort.results.result import Array, Figures, RunResult, scored
from ciphercohort.results.slot_report import unproven_warnings
from coordinator.coordinator import Coordinator, Observer
from coordinator.costs import Costs
from coordinator.replay import evidence as read_evidence
from coordinator.workers import workers_of
from parties.coins import Coins
from parties.policy import Policy
from parties.reader.look import filled_totals
from parties.reader.shard import Shard
from protocols.errors import ParameterError
from protocols.exchange.messages import new_signing_key, public_bytes
from protocols.exchange.private_files import FOLDER_MODE
from protocols.exchange.transcript import Transcript
from protocols.models.model import Model
from protocols.models.registry import model_named
from protocols.names import check_colluders_of_sums
from protocols.numerics.approximation import Polynomial
from protocols.plan.published import published, reach_words
from protocols.plan.run_plan import Member, RunPlan
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.statistics.evaluation.figures import LEAST
from protocols.steps.workers import KINDS
from sims.afterwards import check_evaluation, follow
from sims.held_out import HeldBack, used
from sims.ledgers import check_whole, dataset_of, open_ledger
from sims.local import Ran, run_parties
from sims.party_process import PartySpec
from sims.prepare import PreparedData, prepare
from sims.simulated_sums import as_parties, with_shards
from sims.twin import OPTIMA, fit_unclipped
from sims.twins import twin_of


@dataclass(frozen=True, slots=True)
class Event:
    """kind: "plan" (found, before the first key), "phase" (begins) or "progress" (iterations)."""

    kind: str
    phase: str
    done: int = 0
    total: int = 0
    found: Calibration | None = None


OnEvent = Callable[[Event], None]
MakePlan = Callable[[str, tuple[Member, ...]], RunPlan]


def simulate(config: SimulationConfig, on_event: OnEvent | None = None) -> RunResult:
    """Train as `config` says, and compare with the twin and with the optimum without privacy.

    Raises:
        CohortError: bad input (before any key is made), or an aborted protocol.
    """
    notify = on_event or (lambda event: None)
    notify(Event("phase", "data"))
    root = noise_root(config)
    return run(config, prepare(config, np.random.default_rng(root)), root, notify)


def noise_root(config: SimulationConfig) -> int:
    """Seed of noise, coins, split and hold-out; the operating system's without one."""
    return secrets.randbits(256) if config.seed is None else config.seed


def run(
    config: SimulationConfig,
    data: PreparedData,
    root: int,
    notify: OnEvent,
    link: Polynomial | None = None,
) -> RunResult:
    """Train on prepared shards; see `simulate`.

    link: in place of the plan's polynomial of encrypted rows, such as a paper's own; its degree is
    the plan's.
    """
    started = time.perf_counter()
    terms = data.schema.row_terms
    if config.inference and terms:
        raise ParameterError(
            f"inference with rows that have a {' and an '.join(terms)}: standard errors count "
            "every row once and know no offsets; leave inference out"
        )
    if config.inference and data.schema.projection is not None:
        raise ParameterError(PROJECTED)
    if config.evaluate and "offset" in terms:
        raise ParameterError(
            "evaluate with rows that have an offset: the sum scores rows by their features alone; "
            "leave evaluate out"
        )
    # Every refusal that depends on public figures only comes before the first key.
    rows = [shard.rows for shard in data.shards.values()]
    notify(Event("phase", "choose"))
    check_kind(data.schema, config.model)
    trained, figures = config.for_training(), figures_of(data.schema, rows, new_draw(config))
    if trained.within is None:
        found = calibrate(figures, trained.wanted())
    else:
        found = choose(trained, figures).calibration
    if link is not None:
        found = replace(found, template=replace(found.template, link=link))  # type: ignore[call-arg]
    held_out = found.template.held_out
    check_evaluation(config, data.schema, rows, held_out)
    if config.epsilon is not None and (config.inference or config.evaluate):
        check_colluders_of_sums(config.colluders, len(rows))
    if found.first is not None or config.inference or config.evaluate:
        check_whole(config, data.shards)
    found = replace(found, notes=(*found.notes, *check_inference(config, figures)))
    notify(Event("plan", "data", found=found))
    exact_sums = opens_exact_sums(config, found.template)
    tell(exact_sums)
    if config.workers and found.template.kind not in KINDS:
        raise ParameterError(
            f"workers={config.workers} with model={config.model!r}: its rows reach the coordinator "
            "as sums, and nothing is left that grows with them; leave workers out"
        )
    pool = workers_of(config.workers)
    folder = RunFolder.create(config.out, rounds=found.template.rounds) if config.out else None
    with _recording(folder) as record, pool as engine:
        signing_key = new_signing_key()
        specs = party_specs(config, data.shards, root, public_bytes(signing_key))
        whole = data
        data = used(held_out, whole, specs)
        if held_out and folder:
            HeldBack.of(held_out, whole, specs).save(folder.private)

        def both(event: Event) -> None:
            # A file takes long to write: an interrupt meanwhile finds both at the same place.
            notify(event)
            record(event)

        def coordinator(make_plan: MakePlan, transcript: Path | None, **more: Any) -> Coordinator:
            session = uuid.uuid4().hex
            return Coordinator(
                session=session,
                signing_key=signing_key,
                party_keys={name: spec.verify_key for name, spec in specs.items()},
                make_plan=partial(make_plan, session),
                transcript=Transcript(transcript),
                **more,
            )

        costs, evidence = Costs(), None
        # What is settled afterwards names no run before it; inference pays for both.
        before = found.first
        if before is not None:
            both(Event("phase", "moment"))
            with _moment_folder(folder) as kept:
                first = coordinator(found.first_plan, kept / TRANSCRIPT)
                costs = run_parties(first, specs, config.processes, kept / MESSAGES).costs
                evidence = read_evidence(kept)
            after = settled(data.schema, rows, found.wanted, evidence)
            found = replace(after, notes=found.notes)
        observer = Observer(
            on_phase=lambda phase: both(Event("phase", phase)),
            on_progress=lambda phase, done, total: both(Event("progress", phase, done, total)),
        )
        transcript = folder.transcript_path if folder else None
        messages = folder.messages_path if folder and config.keep_messages else None
        training = coordinator(
            found.plan, transcript, observer=observer, evidence=evidence, engine=engine
        )
        ran = run_parties(training, specs, config.processes, messages)
        both(Event("phase", "twin"))
        result = compare(
            data,
            found,
            with_shards(specs, data.shards),
            ran,
            costs=costs + ran.costs,
            noise=_noise_name(config),
            exact_sums=exact_sums,
            total_seconds=time.perf_counter() - started,
        )
        result = follow(
            config,
            data,
            whole,
            specs,
            result,
            before,
            folder,
            lambda name: both(Event("phase", name)),
        )
        if folder:
            folder.write(result)
    return result


@contextmanager
def _moment_folder(folder: RunFolder | None) -> Iterator[Path]:
    """Where the messages of the first run go: they are few, and the plan of the second needs them.

    They stay with the run, if it has a folder.
    """
    if folder is not None:
        path = folder.release / SECOND_MOMENT
        path.mkdir(mode=FOLDER_MODE, exist_ok=True)
        yield path
        return
    with TemporaryDirectory() as name:
        yield Path(name)


def party_specs(
    config: SimulationConfig, shards: Mapping[str, Shard], root: int, coordinator_key: str
) -> dict[str, PartySpec]:
    """One spec per party; each consents to exactly the promised privacy."""
    policy = Policy(
        max_epsilon=config.epsilon,
        max_delta=config.delta,
        min_colluders=config.colluders,
        exact_sums=config.epsilon is None,
        allow_insecure=config.profile != "secure",
        # Who runs a simulation stands for all owners, and is warned.
        accept_unbounded=True,
        min_rows_apart=1,
        site_tables=True,
    )
    own, specs = replace(policy, replica="own"), dict[str, PartySpec]()
    for name, shard in shards.items():
        computes = config.replicas == "all" or (config.replicas == "one" and not specs)
        key = new_signing_key()
        specs[name] = PartySpec(
            name=name,
            shard=shard,
            signing_key=key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()),
            coordinator_key=coordinator_key,
            policy=own if computes else policy,
            noise_seed=root,
            ledger=open_ledger(config, name),
            dataset=dataset_of(config),
            coins=Coins(SeededRandomness(root, name)),
        )
    return specs


def compare(
    data: PreparedData,
    found: Calibration,
    specs: Mapping[str, PartySpec],
    ran: Ran,
    *,
    costs: Costs,
    noise: str,
    exact_sums: bool,
    total_seconds: float,
) -> RunResult:
    """The decrypted model beside its twin and the optimum without privacy."""
    outcome = ran.outcome
    plan, test = outcome.plan, data.test
    ordered = as_parties(data.shards, specs)
    twin = twin_of(plan, replace(data, shards=ordered), with_shards(specs, ordered))
    weights, scaling = published(plan, outcome.weights, data.schema.bias)
    # The same for both: what is left between them is what encryption does.
    twin_weights = scaling.of(twin.weights, data.schema.bias) if scaling else twin.weights
    model = model_named(plan.model)
    reference = model_named(model.reference)
    fit = OPTIMA[reference.name]
    clipped = fit(data.rows, data.labels, data.row_weights, data.offsets)
    optimum = fit_unclipped(fit, data.raw, data.labels, data.row_weights, data.offsets)

    private = plan.privacy is not None
    schema = schema_notes(data.schema_from, private=private)
    public = (
        *found.notes,
        *unproven_warnings(plan, data.schema.norm_bound),
        *_missing_words(outcome.missing),
        *filter(None, [reach_words(plan, outcome.weights)]),
    )

    def judged(model: Model, weights: Array, rows: Array = test.x) -> Figures:
        return scored(model, weights, rows, test.y, data.schema, test.offset)

    return RunResult(
        plan=plan,
        schema=data.schema,
        schema_from=data.schema_from,
        weights=weights,
        released=outcome.weights,
        scaling=scaling,
        twin_weights=twin_weights,
        optimum_weights=optimum,
        scores=judged(model, weights),
        twin=judged(model, twin_weights),
        optimum=judged(reference, optimum, data.raw_test),
        clipped_optimum_weights=clipped,
        clipped_optimum=judged(reference, clipped),
        iterations=twin.iterations,
        costs=costs,
        rows_by_party={name: shard.rows for name, shard in data.shards.items()},
        test_x=test.x,
        test_raw=data.raw_test,
        test_y=test.y,
        test_offset=test.offset,
        clamped={name: {"notes": s.counts.summary()} for name, s in data.shards.items()},
        # What training left undone before how it was done.
        warnings=(*schema, *twin.warnings, *public, *data.notes),
        public_warnings=(*schema, *public),
        noise=noise,
        exact_sums=exact_sums,
        peak_memory_mb=ran.peak_memory,
        total_seconds=total_seconds,
        transcript_head=ran.head,
        certificate=with_inputs(
            with_cover(found.certificate, plan), data.schema_from, private=private
        ),
        missing=outcome.missing,
        filled=filled_totals(data.shards, LEAST),
    )


def _missing_words(missing: tuple[str, ...]) -> tuple[str, ...]:
    """A warning, where somebody vanished."""
    if not missing:
        return ()
    return (f"others stood in for {', '.join(missing)}, who vanished after contributing",)


def _noise_name(config: SimulationConfig) -> str:
    if config.epsilon is None:
        return "none"
    return "system" if config.seed is None else "seeded (NOT PRIVATE)"


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the run as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _recording(folder: RunFolder | None) -> Iterator[OnEvent]:
    """Keep the folder's status true, whatever ends the run."""
    if folder is None:
        yield lambda event: None
        return
    try:
        with _terminable():
            yield lambda event: folder.note(event.phase, event.done)
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt)
        reason = "interrupted" if stopped else str(error) or type(error).__name__
        folder.abort(reason, interrupted=stopped)
        raise
