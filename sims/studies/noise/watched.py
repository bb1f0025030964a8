"""LOOKS AT SECRETS. One encrypted run of a cell, by the real roles' code, watched from inside.

Coordinator (`protocols.protocol`) and clients (`parties.registry`) run as in a deployment, without
signatures and transport; hooks note what they encrypt, refresh and open. Seconds are each role's
own work on this machine, bytes are payloads (messages without their headers).
"""

from __future__ import annotations

import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.objectives import open_contributor
from parties.party_protocol import PartyProtocol
from parties.registry import open_half
from protocols import agree
from protocols.errors import ParameterError, PrivacyError
from protocols.messages import Body, Exchange
from protocols.plan import Member, RunPlan
from protocols.protocol import Watch
from protocols.registry import phase_of, protocol_of
from protocols.rows import RowsPlan
from sims.config import SimulationConfig
from sims.figures import calibrated
from sims.simulation import party_specs
from sims.studies.noise.grid import Cell
from sims.studies.noise.measurement import Measurement
from sims.studies.noise.source import Source, draw_groups, open_pool, prepared_of
from sims.studies.noise.traffic import plan_traffic
from sims.twin import score
from sims.twins import twin_of

Floats = np.ndarray[Any, np.dtype[np.float64]]
# (step, requests, replies): called when all clients have answered.
OnStep = Callable[[str, Mapping[str, Body], Mapping[str, Body]], None]


class Clients:
    """All clients of a run in this process, and a clock on each."""

    def __init__(self, config: SimulationConfig, data: Any, root: int) -> None:
        self.specs = party_specs(config, data, root, "")
        keys = {
            name: Ed25519PrivateKey.from_private_bytes(spec.signing_key)
            for name, spec in self.specs.items()
        }
        seeds = {name: agree.new_seed() for name in self.specs}
        members = tuple(
            Member(
                name=name,
                rows=spec.shard.rows,
                verify_key=keys[name].public_key().public_bytes_raw().hex(),
                commitment=agree.commitment(seeds[name]),
            )
            for name, spec in self.specs.items()
        )
        found = calibrated(config, data.schema, (member.rows for member in members))
        self.plan: RunPlan = found.plan(uuid.uuid4().hex, members)
        self.seeds = {name: seed.hex() for name, seed in seeds.items()}
        self.seed = agree.joint_seed(self.plan, self.seeds)
        self.duties: dict[str, PartyProtocol] = {
            name: open_half(
                self.plan, name, spec.shard, spec.noise_source(), keys[name], open_contributor
            )
            for name, spec in self.specs.items()
        }
        self.seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.bytes: Counter[str] = Counter()

    def drive(self, on_step: OnStep) -> Floats:
        """The whole protocol; the released weights."""
        watch = Watch()
        exchange: Exchange[Floats] = protocol_of(self.plan).coordinate(
            self.plan, self.seed, self.seeds, watch
        )
        replies: Any = None
        phase = "keys"
        try:
            while True:
                started = time.perf_counter()
                try:
                    ask = exchange.send(replies)
                finally:
                    self.seconds["coordinator"][phase] += time.perf_counter() - started
                phase = phase_of(ask.step)
                replies = {n: self._answer(n, ask.step, b) for n, b in ask.bodies.items()}
                on_step(ask.step, ask.bodies, replies)
                # What follows a refresh, or the contributions, is training.
                phase = "train" if phase in ("refresh", "encrypt") else phase
        except StopIteration as stop:
            weights: Floats = stop.value
            return weights

    def _answer(self, name: str, step: str, request: Body) -> Body:
        started = time.perf_counter()
        reply = self.duties[name].answer(step, request)
        self.seconds[name][phase_of(step)] += time.perf_counter() - started
        self.bytes[name] += request.num_bytes + reply.num_bytes
        return reply

    def costs(self) -> dict[str, float]:
        """Seconds and bytes by role."""
        own = self.seconds["coordinator"]
        busiest = max(self.specs, key=lambda name: sum(self.seconds[name].values()))
        theirs = self.seconds[busiest]
        found = {
            "seconds_party": sum(theirs.values()),
            "seconds_coordinator": sum(own.values()),
            "bytes_party": max(self.bytes.values()),
            "bytes_coordinator": sum(self.bytes.values()),
        }
        for phase in {*own, *theirs}:
            found[f"seconds_party_{phase}"] = theirs[phase]
            found[f"seconds_coordinator_{phase}"] = own[phase]
        return {name: float(value) for name, value in found.items()}

    def erase(self) -> None:
        """Forget every secret."""
        for duty in self.duties.values():
            duty.erase()


def measure_encrypted(cell: Cell, source: Source, seed: int) -> Measurement:
    """One run: noise of every stage, the difference to the twin, scores, costs."""
    pool = open_pool(source, cell.norm)
    rng = np.random.default_rng(cell.seed_words(seed))
    data = prepared_of(pool, draw_groups(cell, pool, rng))
    root = int(rng.integers(2**62))
    try:
        clients = Clients(source.config(cell), data, root)
    except (PrivacyError, ParameterError) as error:
        return Measurement(cell=cell, seed=seed, refusal=str(error))
    try:
        return _measure(cell, seed, clients, data, pool.test)
    finally:
        clients.erase()


def _measure(cell: Cell, seed: int, clients: Clients, data: Any, test: Any) -> Measurement:
    plan = clients.plan
    if isinstance(plan, RowsPlan):
        from sims.studies.noise.watched_rows import watch_rows

        weights, stages = watch_rows(clients, plan)
    else:
        from sims.studies.noise.watched_sums import watch_sums

        weights, stages = watch_sums(clients, plan)
    twin = twin_of(plan, data, clients.specs)
    error = float(np.sqrt(np.mean((weights - twin.weights) ** 2)))
    name = "release" if isinstance(plan, RowsPlan) else "sum_release"
    quality = score(weights, test.x, test.y)
    return Measurement(
        cell=cell,
        seed=seed,
        values={
            **stages.values,
            **clients.costs(),
            name: error,
            "accuracy": quality.accuracy,
            "auc": quality.auc,
        },
        predicted={**stages.predicted, **plan_traffic(plan)},
        courses=stages.courses,
        facts={"T": plan.rounds, "rows": plan.num_rows, **stages.facts},
    )
