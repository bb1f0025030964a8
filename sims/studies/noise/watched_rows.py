"""LOOKS AT SECRETS. Encrypted rows: the noise of every stage of one run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import residues as rns
from protocols.ckks.column_map import ColumnMap
from protocols.ckks.context import CkksContext
from protocols.ckks.evaluator import EncryptedVector
from protocols.ckks.packing import Layout
from protocols.decrypt import DECRYPTION_TOWERS
from protocols.messages import Body, Exchange
from protocols.refresh import refresh
from protocols.rows import RowsPlan
from protocols.wire import sum_blobs
from sims.studies.noise import theory
from sims.studies.noise.exact import JointSecret, at_slots, joined, residues_of_slots, rms
from sims.studies.noise.stages import Stages, twin_states
from sims.studies.noise.watched_keys import key_noise

if TYPE_CHECKING:
    from sims.studies.noise.watched import Clients

Floats = NDArray[np.float64]
Vectors = Sequence[EncryptedVector]


@dataclass
class _Spy:
    """What the hooks noted, in the order in which it happened.

    plaintexts: slots of everything encrypted; refreshes: vectors before and after each of them.
    """

    plaintexts: list[Floats] = field(default_factory=list)
    refreshes: list[tuple[Vectors, Vectors]] = field(default_factory=list)


def watch_rows(clients: Clients, plan: RowsPlan) -> tuple[Floats, Stages]:
    """Released weights, and the noise of every stage."""
    spy, seen = _Spy(), _Seen(clients, plan)
    encrypt = CkksContext.encrypt

    def encrypted(context: CkksContext, key: Any, slots: Floats) -> Any:
        spy.plaintexts.append(slots)
        return encrypt(context, key, slots)

    def refreshed(*arguments: Any) -> Exchange[Vectors]:
        after = yield from refresh(*arguments)
        vectors, _standing = arguments[-2:]
        spy.refreshes.append((vectors, after))
        return after

    def on_step(step: str, asked: Mapping[str, Body], replies: Mapping[str, Body]) -> None:
        seen.step(step, asked, replies, spy)

    with ExitStack() as hooks:
        hooks.enter_context(patch.object(CkksContext, "encrypt", encrypted))
        hooks.enter_context(patch("protocols.train.refresh", refreshed))
        weights = clients.drive(on_step)
    seen.refreshes(spy)
    seen.iterates(spy)
    return weights, seen.stages


class _Seen:
    """Turns messages and hooks' notes into noise, as the run goes on."""

    def __init__(self, clients: Clients, plan: RowsPlan) -> None:
        self._clients, self._plan, self.stages = clients, plan, Stages()
        self._parties, self._n = len(plan.members), plan.ckks.ring_dim
        self._context: CkksContext | None = None
        self._secret: JointSecret | None = None
        self.stages.facts = {
            "ring_dim": self._n,
            "depth": plan.ckks.depth,
            "security_bits": plan.ckks.security_bits,
        }

    @property
    def context(self) -> CkksContext:
        """As the first client's."""
        if self._context is None:
            self._context = CkksContext(self._plan.ckks, self._plan.session)
        return self._context

    @property
    def secret(self) -> JointSecret:
        """SECRET: the sum of all clients' key shares."""
        if self._secret is None:
            duties: Any = self._clients.duties.values()
            self._secret = JointSecret(self.context, [duty._secret for duty in duties])
        return self._secret

    def step(
        self, step: str, asked: Mapping[str, Body], replies: Mapping[str, Body], spy: _Spy
    ) -> None:
        """All clients have answered a step."""
        kind = step.partition("/")[0]
        if kind in ("keys", "relinearise") or step == "rotations/0":
            key_noise(
                self.stages, self.secret, self._plan, self._clients.seed, kind, asked, replies
            )
        elif kind == "contribute":
            self._contributions(replies, spy)
        elif kind == "decrypt":
            self._decryption(asked, replies)

    # -- ciphertexts --------------------------------------------------------------------------

    def _contributions(self, replies: Mapping[str, Body], spy: _Spy) -> None:
        """The last side ciphertext: of one client, and summed over all."""
        context, names, both = self.context, self._plan.names, self.context.primes * 2
        last = {name: Body(blobs=body.blobs[-1:]) for name, body in replies.items()}
        each = len(spy.plaintexts), [len(replies[name].blobs) for name in names]
        ends = np.cumsum(each[1]) - 1
        if int(ends[-1]) + 1 != each[0]:
            raise AssertionError("a client encrypted something that it did not send")
        messages = [residues_of_slots(context, spy.plaintexts[k]) for k in ends]
        one = rns.unpack(last[names[0]].blobs[0], both, self._n)
        noise = self.secret.noise(np.split(one, 2), messages[0])
        self.stages.note("encryption", rms(noise), theory.encryption(self._parties, self._n))
        total = messages[0]
        for message in messages[1:]:
            total = rns.add(total, message, context.primes)
        summed = sum_blobs(last, names, 0, both, self._n)
        noise = self.secret.noise(np.split(summed, 2), total)
        derived = theory.encryption_sum(self._parties, self._n)
        self.stages.note("encryption_sum", rms(noise), derived)
        spy.plaintexts.clear()

    def _decryption(self, asked: Mapping[str, Body], replies: Mapping[str, Body]) -> None:
        """The flooding of all clients together."""
        plan, prime = self._plan, self.context.primes[0]
        low = self.context.primes[:DECRYPTION_TOWERS]
        c1 = rns.unpack(asked[plan.names[0]].blobs[0], low, self._n)
        shares = sum_blobs(replies, plan.names, 0, low, self._n)
        minus = -c1[0].astype(object)
        bound, parties = plan.model_error_std(), self._parties
        flooded = rms(self.secret.phase(shares[0], minus, prime))
        self.stages.note("flooding", flooded, theory.flooding(parties, bound))
        scale = 2.0**plan.ckks.scale_bits
        released = theory.release(parties, bound, self._n, scale, plan.unit)
        self.stages.predicted["release"] = released

    def refreshes(self, spy: _Spy) -> None:
        """What every refresh through a map adds to its first ciphertext."""
        course = self.stages.courses.setdefault("refresh", [])
        for step, (before, after) in enumerate(spy.refreshes):
            column_map = self._plan.column_maps(step)[0]
            if column_map is not None:
                course.append(rms(self._added(before[0].cts[0], after[0].cts[0], column_map)))
        mean = float(np.sqrt(np.mean(np.square(course))))
        self.stages.note("refresh", mean, theory.refresh(self._parties, self._n))

    def _added(self, before: Any, after: Any, column_map: ColumnMap) -> Floats:
        """m' - T(m) / q, q the prime that is divided by; m, m' the messages before and after."""
        context, towers = self.context, 2
        p, r, *_, q = context.primes
        m, fresh = (
            self.secret.opened(context.polynomials_of(ct), towers) for ct in (before, after)
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

    def iterates(self, spy: _Spy) -> None:
        """Every iterate against the twin's, in the slots that hold the weights; all of the last.

        Rescaling divides by primes that are not quite the scale: an iterate is off by a multiple
        of itself, whatever P is, and later ones by multiples of all before. What is left of the
        first without its multiple is noise, and has the model's bound for one round.
        """
        plan, layout = self._plan, self._plan.layout
        states = twin_states(plan, self._clients.specs.values())
        numbers: Floats = np.arange(1.0, plan.num_features + 1, dtype=np.float64)
        # Refreshes of a preconditioner's inversion come first.
        after = [vectors[0] for _, vectors in spy.refreshes[-plan.rounds :]]
        for t, (vector, state) in enumerate(zip(after, states, strict=True)):
            weights, last = state[0] / plan.unit, t + 1 == plan.rounds
            if last:
                vector = vector.evaluator.total(vector)
                places, slots = [layout.heads(numbers)], [layout.heads(weights)]
            else:
                places = layout.masks(numbers)
                slots = [_copied(layout, part) for part in layout.masks(weights)]
            errors = np.empty(plan.num_features)
            for ct, place, values in zip(vector.cts, places, slots, strict=True):
                message = residues_of_slots(self.context, values)
                noise = self.secret.noise(self.context.polynomials_of(ct), message)
                at = np.flatnonzero(place)
                errors[place[at].astype(int) - 1] = at_slots(noise, at.tolist())
                if last:
                    self.stages.note("circuit", rms(noise), plan.model_error_std())
            self._iterate(t, errors, weights)

    def _iterate(self, t: int, error: Floats, weights: Floats) -> None:
        drift = float(error @ weights / (weights @ weights))
        rest, stages = rms(error - drift * weights), self.stages
        if t == 0:
            one = replace(self._plan, update={**self._plan.update, "rounds": 1})
            stages.note("first_iterate", rest, one.model_error_std())
        unit = math.sqrt(self._n / 2) / 2.0**self._plan.ckks.scale_bits
        stages.values |= {"iterate": rms(error), "scale_drift": abs(drift) * unit}
        for name in ("iterate", "scale_drift"):
            stages.courses.setdefault(name, []).append(stages.values[name])


def _copied(layout: Layout, heads: Floats) -> Floats:
    """Column 0 in all columns of its block."""
    values = np.roll(heads, -layout.offset).reshape(layout.num_blocks, layout.block_size)[:, 0]
    return np.roll(np.repeat(values, layout.block_size), layout.offset)
