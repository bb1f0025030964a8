"""One federated run in this process: the same roles, messages and code as a deployment."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from coordinator.coordinator import Coordinator, Observer, Outcome
from coordinator.log import recorded
from parties.policy import Policy
from protocols.messages import new_signing_key, public_bytes
from protocols.models.model import Model
from protocols.models.registry import model_named
from protocols.privacy.calibrate.calibration import Calibration
from protocols.transcript import Transcript
from sims.config import SimulationConfig
from sims.cover_words import missing_words, with_cover
from sims.figures import calibrated
from sims.ledgers import dataset_of, open_ledger
from sims.party_process import PartySpec, peak_memory_mb, run_parties
from sims.prepare import PreparedData, prepare
from sims.result import Array, Figures, RunResult, scored
from sims.run_folder import RunFolder
from sims.slot_report import unproven_warnings
from sims.twin import OPTIMA
from sims.twins import twin_of


@dataclass(frozen=True, slots=True)
class Event:
    """kind: "phase" (a phase begins) or "progress" (done of total iterations)."""

    kind: str
    phase: str
    done: int = 0
    total: int = 0


OnEvent = Callable[[Event], None]


def simulate(config: SimulationConfig, on_event: OnEvent | None = None) -> RunResult:
    """Train as `config` says, and compare with the twin and with the non-private optimum.

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


def run(config: SimulationConfig, data: PreparedData, root: int, notify: OnEvent) -> RunResult:
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
        verify_keys = {name: spec.verify_key for name, spec in specs.items()}
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
            outcome, party_memory = run_parties(
                session, specs, lambda ask: coordinator.run(keep(ask)), config.processes
            )
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
) -> RunResult:
    """The decrypted model beside its twin and the non-private optimum."""
    plan, twin, test = outcome.plan, twin_of(outcome.plan, data, specs), data.test
    model = model_named(plan.model)
    reference = model_named(model.reference)
    optimum = OPTIMA[reference.name](data.rows, data.labels)

    def judged(model: Model, weights: Array) -> Figures:
        return scored(model, weights, test.x, test.y, data.schema)

    return RunResult(
        plan=plan,
        schema=data.schema,
        weights=outcome.weights,
        twin_weights=twin.weights,
        optimum_weights=optimum,
        scores=judged(model, outcome.weights),
        twin=judged(model, twin.weights),
        optimum=judged(reference, optimum),
        iterations=twin.iterations,
        costs=coordinator.costs,
        rows_by_party={name: shard.rows for name, shard in data.shards.items()},
        test_x=test.x,
        test_y=test.y,
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
