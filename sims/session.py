"""One session among simulated parties: key exchange, rounds and end of one plan."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coordinator.coordinator import Coordinator, Observer, Outcome
from coordinator.costs import Costs
from coordinator.log import recorded
from protocols.messages import public_bytes
from protocols.plan import Member, RunPlan
from protocols.second_moment import Evidence
from protocols.transcript import Transcript
from protocols.workers import Engine
from sims.party_process import PartySpec, peak_memory_mb, run_parties


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One session that came to its end."""

    outcome: Outcome
    costs: Costs
    peak_memory: float
    head: str


def session_of(
    *,
    specs: Mapping[str, PartySpec],
    signing_key: Ed25519PrivateKey,
    make_plan: Callable[[str, tuple[Member, ...]], RunPlan],
    transcript: Path | None,
    messages: Path | None,
    observer: Observer,
    processes: bool,
    evidence: Evidence | None = None,
    engine: Engine | None = None,
) -> Ran:
    """Key exchange, rounds and end of one plan among parties of these specs.

    engine: workers for groups of encrypted rows.

    Raises:
        CohortError: the protocol was aborted.
    """
    name, log = uuid.uuid4().hex, Transcript(transcript)
    verify_keys = {party: spec.verify_key for party, spec in specs.items()}
    coordinator = Coordinator(
        session=name,
        signing_key=signing_key,
        party_keys=verify_keys,
        make_plan=lambda members: make_plan(name, members),
        transcript=log,
        observer=observer,
        evidence=evidence,
        engine=engine,
    )
    keep = partial(
        recorded,
        folder=messages,
        coordinator_key=public_bytes(signing_key),
        parties=verify_keys,
        durable=False,
    )
    try:
        outcome, memory = run_parties(
            name, specs, lambda ask: coordinator.run(keep(ask)), processes
        )
    finally:
        log.close()
    return Ran(
        outcome=outcome,
        costs=coordinator.costs,
        peak_memory=max(memory, peak_memory_mb()),
        head=log.head,
    )
