"""LOOKS AT SECRETS. One encrypted run of a cell, by the real roles' code, watched from inside.

Coordinator (`protocols.protocol`) and clients (`parties.party_protocol`) run as in a deployment,
without signatures and transport. What they exchange is seen with every client's secret at hand;
what clients encrypt is computed a second time, from their rows and their seeded noise, by the
functions that they use. Seconds are each role's own work on this machine, bytes are payloads
(messages without their headers).
"""

from __future__ import annotations

import time
import uuid
from collections import Counter, defaultdict
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from parties.data.schema import Schema
from parties.party_protocol import PartyProtocol, half_of
from protocols import agree
from protocols.errors import ParameterError, PrivacyError
from protocols.messages import Exchange
from protocols.plan import Member, RunPlan
from protocols.privacy.calibrate.calibration import calibrate
from protocols.protocol import Watch, phase_of, protocol_of
from sims.config import SimulationConfig
from sims.figures import figures_of
from sims.party_process import PartySpec
from sims.simulation import party_specs
from sims.studies.noise.exact import rms
from sims.studies.noise.grid import Cell
from sims.studies.noise.source import Source, draw_groups, open_pool, shared_out
from sims.studies.noise.stages import Stages, stages_of
from sims.studies.noise.store import Measurement
from sims.studies.noise.twins import plan_traffic, quality_of
from sims.twin import score
from sims.twins import twin_of

Floats = NDArray[np.float64]


class Clients:
    """All clients of a run in this process, and a clock on each."""

    def __init__(
        self, config: SimulationConfig, schema: Schema, specs: dict[str, PartySpec]
    ) -> None:
        self.specs = specs
        keys = {n: Ed25519PrivateKey.from_private_bytes(s.signing_key) for n, s in specs.items()}
        seeds = {name: agree.new_seed() for name in specs}
        members = tuple(
            Member(
                name=name,
                rows=spec.shard.rows,
                verify_key=keys[name].public_key().public_bytes_raw().hex(),
                commitment=agree.commitment(seeds[name]),
            )
            for name, spec in specs.items()
        )
        figures = figures_of(schema, (member.rows for member in members))
        found = calibrate(figures, config.wanted())
        self.plan: RunPlan = found.plan(uuid.uuid4().hex, members)
        self._seeds = {name: seed.hex() for name, seed in seeds.items()}
        self.seed = agree.joint_seed(self.plan, self._seeds)
        self.halves: dict[str, PartyProtocol] = {
            name: half_of(self.plan).open(
                self.plan, name, spec.shard, spec.noise_source(), keys[name]
            )
            for name, spec in specs.items()
        }
        self._seconds: dict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._bytes: Counter[str] = Counter()

    def drive(self, stages: Stages) -> Floats:
        """The whole protocol; the released weights."""
        watch = Watch(on_refresh=stages.on_refresh)
        protocol = protocol_of(self.plan)
        exchange: Exchange[Floats] = protocol.coordinate(self.plan, self.seed, self._seeds, watch)
        replies: Any = None
        phase, asked = "keys", dict[str, Any]()
        while True:
            started = time.perf_counter()
            try:
                ask = exchange.send(replies)
            except StopIteration as stop:
                weights: Floats = stop.value
                return weights
            finally:
                self._seconds["coordinator"][phase] += time.perf_counter() - started
            kind, _, index = ask.step.partition("/")
            phase, replies = phase_of(ask.step), {}
            for name, request in ask.bodies.items():
                started = time.perf_counter()
                reply = protocol.answer(self.halves[name], ask.step, request)
                self._seconds[name][phase] += time.perf_counter() - started
                self._bytes[name] += request.num_bytes + reply.num_bytes
                replies[name] = reply
            place = protocol.place(ask.step)
            if place.commits:  # what is asked for comes with the commitment to the reply
                asked[place.opened] = ask.bodies
            else:
                bodies = asked.pop(place.opened, ask.bodies)
                stages.step(kind, int(index or 0), bodies, replies)
            # What follows a refresh, or the contributions, is training.
            phase = "train" if phase in ("refresh", "encrypt") else phase

    def costs(self) -> dict[str, float]:
        """Seconds and bytes by role."""
        busiest = max(self.specs, key=lambda name: sum(self._seconds[name].values()))
        roles = {"party": self._seconds[busiest], "coordinator": self._seconds["coordinator"]}
        found = {f"seconds_{role}": sum(own.values()) for role, own in roles.items()}
        for phase in {phase for own in roles.values() for phase in own}:
            found |= {f"seconds_{role}_{phase}": own[phase] for role, own in roles.items()}
        found["bytes_party"] = float(max(self._bytes.values()))
        found["bytes_coordinator"] = float(self._bytes.total())
        return found

    def erase(self) -> None:
        """Forget every secret."""
        for half in self.halves.values():
            half.erase()


def measure_encrypted(cell: Cell, source: Source, seed: int) -> Measurement:
    """One run: noise of every stage, the difference to the twin, scores, costs."""
    pool = open_pool(source, cell.norm)
    rng = np.random.default_rng(cell.seed_words(seed))
    data, config = shared_out(pool, draw_groups(cell, pool, rng)), source.config(cell)
    specs = party_specs(config, data.shards, int(rng.integers(2**62)), "")
    try:
        clients = Clients(config, data.schema, specs)
    except (PrivacyError, ParameterError) as error:
        return Measurement(cell=cell, seed=seed, refusal=str(error))
    plan = clients.plan
    try:
        stages = stages_of(clients)
        weights = clients.drive(stages)
        stages.finish()
        off = rms(weights - twin_of(plan, data, specs).weights)
    finally:
        clients.erase()
    quality = score(weights, pool.test.x, pool.test.y)
    scores = {stages.release: off, **quality_of(source, quality)}
    return Measurement(
        cell=cell,
        seed=seed,
        values={**stages.values, **clients.costs(), **scores},
        predicted={**stages.predicted, **plan_traffic(plan)},
        courses=dict(stages.courses),
        facts={"T": plan.rounds, "rows": plan.num_rows, **stages.facts},
    )
