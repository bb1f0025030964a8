"""LOOKS AT SECRETS. One encrypted run of a cell, by the real roles' code, watched from inside.

Coordinator (`protocols.protocol`) and clients (`parties.registry`) run as in a deployment, without
signatures and transport. What they exchange is looked at with every client's secret at hand; what
clients encrypt is computed a second time, from their rows and their seeded noise, by the functions
that they use. Seconds are each role's own work on this machine, bytes are payloads (messages
without their headers).
"""

from __future__ import annotations

import math
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from parties.data.schema import Schema
from parties.objectives import open_contributor
from parties.party_protocol import PartyProtocol
from parties.registry import half_of
from protocols import agree, gradients, keygen
from protocols.aggregate import setup
from protocols.aggregate.cipher import CoordinatorCipher
from protocols.aggregate.wire import sum_messages
from protocols.circuits import circuit_of
from protocols.ckks import residues as rns
from protocols.ckks.column_map import ColumnMap
from protocols.ckks.context import CkksContext
from protocols.ckks.evaluator import EncryptedVector
from protocols.ckks.packing import Layout
from protocols.decrypt import DECRYPTION_TOWERS
from protocols.errors import ParameterError, PrivacyError
from protocols.gradients import GradientPlan
from protocols.messages import Body, Exchange
from protocols.plan import Member, RunPlan
from protocols.protocol import Watch
from protocols.registry import phase_of, protocol_of
from protocols.rows import RowsPlan
from protocols.train import PlainGradient
from protocols.wire import sum_blobs
from sims.config import SimulationConfig
from sims.figures import calibrated
from sims.party_process import PartySpec
from sims.simulation import party_specs
from sims.studies.noise import components
from sims.studies.noise.exact import (
    JointSecret,
    at_slots,
    automorphism,
    coefficients,
    evaluations,
    joined,
    residues_of_slots,
    rms,
)
from sims.studies.noise.grid import Cell
from sims.studies.noise.source import Source, draw_groups, open_pool, shared_out
from sims.studies.noise.store import Measurement
from sims.studies.noise.twins import plan_traffic, quality_of
from sims.twin import score
from sims.twins import twin_of

Floats = NDArray[np.float64]
Bodies = Mapping[str, Body]
Vectors = Sequence[EncryptedVector]


class Stages:
    """What one watched run shows: noise by component, measured and predicted, and courses."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.values: dict[str, float] = {}
        self.predicted: dict[str, float] = {}
        self.courses: dict[str, list[float]] = defaultdict(list)
        self.facts: dict[str, Any] = {}

    def note(self, name: str, measured: float, predicted: float) -> None:
        """One component."""
        self.values[name], self.predicted[name] = measured, predicted

    def step(self, kind: str, index: int, asked: Bodies, replies: Bodies) -> None:
        """All clients have answered the step kind/index."""

    def on_refresh(self, before: Vectors, after: Vectors) -> None:
        """The coordinator has refreshed some ciphertexts; its clock is running."""

    def finish(self) -> None:
        """The run is over."""


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
        found = calibrated(config, schema, (member.rows for member in members))
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
        coordinate = protocol_of(self.plan).coordinate
        exchange: Exchange[Floats] = coordinate(self.plan, self.seed, self._seeds, watch)
        replies: Any = None
        phase = "keys"
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
                reply = self.halves[name].answer(ask.step, request)
                self._seconds[name][phase] += time.perf_counter() - started
                self._bytes[name] += request.num_bytes + reply.num_bytes
                replies[name] = reply
            stages.step(kind, int(index or 0), ask.bodies, replies)
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
    specs = party_specs(config, data, int(rng.integers(2**62)), "")
    try:
        clients = Clients(config, data.schema, specs)
    except (PrivacyError, ParameterError) as error:
        return Measurement(cell=cell, seed=seed, refusal=str(error))
    plan = clients.plan
    name = "release" if isinstance(plan, RowsPlan) else "sum_release"
    try:
        stages = RowStages(clients) if isinstance(plan, RowsPlan) else SumStages(clients)
        weights = clients.drive(stages)
        stages.finish()
        off = rms(weights - twin_of(plan, data, specs).weights)
    finally:
        clients.erase()
    quality = score(weights, pool.test.x, pool.test.y)
    scores = {name: off, **quality_of(source, quality)}
    return Measurement(
        cell=cell,
        seed=seed,
        values={**stages.values, **clients.costs(), **scores},
        predicted={**stages.predicted, **plan_traffic(plan)},
        courses=dict(stages.courses),
        facts={"T": plan.rounds, "rows": plan.num_rows, **stages.facts},
    )


# -- secure aggregation ---------------------------------------------------------------------------


class SumStages(Stages):
    """The opening key's error, and that of every opened sum.

    What clients sent is computed a second time, from their rows and noise; what the coordinator
    opened, from the messages.
    """

    def __init__(self, clients: Clients) -> None:
        super().__init__(clients)
        plan = clients.plan
        if not isinstance(plan, GradientPlan):
            raise AssertionError(f"protocol={plan.kind!r} is not watched")
        self._plan, self._sources = plan, {n: s.noise_source() for n, s in clients.specs.items()}
        self._own = {
            name: open_contributor(plan, name, spec.shard, self._sources[name])
            for name, spec in clients.specs.items()
        }
        self.facts = {"ring_dim": plan.cipher.ring_dim, "scale_bits": plan.cipher.scale_bits}

    def step(self, kind: str, index: int, asked: Bodies, replies: Bodies) -> None:
        """The keys, and every round's sum."""
        plan, cipher = self._plan, self._plan.cipher
        derived = components.opened(len(plan.members))
        if kind == setup.OPENING_KEY:
            self._key = setup.unmask(cipher, replies)
            self.note("opening_key", rms(self._key), derived)
        elif kind == "round":
            point = gradients.read_point(plan, asked[plan.names[0]], plan.length)
            sent: Floats = np.zeros(plan.length)
            for name in plan.names:
                values = self._own[name].contribution(plan.queries[index], index, point)
                sent += plan.on_grid(index, values) + plan.draw_noise(index, self._sources[name])
            coordinator = CoordinatorCipher(cipher, plan.session, self.clients.seed, self._key)
            sums = sum_messages(cipher, replies, plan.names, plan.length)
            unit, course = 2.0**-cipher.scale_bits, self.courses["opened"]
            course.append(rms((coordinator.open(index, sums) - sent) / unit))
            self.note("opened", rms(course), derived)
            self.note("opened_value", rms(course) * unit, derived * unit)


# -- encrypted rows -------------------------------------------------------------------------------


class RowStages(Stages):
    """Turns messages and refreshed ciphertexts into noise, as the run goes on."""

    def __init__(self, clients: Clients) -> None:
        super().__init__(clients)
        plan = clients.plan
        if not isinstance(plan, RowsPlan):
            raise AssertionError(f"protocol={plan.kind!r} is not watched")
        self._plan, self._parties, self._n = plan, len(plan.members), plan.ckks.ring_dim
        self._context = CkksContext(plan.ckks, plan.session)
        self._noise = {
            name: plan.draw_noise(spec.noise_source()) for name, spec in clients.specs.items()
        }
        self._refreshes: list[tuple[Vectors, Vectors]] = []
        self.facts = {
            "ring_dim": self._n,
            "depth": plan.ckks.depth,
            "security_bits": plan.ckks.security_bits,
        }

    def step(self, kind: str, index: int, asked: Bodies, replies: Bodies) -> None:
        """Keys, contributions, shares of the decryption."""
        if kind == "keys":
            states = [half.state(lambda secret: secret) for half in self.clients.halves.values()]
            self._secret = JointSecret(self._context, [state.blobs[1] for state in states])
            derived = components.secret(self._parties)
            self.note("secret", rms(self._secret.coefficients), derived)
        if kind in ("keys", "relinearise") or (kind == "rotations" and index == 0):
            self._keys(kind, asked, replies)
        elif kind == "contribute":
            self._contributions(replies)
        elif kind == "decrypt":
            self._decryption(asked, replies)

    # -- keys: b + a s, or b + a s(X^(1/g)) of a rotation by g ----------------------------------

    def _key(self, name: str, derived: float, row: int, b: Any, a: Any, turn: int = 1) -> None:
        """Its error at one prime; of evaluation keys at the last, where what they switch is zero.

        row: of the first digit, of the residues b and a.
        """
        prime = self._context.extended_primes[row]
        turned = automorphism(self._secret.coefficients, pow(turn, -1, 2 * self._n))
        b, a = (residues[row].astype(object) for residues in (b, a))
        error = coefficients((b + a * evaluations(turned, prime)) % prime, prime)
        self.note(name, rms(error), derived)

    def _keys(self, kind: str, asked: Bodies, replies: Bodies) -> None:
        """The public key, the run's first rotation key, the relinearisation key."""
        context, names, seed, n = self._context, self._plan.names, self.clients.seed, self._n
        parties, last = self._parties, len(context.extended_primes) - 1
        primes = context.primes if kind == "keys" else context.key_primes
        b = sum_blobs(replies, names, 0, primes, n)
        if kind == "keys":
            a = context.uniform_polynomial(seed, keygen.PUBLIC_KEY)
            self._key("public_key", components.public_key(parties), 0, b, a)
        elif kind == "rotations":
            index = self._plan.rotation_chunks[0][0]
            a = context.uniform_key_half(seed, keygen.rotation_label(index))
            turn = int(context.cc.FindAutomorphismIndex(index))
            self._key("rotation_key", components.rotation_key(parties), last, b, a, turn)
        else:  # a is H1, which the request carries
            a = rns.unpack(asked[names[0]].blobs[1], primes, n)
            derived = components.relinearisation_key(parties, n)
            self._key("relinearisation_key", derived, last, b, a)

    # -- ciphertexts --------------------------------------------------------------------------

    def _contributions(self, replies: Bodies) -> None:
        """The last side ciphertext: of one client, and summed over all."""
        context, names, both = self._context, self._plan.names, self._context.primes * 2
        messages = []
        for name in names:
            shard = self.clients.specs[name].shard
            _, slots = circuit_of(self._plan).pack(name, shard.x, shard.y, self._noise[name])
            if len(slots) != len(replies[name].blobs):
                raise AssertionError("a client encrypted something that it did not send")
            messages.append(residues_of_slots(context, slots[-1]))
        last = {name: Body(blobs=body.blobs[-1:]) for name, body in replies.items()}
        one = rns.unpack(last[names[0]].blobs[0], both, self._n)
        noise = rms(self._secret.noise(np.split(one, 2), messages[0]))
        derived = components.encryption(self._parties, self._n)
        self.note("encryption", noise, derived)
        total = messages[0]
        for message in messages[1:]:
            total = rns.add(total, message, context.primes)
        summed = sum_blobs(last, names, 0, both, self._n)
        noise = rms(self._secret.noise(np.split(summed, 2), total))
        self.note("encryption_sum", noise, math.sqrt(self._parties) * derived)

    def _decryption(self, asked: Bodies, replies: Bodies) -> None:
        """The flooding of all clients together."""
        plan, prime = self._plan, self._context.primes[0]
        low = self._context.primes[:DECRYPTION_TOWERS]
        c1 = rns.unpack(asked[plan.names[0]].blobs[0], low, self._n)
        shares = sum_blobs(replies, plan.names, 0, low, self._n)
        flooded = rms(self._secret.phase(shares[0], -c1[0].astype(object), prime))
        bound, scale = plan.model_error_std(), 2.0**plan.ckks.scale_bits
        self.note("flooding", flooded, components.flooding(self._parties, bound))
        released = components.release(self._parties, bound, self._n, scale, plan.unit)
        self.predicted["release"] = released

    def on_refresh(self, before: Vectors, after: Vectors) -> None:
        """To be looked at later."""
        self._refreshes.append((before, after))

    def finish(self) -> None:
        """What a refresh through a map adds to its first ciphertext; every iterate."""
        for step, (before, after) in enumerate(self._refreshes):
            column_map = self._plan.column_maps(step)[0]
            if column_map is not None:
                added = self._added(before[0].cts[0], after[0].cts[0], column_map)
                self.courses["refresh"].append(rms(added))
        derived = components.refresh(self._parties, self._n)
        self.note("refresh", rms(self.courses["refresh"]), derived)
        # Refreshes of a preconditioner's inversion come first.
        iterates = self._refreshes[-self._plan.rounds :]
        for t, ((_, after), twin) in enumerate(zip(iterates, self._twin(), strict=True)):
            self._iterate(t, after[0], twin)

    def _added(self, before: Any, after: Any, column_map: ColumnMap) -> Floats:
        """m' - T(m) / q, q the prime that is divided by; m, m' the messages before and after."""
        context, towers = self._context, 2
        p, r, *_, q = context.primes
        m, fresh = (
            self._secret.opened(context.polynomials_of(ct), towers) for ct in (before, after)
        )
        mapped = column_map.apply(m, (p, r), context.primes[-1]).astype(object)
        rows = [
            (q * new - old) % prime
            for new, old, prime in zip(fresh.astype(object), mapped, (p, r), strict=True)
        ]
        # |q m' - T(m)| is some hundred times q: two primes hold it.
        added: Floats = (joined(rows, (p, r)) / q).astype(float)
        return added

    # -- iterates -----------------------------------------------------------------------------

    def _twin(self) -> list[Floats]:
        """The first vector that the refresh after every iteration makes; at last the weights."""
        plan, rule = self._plan, self._plan.rule
        shards = [spec.shard for spec in self.clients.specs.values()]
        x = np.concatenate([shard.x for shard in shards])
        y = np.concatenate([shard.y for shard in shards])
        noise = np.sum(list(self._noise.values()), axis=0)
        inverse = plan.curvature.preconditioner(x) if plan.curvature else 1.0
        gradient: Any = PlainGradient(x, y, noise, plan.link, inverse)
        zero: Floats = np.zeros(plan.num_features)
        state, found = rule.start(zero), []
        for t in range(plan.rounds):
            move = gradient(rule.point(state), rule.gradient_factor(t))
            state = rule.step(move, state, t)
            found.append(state[0])
        return found

    def _iterate(self, t: int, vector: EncryptedVector, twin: Floats) -> None:
        """An iterate against the twin's, in the slots that hold the weights; all of the last.

        Rescaling divides by primes that are not quite the scale: an iterate is off by a multiple
        of itself, whatever P is, and later ones by multiples of all before. What is left of the
        first without its multiple is noise, and has the model's bound for one round.
        """
        plan, layout, last = self._plan, self._plan.layout, t + 1 == self._plan.rounds
        numbers: Floats = np.arange(1.0, plan.num_features + 1, dtype=np.float64)
        weights = twin / plan.unit
        if last:
            vector = vector.evaluator.total(vector)
            places, slots = [layout.heads(numbers)], [layout.heads(weights)]
        else:
            places = layout.masks(numbers)
            slots = [_copied(layout, part) for part in layout.masks(weights)]
        error = np.empty(plan.num_features)
        for ct, place, values in zip(vector.cts, places, slots, strict=True):
            message = residues_of_slots(self._context, values)
            noise = self._secret.noise(self._context.polynomials_of(ct), message)
            at = np.flatnonzero(place)
            error[place[at].astype(int) - 1] = at_slots(noise, at.tolist())
            if last:
                self.note("circuit", rms(noise), plan.model_error_std())
        drift = float(error @ weights / (weights @ weights))
        if t == 0:
            one = replace(plan, update={**plan.update, "rounds": 1})
            self.note("first_iterate", rms(error - drift * weights), one.model_error_std())
        unit = math.sqrt(self._n / 2) / 2.0**plan.ckks.scale_bits
        for name, value in (("iterate", rms(error)), ("scale_drift", abs(drift) * unit)):
            self.values[name] = value
            self.courses[name].append(value)


def _copied(layout: Layout, heads: Floats) -> Floats:
    """Column 0 in all columns of its block."""
    values = np.roll(heads, -layout.offset).reshape(layout.num_blocks, layout.block_size)[:, 0]
    return np.roll(np.repeat(values, layout.block_size), layout.offset)
