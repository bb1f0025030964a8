"""LOOKS AT SECRETS. Encrypted shards: the noise of every stage of one run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import residues as rns
from protocols.ckks.context import CkksContext
from protocols.ckks.evaluator import EncryptedVector, Evaluator
from protocols.ckks.parameters import REFRESH_TOWERS
from protocols.decrypt import DECRYPTION_TOWERS
from protocols.messages import Body
from protocols.rows import RowsPlan
from protocols.wire import sum_blobs
from sims.studies.noise import theory
from sims.studies.noise.exact import JointSecret, at_slots, residues_of_slots, rms
from sims.studies.noise.stages import Stages, twin_states
from sims.studies.noise.watched_keys import key_noise

if TYPE_CHECKING:
    from sims.studies.noise.watched import Clients

Floats = NDArray[np.float64]


class _Spy:
    """What the hooks noted, in the order in which it happened."""

    def __init__(self) -> None:
        self.plaintexts: list[Floats] = []
        self.refreshed: list[list[EncryptedVector]] = []
        self.expected = 0
        self.dropped: EncryptedVector | None = None


def watch_rows(clients: Clients, plan: RowsPlan) -> tuple[Floats, Stages]:
    """Released weights, and the noise of every stage."""
    spy, seen = _Spy(), _Seen(clients, plan)
    encrypt = CkksContext.encrypt

    def noted(context: CkksContext, key: Any, slots: Floats) -> Any:
        spy.plaintexts.append(slots)
        return encrypt(context, key, slots)

    class Watched(Evaluator):
        def wrap(self, *cts: Any) -> EncryptedVector:
            vector = super().wrap(*cts)
            if spy.expected:
                spy.expected -= len(cts)
                spy.refreshed[-1].append(vector)
            return vector

        def drop_to(self, vector: EncryptedVector, level: int) -> EncryptedVector:
            spy.dropped = super().drop_to(vector, level)
            return spy.dropped

    def on_step(step: str, asked: Mapping[str, Body], replies: Mapping[str, Body]) -> None:
        if step.startswith("refresh/"):
            spy.expected = len(asked[plan.names[0]].blobs)
            spy.refreshed.append([])
        seen.step(step, asked, replies, spy)

    with ExitStack() as hooks:
        hooks.enter_context(patch.object(CkksContext, "encrypt", noted))
        hooks.enter_context(patch("coordinator.conduct.Evaluator", Watched))
        weights = clients.drive(on_step)
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
        kind, _, index = step.partition("/")
        if kind in ("keys", "square") or step == "rotations/0":
            key_noise(self.stages, self.secret, self._plan, self._clients.seed, kind, replies)
        elif kind == "contribute":
            self._contributions(replies, spy)
        elif kind == "refresh":
            self._refresh(int(index), asked, replies)
        elif kind == "decrypt":
            self._decryption(asked, replies, spy)

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

    def _refresh(self, step: int, asked: Mapping[str, Body], replies: Mapping[str, Body]) -> None:
        """h0 + h1 = (c1 - a') s + e at the first prime: e is what the refresh adds."""
        context, names, prime = self.context, self._plan.names, self.context.primes[0]
        low = context.primes[:REFRESH_TOWERS]
        c1 = rns.unpack(asked[names[0]].blobs[0], low, self._n)
        h0 = sum_blobs(replies, names, 0, low, self._n)[0].astype(object)
        h1 = sum_blobs(replies, names, 1, context.primes, self._n)[0].astype(object)
        element = context.refresh_element(self._clients.seed, f"refresh/{step}/0", c1)[0]
        difference = element.astype(object) - c1[0].astype(object)
        added = rms(self.secret.phase(h0 + h1, difference, prime))
        course = self.stages.courses.setdefault("refresh", [])
        course.append(added)
        mean = float(np.sqrt(np.mean(np.square(course))))
        self.stages.note("refresh", mean, theory.refresh(self._parties))

    def _decryption(
        self, asked: Mapping[str, Body], replies: Mapping[str, Body], spy: _Spy
    ) -> None:
        """The flooding of all clients together; the model before it."""
        context, plan, prime = self.context, self._plan, self.context.primes[0]
        low = context.primes[:DECRYPTION_TOWERS]
        c1 = rns.unpack(asked[plan.names[0]].blobs[0], low, self._n)
        shares = sum_blobs(replies, plan.names, 0, low, self._n)
        minus = -c1[0].astype(object)
        bound, parties = plan.model_error_std(), self._parties
        flooded = rms(self.secret.phase(shares[0], minus, prime))
        self.stages.note("flooding", flooded, theory.flooding(parties, bound))
        twin = twin_states(self._plan, self._clients.specs.values())[-1][-1]
        vector = spy.dropped
        if vector is None:
            raise AssertionError("nothing was brought to the towers of a decryption")
        level = context.params.num_towers - DECRYPTION_TOWERS
        message = residues_of_slots(context, plan.layout.heads(twin / plan.unit), level)
        noise = self.secret.noise(context.polynomials_of(vector.ct), message)
        self.stages.note("circuit", rms(noise), bound)
        scale = 2.0**plan.ckks.scale_bits
        released = theory.release(parties, bound, self._n, scale, plan.unit)
        self.stages.predicted["release"] = released

    # -- iterates -----------------------------------------------------------------------------

    def iterates(self, spy: _Spy) -> None:
        """Every refreshed iterate against the twin's, in the slots that hold the weights.

        Rescaling divides by primes that are not quite the scale: an iterate is off by a multiple
        of itself, whatever P is, and later ones by multiples of all before. What is left of the
        first without its multiple is noise, and has the model's bound for one round.
        """
        plan, layout = self._plan, self._plan.layout
        states = twin_states(plan, self._clients.specs.values())
        masks = layout.masks(np.arange(1.0, plan.num_features + 1, dtype=np.float64))
        slots = [np.flatnonzero(mask) for mask in masks]
        order = np.concatenate([m[at].astype(int) - 1 for m, at in zip(masks, slots, strict=True)])
        # Refreshes of a preconditioner's inversion come first.
        for t, vectors in enumerate(spy.refreshed[len(spy.refreshed) - plan.rounds + 1 :]):
            if len(vectors) != len(states[t]):
                return
            weights = states[t][0] / plan.unit
            errors = []
            for part, (ct, at) in enumerate(zip(vectors[0].cts, slots, strict=True)):
                message = residues_of_slots(self.context, layout.replicated(weights, part))
                noise = self.secret.noise(self.context.polynomials_of(ct), message)
                errors.append(at_slots(noise, at.tolist()))
            self._iterate(t, np.concatenate(errors), weights[order])

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
