"""LOOKS AT SECRETS. One encrypted run of a cell, by the real roles' code, watched from inside.

Coordinator (`plan.protocol`) and clients (`verifier.party_protocol`) run as in a deployment,
without signatures and transport. What they exchange is seen with every client's secret at hand;
what clients encrypt is computed a second time, from their rows and their seeded noise, by the
functions that they use. Seconds are each role's own work on this machine, bytes are payloads
(messages without their headers).
"""

from __future__ import annotations

import time
import uuid
from collections import Counter, defaultdict
from contextlib import ExitStack
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.figures import figures_of
from parties.reader.schema import Schema
from parties.verifier.party_protocol import PartyProtocol, half_of
from protocols.errors import ParameterError, PrivacyError
from protocols.exchange.messages import Exchange
from protocols.plan.protocol import Watch, phase_of, protocol_of
from protocols.plan.run_plan import Member, RunPlan
from protocols.privacy.calibrate.calibration import calibrate
from protocols.steps import agree
from sims.exact import rms
from sims.lab.studies.noise.grid import Cell
from sims.lab.studies.noise.measurement import Measurement
from sims.lab.studies.noise.source import Source, draw_groups, open_pool, shared_out
from sims.lab.studies.noise.stages import Stages, stages_of
from sims.lab.studies.noise.twins import plan_traffic, quality_of
from sims.party_process import PartySpec
from sims.simulation import party_specs
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
        runs = {name: spec.build().run for name, spec in specs.items()}
        members = tuple(
            Member(
                name=name,
                rows=spec.shard.rows,
                verify_key=keys[name].public_key().public_bytes_raw().hex(),
                commitment=runs[name].commitment,
            )
            for name, spec in specs.items()
        )
        figures = figures_of(schema, (member.rows for member in members))
        found = calibrate(figures, config.wanted())
        self.plan: RunPlan = found.plan(uuid.uuid4().hex, members)
        self._open, self.halves = ExitStack(), dict[str, PartyProtocol]()
        for name, run in runs.items():
            run.account.booked = None  # no ledger counts a cell
            self._open.enter_context(run.private)
            # In their own order: what is encrypted is computed again.
            rows = run.private.keep(run.rows)
            self.halves[name] = half_of(self.plan).open(self.plan, rows, run)
        plan, commitments = self.plan.digest(), agree.commitments(self.plan)
        signed = {name: run.agree(plan, commitments) for name, run in runs.items()}
        signatures = {name: signature for name, (_, signature) in signed.items()}
        self._seeds = {name: run.reveal(signatures).hex() for name, run in runs.items()}
        sheets, _ = next(iter(signed.values()))
        self.seed = agree.agreement(self.plan, sheets).joint_seed(self._seeds)
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
                self._bytes[name] += sum(map(len, (*request.blobs, *reply.blobs)))
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
        self._open.close()


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
