"""LOOKS AT SECRETS. What a watched run shows: noise of every stage, beside its formula.

CircuitStages    joint keys, refreshes, iterates, joint decryption of any circuit
RowStages        contributions of encrypted rows
ModelStages      replies of an encrypted model
SumStages        opened sums of secure aggregation
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parties.verifier.objectives import open_contributor
from parties.verifier.sheets import packed_slots
from protocols.aggregate import setup
from protocols.aggregate.coordinator_cipher import CoordinatorCipher
from protocols.aggregate.wire import sum_messages
from protocols.ckks import DECRYPTION_TOWERS, REFRESH_TOWERS, subring
from protocols.ckks import residues as rns
from protocols.ckks.circuits import projection
from protocols.ckks.circuits.errors import drawn_std
from protocols.ckks.circuits.evaluator import EncryptedVector
from protocols.ckks.circuits.packing import Layout
from protocols.ckks.circuits.side_by_side import Parts
from protocols.ckks.evaluation import CkksContext
from protocols.exchange import OPENING_KEY, PUBLIC_KEY, rotation_label
from protocols.exchange.messages import Body
from protocols.exchange.wire import sum_blobs
from protocols.model import gradient as model_gradient
from protocols.model.counts import columns_of
from protocols.model.plan import ModelPlan
from protocols.plan import kinds
from protocols.plan.kinds import only
from protocols.rows.plan import RowsPlan
from protocols.rows.training import PlainGradient
from protocols.steps.decrypt import flooding_of
from protocols.sums import plan as gradients
from protocols.sums.plan import GradientPlan
from sims.exact import (
    Integers,
    JointSecret,
    at_slots,
    automorphism,
    centred,
    coefficients,
    evaluations,
    joined,
    residues_of_slots,
    rms,
)
from sims.lab.studies.noise import components

if TYPE_CHECKING:
    from sims.lab.studies.noise.watched import Clients

Floats = NDArray[np.float64]
Bodies = Mapping[str, Body]
Vectors = Sequence[Any]
"""`EncryptedVector`s; of an encrypted model pairs, and `Parts`."""


def stages_of(clients: Clients) -> Stages:
    """Those of the run's protocol."""
    return _STAGES[clients.plan.kind](clients)


class Stages:
    """What one watched run shows: noise by component, measured and predicted, and courses.

    release: component of the released model's difference to the twin.
    """

    release: ClassVar[str]

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


# -- secure aggregation ---------------------------------------------------------------------------


class SumStages(Stages):
    """The opening key's error, and that of every opened sum.

    What clients sent is computed a second time, from their rows and noise; what the coordinator
    opened, from the messages.
    """

    release = "sum_release"

    def __init__(self, clients: Clients) -> None:
        super().__init__(clients)
        plan = only(GradientPlan, clients.plan)
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
        if kind == OPENING_KEY:
            self._key = setup.unmask(cipher, replies)
            self.note("opening_key", rms(self._key), derived)
        elif kind == "round":
            point = gradients.read_point(plan, asked[plan.names[0]], plan.length)
            sent: Floats = np.zeros(plan.length)
            for name in plan.names:
                own = self._own[name].exact(plan.queries[index], index, point)
                noise = plan.draw_noise(index, self._sources[name])
                sent += plan.noisy(index, own, noise).values
            coordinator = CoordinatorCipher(cipher, plan.session, self.clients.seed, self._key)
            sums = sum_messages(cipher, replies, plan.names, plan.length)
            unit, course = 2.0**-cipher.scale_bits, self.courses["opened"]
            course.append(rms((coordinator.open(index, sums) - sent) / unit))
            self.note("opened", rms(course), derived)
            self.note("opened_value", rms(course) * unit, derived * unit)


# -- circuits -------------------------------------------------------------------------------------


class CircuitStages(Stages):
    """Turns messages and refreshed ciphertexts into noise, as the run goes on.

    refreshed, circuit: components of what a refresh adds, and of the model before its decryption.
    """

    refreshed: ClassVar[str]
    circuit: ClassVar[str]

    def __init__(self, clients: Clients) -> None:
        super().__init__(clients)
        plan = only(RowsPlan, clients.plan)
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

    @property
    @abstractmethod
    def _slot_gain(self) -> float:
        """Std of a slot over that of coefficients that are white noise."""

    @abstractmethod
    def _sent(self, kind: str, index: int, replies: Bodies) -> None:
        """All clients have answered a step that is neither of the keys nor the decryption."""

    @abstractmethod
    def _refresh_std(self) -> float:
        """What a refresh should add."""

    @abstractmethod
    def _released_std(self, std: float, scale: float) -> float:
        """What the released weights should be off by."""

    @abstractmethod
    def _added(self, before: Any, after: Any, column_map: Any) -> Floats:
        """What a refresh has added to a ciphertext, coefficients."""

    @abstractmethod
    def _errors(self, vector: EncryptedVector, weights: Floats, last: bool) -> tuple[Floats, float]:
        """Of an iterate: of each weight, in noise of a coefficient; rms of a coefficient."""

    def step(self, kind: str, index: int, asked: Bodies, replies: Bodies) -> None:
        """Keys, what clients encrypt, shares of the decryption."""
        if kind == "keys":
            halves: Any = self.clients.halves.values()
            shares = (half.secret._key for half in halves)
            self._secret = JointSecret(self._context, shares)
            derived = components.secret(self._parties)
            self.note("secret", rms(self._secret.coefficients), derived)
        if kind in ("keys", "relinearise") or (kind == "rotations" and index == 0):
            self._keys(kind, asked, replies)
        elif kind == "decrypt":
            self._decryption(asked, replies)
        else:
            self._sent(kind, index, replies)

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
            a = context.uniform_polynomial(seed, PUBLIC_KEY)
            self._key("public_key", components.public_key(parties), 0, b, a)
        elif kind == "rotations":
            index = self._plan.rotation_chunks[0][0]
            a = context.uniform_key_half(seed, rotation_label(index))
            turn = context.automorphism(index)
            self._key("rotation_key", components.rotation_key(parties), last, b, a, turn)
        else:  # a is H1, which the request carries
            a = rns.unpack(asked[names[0]].blobs[1], primes, n)
            derived = components.relinearisation_key(parties, n)
            self._key("relinearisation_key", derived, last, b, a)

    def _decryption(self, asked: Bodies, replies: Bodies) -> None:
        """The flooding of all clients together."""
        plan, prime = self._plan, self._context.primes[0]
        low = self._context.primes[:DECRYPTION_TOWERS]
        c1 = rns.unpack(asked[plan.names[0]].blobs[0], low, self._n)
        shares = sum_blobs(replies, plan.names, 0, low, self._n)
        flooded = rms(self._secret.phase(shares[0], -c1[0].astype(object), prime))
        flooding = flooding_of(plan)
        self.note("flooding", flooded, math.sqrt(self._parties) * flooding.rms(self._n))
        scale = 2.0**plan.ckks.scale_bits
        self.predicted[self.release] = self._released_std(drawn_std(flooding), scale)

    # -- refreshes and iterates ---------------------------------------------------------------

    def on_refresh(self, before: Vectors, after: Vectors) -> None:
        """To be looked at later."""
        self._refreshes.append((before, after))

    def _first_pair(self, vectors: Vectors) -> Any:
        """The polynomials of the first ciphertext."""
        return self._context.polynomials_of(vectors[0].cts[0])

    def finish(self) -> None:
        """What a refresh through a map adds to its first ciphertext; every iterate."""
        for step, (before, after) in enumerate(self._refreshes):
            column_map = self._plan.column_maps(step)[0]
            if column_map is not None:
                first = self._first_pair(before), self._first_pair(after)
                added = self._added(*first, column_map)
                self.courses[self.refreshed].append(rms(added))
        self.note(self.refreshed, rms(self.courses[self.refreshed]), self._refresh_std())
        # Refreshes of a preconditioner's inversion come first.
        iterates = self._refreshes[-self._plan.rounds :]
        for t, ((_, after), twin) in enumerate(zip(iterates, self._twin(), strict=True)):
            self._iterate(t, after[0], twin)

    def _twin(self) -> list[Floats]:
        """The first vector that the refresh after every iteration makes; at last the weights."""
        plan, rule = self._plan, self._plan.rule
        shards = [spec.shard for spec in self.clients.specs.values()]
        x = np.concatenate([shard.x for shard in shards])
        y = np.concatenate([shard.y for shard in shards])
        noise = np.sum(list(self._noise.values()), axis=0)
        gradient: Any = PlainGradient.of(plan, *plan.encode(x, y), noise)
        zero: Floats = np.zeros(plan.num_features)
        state, found = rule.start(zero), []
        for t in range(plan.rounds):
            move = gradient(rule.point(state), rule.gradient_factor(t))
            state = rule.step(move, state, t)
            found.append(state[0])
        return found

    def _iterate(self, t: int, vector: EncryptedVector, twin: Floats) -> None:
        """An iterate against the twin's; all coefficients of the last that hold it.

        Rescaling divides by primes that are not quite the scale: an iterate is off by a multiple
        of itself, whatever P is, and later ones by multiples of all before. What is left of the
        first without its multiple is noise, and has the model's bound for one round.
        """
        plan, last = self._plan, t + 1 == self._plan.rounds
        weights = twin / plan.unit
        error, noise = self._errors(vector, weights, last)
        if last:
            self.note(self.circuit, noise, kinds.model_error_std(plan))
        drift = float(error @ weights / (weights @ weights))
        if t == 0:
            one = replace(plan, update={**plan.update, "rounds": 1})
            self.note(
                "first_iterate",
                rms(error - drift * weights),
                kinds.model_error_std(one),
            )
        unit = self._slot_gain / 2.0**plan.ckks.scale_bits
        for name, value in (("iterate", rms(error)), ("scale_drift", abs(drift) * unit)):
            self.values[name] = value
            self.courses[name].append(value)


# -- encrypted rows -------------------------------------------------------------------------------


class RowStages(CircuitStages):
    """Encrypted once; all slots of a ciphertext are used."""

    release, refreshed, circuit = "release", "refresh", "circuit"

    @property
    def _slot_gain(self) -> float:
        return math.sqrt(self._n / 2)

    def _refresh_std(self) -> float:
        return components.refresh(self._parties, self._n)

    def _released_std(self, std: float, scale: float) -> float:
        return components.release(self._parties, std, self._n, scale, self._plan.unit)

    def _sent(self, kind: str, index: int, replies: Bodies) -> None:
        if kind == "contribute":
            self._contributions(replies)

    def _contributions(self, replies: Bodies) -> None:
        """The last side ciphertext: of one client, and summed over all."""
        context, names, both = self._context, self._plan.names, self._context.primes * 2
        messages = []
        for name in names:
            shard = self.clients.specs[name].shard
            _, slots = packed_slots(self._plan, name, shard.x, shard.y, self._noise[name])
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

    def _added(self, before: Any, after: Any, column_map: Any) -> Floats:
        """m' - T(m) / q, q the prime that is divided by; m, m' the messages before and after."""
        context, towers = self._context, 2
        p, r, *_, q = context.primes
        m, fresh = (self._secret.opened(pair, towers) for pair in (before, after))
        mapped = column_map.apply(m, (p, r), context.primes[-1]).astype(object)
        rows = [
            (q * new - old) % prime
            for new, old, prime in zip(fresh.astype(object), mapped, (p, r), strict=True)
        ]
        # |q m' - T(m)| is some hundred times q: two primes hold it.
        added: Floats = (joined(rows, (p, r)) / q).astype(float)
        return added

    def _errors(self, vector: EncryptedVector, weights: Floats, last: bool) -> tuple[Floats, float]:
        """In the slots that hold the weights."""
        plan, layout = self._plan, self._plan.layout
        numbers: Floats = np.arange(1.0, plan.num_features + 1, dtype=np.float64)
        if last:
            vector = vector.evaluator.total(vector)
            places, slots = [layout.heads(numbers)], [layout.heads(weights)]
        else:
            places = layout.masks(numbers)
            slots = [_copied(layout, part) for part in layout.masks(weights)]
        error, noises = np.empty(plan.num_features), []
        for ct, place, values in zip(vector.cts, places, slots, strict=True):
            message = residues_of_slots(self._context, values)
            noise = self._secret.noise(self._context.polynomials_of(ct), message)
            at = np.flatnonzero(place)
            error[place[at].astype(int) - 1] = at_slots(noise, at.tolist())
            noises.append(rms(noise))
        return error, rms(noises)


def _copied(layout: Layout, heads: Floats) -> Floats:
    """Column 0 in all columns of its block."""
    values = np.roll(heads, -layout.offset).reshape(layout.num_blocks, layout.block_size)[:, 0]
    return np.roll(np.repeat(values, layout.block_size), layout.offset)


# -- an encrypted model ---------------------------------------------------------------------------


class ModelStages(CircuitStages):
    """Answered in every round; 2k coefficients of a ciphertext are used, see `ckks.subring`."""

    release, refreshed, circuit = "model_release", "model_refresh", "model_circuit"
    _plan: ModelPlan

    @property
    def _slot_gain(self) -> float:
        return math.sqrt(self._plan.layout.period)

    def _refresh_std(self) -> float:
        return components.model_refresh(self._parties)

    def _released_std(self, std: float, scale: float) -> float:
        period, unit = self._plan.layout.period, self._plan.unit
        return components.model_release(self._parties, std, period, scale, unit)

    def _sent(self, kind: str, index: int, replies: Bodies) -> None:
        if (kind, index) == (model_gradient.STEP, 0):
            self._gradients(replies)

    def _gradients(self, replies: Bodies) -> None:
        """Of the first round, where the model is zero: nothing but labels, noise, and their noise.

        What is left of a reply without its own terms and its pads, and of all without their terms.
        """
        plan, context = self._plan, self._context
        low, period = context.primes[:REFRESH_TOWERS], plan.layout.period
        each, summed = [], []
        for part in range(plan.layout.num_parts):
            terms: Integers = np.zeros(2 * period, dtype=object)
            for name, half in self.clients.halves.items():
                party: Any = half
                own = np.array(party.session._own_terms(0)[part], dtype=object)
                label = f"{party.rounds.bound_to}/{model_gradient.STEP}/0/{part}"
                pad = party.session._pads.pad(label, low[:1], 2 * period)
                alone = self._left({name: replies[name]}, part, own + pad[0].astype(object))
                each.append(alone)
                terms = terms + own
            summed.append(self._left(replies, part, terms))
        derived = components.encryption(self._parties, self._n)
        self.note("encryption", rms(each), derived)
        self.note("encryption_sum", rms(summed), math.sqrt(self._parties) * derived)

    def _left(self, replies: Bodies, part: int, terms: Integers) -> Integers:
        """The subring's coefficients of summed replies, without some terms."""
        low = self._context.primes[:REFRESH_TOWERS]
        c0, c1 = (sum_blobs(replies, tuple(replies), 2 * part + k, low, self._n) for k in (0, 1))
        found = self._secret.phase(c0[0], c1[0], low[0])
        return centred(self._used(found) - terms, low[0])

    def _used(self, polynomial: Any) -> Any:
        """Coefficients of the subring."""
        return polynomial[:: self._n // (2 * self._plan.layout.period)]

    def _first_pair(self, vectors: Any) -> Any:
        first = vectors[0]
        return (first.pairs if isinstance(first, Parts) else first)[0]

    def _opened(self, pair: Any) -> Integers:
        """All coefficients."""
        p, q, *_ = self._context.primes
        return joined(self._secret.opened(pair, 2), (p, q))

    def _added(self, before: Any, after: Any, column_map: Any) -> Floats:
        """m' - T(m): fresh errors on all coefficients, roundings on the subring's."""
        added = self._opened(after)
        used = self._used(added)  # a view
        used -= np.array(column_map.apply(self._used(self._opened(before))), dtype=object)
        return added.astype(float)

    def _errors(self, vector: Any, weights: Floats, last: bool) -> tuple[Floats, float]:
        """Of the subring's coefficients, which hold nothing but the weights."""
        layout, scale = self._plan.layout, 2.0**self._plan.ckks.scale_bits
        held = subring.of_slots(columns_of(layout).in_parts(weights).conj()) * scale
        noise = np.array(
            [
                (self._used(self._opened(pair)) - [round(c) for c in own.tolist()]).astype(float)
                for pair, own in zip(vector.pairs, held, strict=True)
            ]
        )
        slots = [projection.to_slots(part, layout.period).conj() for part in noise]
        return layout.of_parts(np.stack(slots)).reshape(-1) / self._slot_gain, rms(noise)


_STAGES: Mapping[str, type[Stages]] = {
    "rows": RowStages,
    "model": ModelStages,
    "gradients": SumStages,
}
"""By kind of plan."""
