"""One federated run in this process: the same roles, messages and code as a deployment."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from coordinator.coordinator import Coordinator, Observer, Outcome
from parties.flower_app import Handler
from parties.party import Party, draw_noise
from parties.policy import Policy
from protocols.ckks.circuit import gradient_levels
from protocols.ckks.packing import Layout
from protocols.ckks.parameters import CkksParameters, choose_parameters
from protocols.messages import new_signing_key, public_bytes
from protocols.plan import Member, RunPlan
from protocols.transcript import Transcript
from sims.config import SimulationConfig
from sims.local import run_session
from sims.party_process import PartyProcess, PartySpec, peak_memory_mb
from sims.prepare import PreparedData, prepare
from sims.result import RunResult
from sims.run_folder import RunFolder
from sims.setting import TrainingSetting, choose_setting
from sims.twin import fit_optimum, run_twin, score


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
    setting = choose_setting(
        config,
        rows=len(data.labels),
        num_features=data.schema.num_features,
        norm_bound=data.schema.norm_bound,
        parties=len(data.shards),
    )
    params = choose_ckks(config, setting)
    # Every refusal that depends on public figures only comes before the first key.
    check_layout(setting, data, params)
    folder = RunFolder.create(config.out, rounds=setting.rule.rounds) if config.out else None
    with _recording(folder) as record:
        session, signing_key = uuid.uuid4().hex, new_signing_key()
        specs = party_specs(config, data, setting, root, public_bytes(signing_key))
        transcript = Transcript(folder.transcript_path if folder else None)

        def both(event: Event) -> None:
            record(event)
            notify(event)

        coordinator = Coordinator(
            session=session,
            signing_key=signing_key,
            party_keys={name: _verify_key(spec) for name, spec in specs.items()},
            make_plan=lambda members: make_plan(config, session, data, setting, params, members),
            transcript=transcript,
            observer=Observer(
                on_phase=lambda phase: both(Event("phase", phase)),
                on_progress=lambda phase, done, total: both(Event("progress", phase, done, total)),
            ),
        )
        try:
            outcome, party_memory = _run(config, session, coordinator, specs)
        finally:
            transcript.close()
        both(Event("phase", "twin"))
        result = compare(
            data,
            setting,
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


def choose_ckks(config: SimulationConfig, setting: TrainingSetting) -> CkksParameters:
    """Smallest parameters for the circuit; a ring without security only when asked for.

    Raises:
        ParameterError: no secure ring fits, or the asked ring is insecure.
    """
    levels = max(gradient_levels(setting.link.polynomial), setting.rule.levels())
    secure = config.profile == "secure"
    return choose_parameters(levels, secure=secure, ring_dim=config.ring_dim)


def check_layout(setting: TrainingSetting, data: PreparedData, params: CkksParameters) -> Layout:
    """The packing.

    Raises:
        ParameterError: too many features or iterations for the ring.
    """
    return Layout(
        num_slots=params.num_slots,
        num_features=data.schema.num_features,
        rows_by_party=tuple(shard.rows for shard in data.shards.values()),
        rounds=setting.rule.rounds,
    )


def make_plan(
    config: SimulationConfig,
    session: str,
    data: PreparedData,
    setting: TrainingSetting,
    params: CkksParameters,
    members: tuple[Member, ...],
) -> RunPlan:
    """The plan that all parties agree to."""
    schema = data.schema
    return RunPlan(
        session=session,
        members=members,
        schema={"digest": schema.digest(), "features": list(schema.feature_names)},
        num_features=schema.num_features,
        link=setting.link.polynomial,
        update=setting.rule.to_dict(),
        ckks=params,
        privacy=setting.privacy,
        profile=config.profile,
    )


def party_specs(
    config: SimulationConfig,
    data: PreparedData,
    setting: TrainingSetting,
    root: int,
    coordinator_key: str,
) -> dict[str, PartySpec]:
    """One spec per party; each consents to exactly the promised privacy."""
    policy = Policy(
        max_epsilon=config.epsilon,
        max_delta=config.delta,
        min_colluders=config.colluders,
        allow_insecure=config.profile != "secure",
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
        )
    return specs


def _verify_key(spec: PartySpec) -> str:
    return public_bytes(Ed25519PrivateKey.from_private_bytes(spec.signing_key))


def _run(
    config: SimulationConfig,
    session: str,
    coordinator: Coordinator,
    specs: Mapping[str, PartySpec],
) -> tuple[Outcome, float]:
    """Outcome and the largest memory of a party's process [MB], 0 in one process."""
    members: dict[str, Party | PartyProcess] = {}
    outcomes: list[Outcome] = []
    try:
        for name, spec in specs.items():
            members[name] = PartyProcess(spec) if config.processes else spec.build()
        handlers: dict[str, Handler] = dict(members)
        run_session(session, lambda ask: outcomes.append(coordinator.run(ask)), handlers)
    finally:
        for member in members.values():
            member.close()
    memory = [m.peak_memory_mb for m in members.values() if isinstance(m, PartyProcess)]
    return outcomes[0], max(memory, default=0.0)


def compare(
    data: PreparedData,
    setting: TrainingSetting,
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
    plan, weights = outcome.plan, outcome.weights
    x, y, test = data.rows, data.labels, data.test
    total_noise = sum(draw_noise(plan, spec.noise_source()) for spec in specs.values())
    twin_weights, iterations = run_twin(plan, x, y, total_noise, test.x, test.y)
    optimum_weights = fit_optimum(x, y)
    warnings = [*data.notes, *setting.notes]
    if iterations[-1].largest_logit > plan.link.radius:
        warnings.append(
            f"the largest logit of the twin, {iterations[-1].largest_logit:.3g}, left the sigmoid "
            f"polynomial's interval [-{plan.link.radius:g}, {plan.link.radius:g}]: widen it "
            "(--interval), take fewer iterations or a smaller learning rate"
        )
    return RunResult(
        plan=plan,
        schema=data.schema,
        weights=weights,
        twin_weights=twin_weights,
        optimum_weights=optimum_weights,
        scores=score(weights, test.x, test.y),
        twin=score(twin_weights, test.x, test.y),
        optimum=score(optimum_weights, test.x, test.y),
        iterations=iterations,
        costs=coordinator.costs,
        rows_by_party={name: shard.rows for name, shard in data.shards.items()},
        test_x=test.x,
        test_y=test.y,
        clamped={name: {"notes": s.counts.summary()} for name, s in data.shards.items()},
        warnings=tuple(warnings),
        noise=noise,
        peak_memory_mb=peak_memory,
        total_seconds=total_seconds,
        transcript_head=transcript_head,
        certificate=setting.certificate.to_dict() if setting.certificate else None,
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
