"""One federated run in this process: the same roles, messages and code as a deployment."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from coordinator.coordinator import AskParties, Coordinator, Observer, Outcome
from coordinator.log import recorded
from parties.data.schema import Targets
from parties.flower_app import Handler
from parties.party import Party
from parties.policy import Policy
from protocols.messages import new_signing_key, public_bytes
from protocols.models.regression_models import regression_model
from protocols.plan import RunPlan
from protocols.privacy.calibrate.calibration import Calibration
from protocols.transcript import Transcript
from sims.config import SimulationConfig
from sims.cover_words import missing_words, with_cover
from sims.figures import calibrated
from sims.ledgers import dataset_of, open_ledger
from sims.local import run_session
from sims.party_process import PartyProcess, PartySpec, peak_memory_mb
from sims.prepare import PreparedData, prepare
from sims.regression_result import (
    RegressionResult,
    score_least_squares,
    score_regression,
    targets_of,
)
from sims.regression_twin import ridge_solution
from sims.result import AnyRun, Array, RunResult
from sims.run_folder import RunFolder
from sims.slot_report import unproven_warnings
from sims.twin import fit_optimum, score
from sims.twins import twin_of


@dataclass(frozen=True, slots=True)
class Event:
    """kind: "phase" (a phase begins) or "progress" (done of total iterations)."""

    kind: str
    phase: str
    done: int = 0
    total: int = 0


OnEvent = Callable[[Event], None]


def simulate(config: SimulationConfig, on_event: OnEvent | None = None) -> AnyRun:
    """Train as `config` says, and compare with the twin and with the non-private optimum.

    Returns: a RunResult; of a regression, a RegressionResult.

    Raises:
        CohortError: bad input (before any key is made), or an aborted protocol.
    """
    notify = on_event or (lambda event: None)
    notify(Event("phase", "data"))
    root = noise_root(config)
    return run(config, prepare(config, np.random.default_rng(root)), root, notify)


def noise_root(config: SimulationConfig) -> int:
    """Seed of the parties' noise streams, the split and the hold-out; the OS's without a seed."""
    return secrets.randbits(256) if config.seed is None else config.seed


def run(config: SimulationConfig, data: PreparedData, root: int, notify: OnEvent) -> AnyRun:
    """Train on prepared shards; see `simulate`."""
    started = time.perf_counter()
    # Every refusal that depends on public figures only comes before the first key.
    found = calibrated(config, data.schema, (s.rows for s in data.shards.values()))
    folder = RunFolder.create(config.out, rounds=found.template.rounds) if config.out else None
    with _recording(folder) as record:
        session, signing_key = uuid.uuid4().hex, new_signing_key()
        specs = party_specs(config, data, root, public_bytes(signing_key))
        transcript = Transcript(folder.transcript_path if folder else None)
        kept = folder.messages_path if folder and config.keep_messages else None
        verify_keys = {name: _verify_key(spec) for name, spec in specs.items()}
        keep = partial(
            recorded,
            folder=kept,
            coordinator_key=public_bytes(signing_key),
            parties=verify_keys,
            durable=False,
        )

        def both(event: Event) -> None:
            # A file takes long to write: an interrupt meanwhile finds both at the same place.
            notify(event)
            record(event)

        coordinator = Coordinator(
            session=session,
            signing_key=signing_key,
            party_keys=verify_keys,
            make_plan=lambda members: found.plan(session, members),
            transcript=transcript,
            observer=Observer(
                on_phase=lambda phase: both(Event("phase", phase)),
                on_progress=lambda phase, done, total: both(Event("progress", phase, done, total)),
            ),
        )
        try:
            outcome, party_memory = _run(config, session, coordinator, specs, keep)
        finally:
            transcript.close()
        both(Event("phase", "twin"))
        result = compare(
            data,
            found,
            specs,
            coordinator,
            outcome,
            noise=_noise_name(config),
            peak_memory=max(party_memory, peak_memory_mb()),
            transcript_head=transcript.head,
            total_seconds=time.perf_counter() - started,
        )
        if folder:
            folder.write(result)
    return result


def party_specs(
    config: SimulationConfig, data: PreparedData, root: int, coordinator_key: str
) -> dict[str, PartySpec]:
    """One spec per party; each consents to exactly the promised privacy."""
    policy = Policy(
        max_epsilon=config.epsilon,
        max_delta=config.delta,
        min_colluders=config.colluders,
        allow_insecure=config.profile != "secure",
        # Who runs a simulation stands for all owners, and is warned.
        accept_unbounded=True,
    )
    specs = {}
    for name, shard in data.shards.items():
        key = new_signing_key()
        specs[name] = PartySpec(
            name=name,
            shard=shard,
            signing_key=key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()),
            coordinator_key=coordinator_key,
            policy=policy,
            noise_seed=root,
            ledger=open_ledger(config, name),
            dataset=dataset_of(config),
        )
    return specs


def _verify_key(spec: PartySpec) -> str:
    return public_bytes(Ed25519PrivateKey.from_private_bytes(spec.signing_key))


def _run(
    config: SimulationConfig,
    session: str,
    coordinator: Coordinator,
    specs: Mapping[str, PartySpec],
    keep: Callable[[AskParties], AskParties],
) -> tuple[Outcome, float]:
    """Outcome and the largest memory of a party's process [MB], 0 in one process."""
    members: dict[str, Party | PartyProcess] = {}
    outcomes: list[Outcome] = []
    try:
        for name, spec in specs.items():
            members[name] = PartyProcess(spec) if config.processes else spec.build()
        handlers: dict[str, Handler] = dict(members)
        run_session(session, lambda ask: outcomes.append(coordinator.run(keep(ask))), handlers)
    finally:
        for member in members.values():
            member.close()
    memory = [m.peak_memory_mb for m in members.values() if isinstance(m, PartyProcess)]
    return outcomes[0], max(memory, default=0.0)


def compare(
    data: PreparedData,
    found: Calibration,
    specs: Mapping[str, PartySpec],
    coordinator: Coordinator,
    outcome: Outcome,
    *,
    noise: str,
    peak_memory: float,
    transcript_head: str,
    total_seconds: float,
) -> AnyRun:
    """The decrypted model beside its twin and the non-private optimum."""
    plan, twin = outcome.plan, twin_of(outcome.plan, data, specs)
    judged = _logistic if not isinstance(data.schema.label, Targets) else _regression
    return judged(
        data,
        plan,
        outcome.weights,
        twin.weights,
        iterations=twin.iterations,
        costs=coordinator.costs,
        rows_by_party={name: shard.rows for name, shard in data.shards.items()},
        clamped={name: {"notes": s.counts.summary()} for name, s in data.shards.items()},
        warnings=(
            *data.notes,
            *found.notes,
            *twin.warnings,
            *unproven_warnings(plan, data.schema.norm_bound),
            *missing_words(outcome.missing),
        ),
        noise=noise,
        peak_memory_mb=peak_memory,
        total_seconds=total_seconds,
        transcript_head=transcript_head,
        certificate=with_cover(found.certificate, plan),
        missing=outcome.missing,
    )


def _logistic(
    data: PreparedData, plan: RunPlan, weights: Array, twin: Array, **common: Any
) -> RunResult:
    test, optimum = data.test, fit_optimum(data.rows, data.labels)
    return RunResult(
        plan=plan,
        schema=data.schema,
        weights=weights,
        twin_weights=twin,
        optimum_weights=optimum,
        scores=score(weights, test.x, test.y),
        twin=score(twin, test.x, test.y),
        optimum=score(optimum, test.x, test.y),
        test_x=test.x,
        test_y=test.y,
        **common,
    )


def _regression(
    data: PreparedData, plan: RunPlan, weights: Array, twin: Array, **common: Any
) -> RegressionResult:
    test, targets = data.test, targets_of(data.schema.label)
    model, optimum = regression_model(plan.model), ridge_solution(data.rows, data.labels, 0.0)
    return RegressionResult(
        plan=plan,
        schema=data.schema,
        weights=weights,
        twin_weights=twin,
        optimum_weights=optimum,
        scores=score_regression(model, weights, test.x, test.y, targets),
        twin=score_regression(model, twin, test.x, test.y, targets),
        optimum=score_least_squares(optimum, test.x, test.y, targets),
        test_x=test.x,
        test_y=test.y,
        **common,
    )


def _noise_name(config: SimulationConfig) -> str:
    if config.epsilon is None:
        return "none"
    return "system" if config.seed is None else "seeded (NOT PRIVATE)"


@contextmanager
def _recording(folder: RunFolder | None) -> Iterator[OnEvent]:
    """Keep the folder's status true, whatever ends the run."""
    if folder is None:
        yield lambda event: None
        return
    try:
        yield lambda event: folder.note(event.phase, event.done)
    except BaseException as error:
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        folder.abort(reason or type(error).__name__)
        raise
