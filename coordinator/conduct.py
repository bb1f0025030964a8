"""The coordinator's half of a run, after the agreement: one generator per protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols import contribute, cover, gradients, gram, keygen
from protocols.aggregate.cipher import CoordinatorCipher, session_digest
from protocols.aggregate.setup import opening_key
from protocols.circuit_plan import CircuitPlan
from protocols.ckks.context import CkksContext
from protocols.ckks.evaluator import EncryptedVector, Evaluator
from protocols.ckks.gram import GramEvaluator
from protocols.ckks.residues import Residues
from protocols.decrypt import decrypt, release
from protocols.errors import ProtocolError
from protocols.gradients import GradientPlan
from protocols.gram_plan import GramPlan
from protocols.gram_training import Vectors, train_gram
from protocols.lffr import LffrPlan
from protocols.lffr_training import train_lffr
from protocols.messages import Body, Exchange
from protocols.plan import RunPlan
from protocols.refresh import refresh
from protocols.rows import RowsPlan
from protocols.standing import OnMissing, Standing
from protocols.train import OnRefresh, train_encrypted

Weights = NDArray[np.float64]
# Of `keygen.ceremony`.
Keys = tuple[Residues, Body]


@dataclass(frozen=True, slots=True)
class Watch:
    """Called as a run goes on: on_phase(phase), on_iteration(t), on_missing(all covered parties).

    Of the secure-aggregation protocol: start: public weights to start from, zeros by default;
    on_weights(t, w): every iterate, which is public there. Of encrypted rows: on_refresh.
    """

    on_phase: Callable[[str], None] = lambda phase: None
    on_iteration: Callable[[int], None] = lambda t: None
    start: Weights | None = None
    on_weights: Callable[[int, Weights], None] = lambda t, w: None
    on_missing: OnMissing = lambda names: None
    on_refresh: OnRefresh = lambda before, after: None

    def on_iterate(self, t: int, weights: Weights) -> None:
        """Both."""
        self.on_iteration(t)
        self.on_weights(t, weights)


def conduct(
    plan: RunPlan, seed: bytes, seeds: Mapping[str, str], watch: Watch
) -> Exchange[Weights]:
    """Everything from the agreement to the released weights.

    seed: the joint seed; seeds: every party's, hexadecimal.

    Raises:
        ProtocolError: a party failed or lied; `culprit` names it.
    """
    if isinstance(plan, GradientPlan):
        return (yield from _conduct_sums(plan, seed, seeds, watch))
    if isinstance(plan, CircuitPlan):
        return (yield from _conduct_circuit(plan, seed, seeds, watch))
    raise ProtocolError(f"protocol={plan.protocol!r} is unknown to this coordinator")


def _conduct_sums(
    plan: GradientPlan, seed: bytes, seeds: Mapping[str, str], watch: Watch
) -> Exchange[Weights]:
    watch.on_phase("keys")
    digest = session_digest(plan.cipher, plan.session, seed)
    roster = {member.name: member.verify_key for member in plan.members}
    key = yield from opening_key(plan.cipher, digest, roster, seeds)
    cipher = CoordinatorCipher(plan.cipher, plan.session, seed, key)
    watch.on_phase("train")
    start = watch.start if watch.start is not None else np.zeros(plan.length)
    return (yield from gradients.train(plan, cipher, start, watch.on_iterate))


def _conduct_circuit(
    plan: CircuitPlan, seed: bytes, seeds: Mapping[str, str], watch: Watch
) -> Exchange[Weights]:
    watch.on_phase("keys")
    context = CkksContext(plan.ckks, plan.session)
    try:
        keys = yield from keygen.ceremony(context, plan, seed, seeds)
        yield from cover.share(plan, seed)
        if isinstance(plan, RowsPlan):
            return (yield from _train_rows(context, plan, seed, keys, watch))
        if isinstance(plan, GramPlan):
            return (yield from _train_gram(context, plan, seed, keys, watch))
        if isinstance(plan, LffrPlan):
            return (yield from _train_lffr(context, plan, seed, keys, watch))
        raise ProtocolError(f"protocol={plan.protocol!r} is unknown to this coordinator")
    finally:
        context.unload_evaluation_keys()


def _train_rows(
    context: CkksContext, plan: RowsPlan, seed: bytes, keys: Keys, watch: Watch
) -> Exchange[Weights]:
    public_key: Any = keygen.public_key(context, seed, keys[0])
    watch.on_phase("encrypt")
    evaluator, standing = Evaluator(context, plan.layout), Standing(plan, watch.on_missing)
    contributions = partial(contribute.opened, plan, seed, keys[1], standing)
    rows, side = yield from contribute.collect(evaluator, plan, contributions)
    watch.on_phase("train")
    heads: EncryptedVector = yield from train_encrypted(
        evaluator,
        plan,
        seed,
        public_key,
        rows,
        side,
        watch.on_iteration,
        standing,
        watch.on_refresh,
    )
    watch.on_phase("decrypt")
    return (yield from release(evaluator, plan, heads, standing))


def _train_gram(
    context: CkksContext, plan: GramPlan, seed: bytes, keys: Keys, watch: Watch
) -> Exchange[Weights]:
    """Weights, shape (d, c)."""
    task, public_key = plan.task, keygen.public_key(context, seed, keys[0])
    watch.on_phase("encrypt")
    evaluator, standing = GramEvaluator(context, task.layout), Standing(plan, watch.on_missing)
    contributions = partial(contribute.opened, plan, seed, keys[1], standing)
    sums = yield from gram.collect(evaluator, task, contributions)

    def refresh_all(step: int, vectors: Vectors) -> Exchange[Vectors]:
        return (yield from refresh(evaluator, plan, seed, step, public_key, vectors, standing))

    watch.on_phase("train")
    heads = yield from train_gram(evaluator, task, sums, refresh_all, watch.on_iteration)
    watch.on_phase("decrypt")
    return task.layout.read((yield from decrypt(context, plan, heads, standing)))


def _train_lffr(
    context: CkksContext, plan: LffrPlan, seed: bytes, keys: Keys, watch: Watch
) -> Exchange[Weights]:
    """Weights, shape (d, c)."""
    public_key = keygen.public_key(context, seed, keys[0])
    watch.on_phase("encrypt")
    evaluator, standing = Evaluator(context, plan.layout), Standing(plan, watch.on_missing)
    contributions = partial(contribute.opened, plan, seed, keys[1], standing)
    data, side = yield from contribute.collect(evaluator, plan, contributions)

    def refresh_all(step: int, vectors: Vectors) -> Exchange[tuple[EncryptedVector, ...]]:
        return (yield from refresh(evaluator, plan, seed, step, public_key, vectors, standing))

    watch.on_phase("train")
    heads = yield from train_lffr(evaluator, plan, data, side, refresh_all, watch.on_iteration)
    watch.on_phase("decrypt")
    return (yield from release(evaluator, plan, heads, standing))
