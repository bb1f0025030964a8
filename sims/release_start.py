"""Session one of a run with `--release-start`: the noisy gradient at zero, opened and charged.

It runs in the secure-aggregation protocol between the same parties, before the setting of the main
run is chosen, because that setting depends on what it releases.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coordinator.coordinator import Coordinator, Outcome
from parties.party import Finished, Party
from protocols.gradients import GradientPlan
from protocols.messages import public_bytes
from protocols.names import SECURE_AGGREGATION
from protocols.privacy.budget import MECHANISM_SHARE, Budget
from protocols.privacy.gdp import epsilon_for_mu
from protocols.privacy.shares import NoiseSplit
from protocols.privacy.start_gradient import FAILURE_SHARE, WORST, StartRelease, noise_for
from protocols.privacy.sum_certificate import MECHANISM_SHARE as SUM_SHARE
from protocols.start import RULE, StartGradient
from protocols.transcript import Transcript
from sims.config import SimulationConfig
from sims.local import run_session
from sims.party_process import PartyProcess, PartySpec
from sims.prepare import PreparedData
from sims.recipe_gradients import GradientRecipe


@dataclass(frozen=True, kw_only=True)
class Started:
    """start: for the main run's plan; seen: what each party saw, by name."""

    start: StartGradient
    seen: Mapping[str, Finished]


def release_noise(
    config: SimulationConfig, *, parties: int, rows: int, features: int, norm_bound: float
) -> float:
    """sigma_0 that costs the share `release_start` of the budget's mu^2."""
    failure = FAILURE_SHARE * config.delta
    budget = Budget(
        epsilon=config.epsilon,
        delta=config.delta,
        split=NoiseSplit(parties=parties, colluders=config.colluders),
        accounting=config.accounting,  # type: ignore[arg-type]
        mechanism_share=MECHANISM_SHARE[config.accounting],  # type: ignore[index]
        spent_delta=failure,
    )
    share = config.release_start or 0.0
    return noise_for(
        share=share, budget=budget, norm_bound=norm_bound, rows=rows, features=features
    )


def assumed_release(
    config: SimulationConfig,
    d: float,
    *,
    parties: int,
    rows: int,
    features: int,
    norm_bound: float,
) -> StartRelease:
    """A release from which `d` follows, for planning; the largest that gives less, if none does."""
    sigma = release_noise(
        config, parties=parties, rows=rows, features=features, norm_bound=norm_bound
    )
    blank = StartRelease(norm=0.0, sigma=sigma, failure=FAILURE_SHARE * config.delta)
    split = NoiseSplit(parties=parties, colluders=config.colluders)
    return replace(blank, norm=max(0.0, d * norm_bound - blank.margin(split)))


def choose_session(config: SimulationConfig, data: PreparedData) -> GradientRecipe:
    """The session's recipe: one step of rate 1 on rows that no clip changes."""
    schema = data.schema
    rows = len(data.labels)
    sigma = release_noise(
        config,
        parties=len(data.shards),
        rows=rows,
        features=schema.num_features,
        norm_bound=schema.norm_bound,
    )
    session = replace(
        config,
        protocol=SECURE_AGGREGATION,
        update=str(RULE.to_dict()["kind"]),
        rounds=RULE.rounds,
        learning_rate=RULE.learning_rate,
        clip=WORST * schema.norm_bound,
        degree=None,
        accounting="exact",
        release_start=None,
        epsilon=epsilon_for_mu(mu=schema.norm_bound / rows / sigma, delta=SUM_SHARE * config.delta),
    )
    return GradientRecipe.choose(session, data)


def worst_release(config: SimulationConfig, recipe: GradientRecipe) -> StartRelease:
    """What the session costs, if it teaches nothing: d stays 1/2."""
    return StartRelease(
        norm=WORST * recipe.data.schema.norm_bound,
        sigma=recipe.setting.noise_scales[0],
        failure=FAILURE_SHARE * config.delta,
    )


def noise_root(root: int) -> int:
    """Seed of the session's noise streams, which the main run must not repeat."""
    return int.from_bytes(hashlib.sha256(f"{root}/start".encode()).digest(), "little")


def run_start(
    config: SimulationConfig,
    recipe: GradientRecipe,
    specs: Mapping[str, PartySpec],
    signing_key: Ed25519PrivateKey,
) -> Started:
    """Run the session; specs: of its parties.

    Raises:
        ProtocolError: a party refused, for example because its ledger would be overdrawn.
    """
    session = uuid.uuid4().hex
    coordinator = Coordinator(
        session=session,
        signing_key=signing_key,
        party_keys={name: verify_key(spec) for name, spec in specs.items()},
        make_plan=lambda members: recipe.make_plan(session, members),
        transcript=Transcript(),
    )
    members: dict[str, Party | PartyProcess] = {}
    outcomes: list[Outcome] = []
    seen: dict[str, Finished] = {}
    try:
        for name, spec in specs.items():
            members[name] = PartyProcess(spec) if config.processes else spec.build()
        run_session(session, lambda ask: outcomes.append(coordinator.run(ask)), dict(members))
        for name, member in members.items():
            if member.finished is not None:
                seen[name] = member.finished
    finally:
        for member in members.values():
            member.close()
    plan, weights = outcomes[0].plan, outcomes[0].weights
    assert isinstance(plan, GradientPlan)  # noqa: S101
    start = StartGradient(
        plan=plan,
        released=tuple(float(weight) for weight in weights),
        failure=FAILURE_SHARE * config.delta,
    )
    return Started(start=start, seen=seen)


def verify_key(spec: PartySpec) -> str:
    """A party's verification key."""
    return public_bytes(Ed25519PrivateKey.from_private_bytes(spec.signing_key))
