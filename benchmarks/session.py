"""One real run in this process: coordinator, parties, signed messages, no transport between them.

What it measures is `Costs`, as every run does: the coordinator's own seconds per iteration, and the
bytes of every message.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from benchmarks.cases import Array, Case
from coordinator.coordinator import Coordinator
from coordinator.costs import Costs
from parties.data.schema import Label, NumericColumn, Schema
from parties.data.shard import ClampCounts, Shard
from parties.party import Party
from parties.policy import Policy
from protocols.messages import new_signing_key, public_bytes
from protocols.plan import Member
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.randomness import SystemRandomness
from protocols.rows import RowsPlan
from protocols.transcript import Transcript
from sims.config import SimulationConfig


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A finished run. plan: with placeholders of the usual length; keys_seconds: the ceremony."""

    plan: RowsPlan
    costs: Costs
    weights: Array


def plan_of(case: Case) -> RowsPlan:
    """The plan that a run of this shape would have, without privacy noise."""
    profile = "secure" if case.secure else "fast-insecure"
    config = SimulationConfig(
        parties=case.parties,
        update=case.update,
        rounds=case.rounds,
        degree=case.degree,
        profile=profile,
    )
    figures = PublicFigures.even(rows=case.rows, features=case.features, parties=case.parties)
    return cast(RowsPlan, calibrate(figures, Wanted.of(config)).template)


def run(case: Case, plan: RowsPlan | None = None) -> Measured:
    """The whole protocol on the case's data."""
    plan = plan or plan_of(case)
    x, y = case.data()
    schema = _schema(case.features)
    session, coordinator_key = uuid.uuid4().hex, new_signing_key()
    keys = {name: new_signing_key() for name in plan.names}
    parties: dict[str, Party] = {}
    for name, rows, labels in zip(plan.names, _split(plan, x), _split(plan, y), strict=True):
        parties[name] = Party(
            name=name,
            shard=Shard(x=rows, y=labels, counts=ClampCounts(rows=len(labels)), schema=schema),
            signing_key=keys[name],
            coordinator_key=public_bytes(coordinator_key),
            policy=Policy(allow_insecure=not case.secure, accept_unbounded=True),
            randomness=SystemRandomness(),
        )

    def make_plan(members: tuple[Member, ...]) -> RowsPlan:
        digest = {**plan.schema, "digest": schema.digest()}
        return replace(plan, session=session, members=members, schema=digest)

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        return {name: parties[name].handle(data) for name, data in outgoing.items()}

    coordinator = Coordinator(
        session=session,
        signing_key=coordinator_key,
        party_keys={name: public_bytes(key) for name, key in keys.items()},
        make_plan=make_plan,
        transcript=Transcript(),
    )
    outcome = coordinator.run(ask)
    return Measured(plan=plan, costs=coordinator.costs, weights=outcome.weights)


def _schema(features: int) -> Schema:
    columns = tuple(NumericColumn(name=f"column_{k:03d}", low=-1, high=1) for k in range(features))
    label = Label(name="y", positive="1", negative="0")
    return Schema(columns=columns, label=label, scaling="range")


def _split(plan: RowsPlan, values: Array) -> Sequence[Array]:
    return np.split(values, np.cumsum([member.rows for member in plan.members])[:-1])
