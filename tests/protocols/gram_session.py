"""A Gram run without transport on an INSECURE toy ring: joint keys, contribute, train, decrypt."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from types import SimpleNamespace
from typing import Any

import numpy as np

from parties.kernel.gram.sums import GramSums
from parties.kernel.keys.session import refresh_reply
from protocols.ckks import DECRYPTION_TOWERS, CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.exchange.messages import Body, Exchange
from protocols.gram.contributions import UNIT, GramTask, collect, pack, row_sum_bound
from protocols.gram.errors import model_error_std
from protocols.gram.training import gram_evaluator, refresh_schedule, train_gram
from protocols.steps import decrypt
from sims.gram_twin import run_gram_twin
from tests.support.exact import product
from tests.support.helpers import Floats, drive, party_names, relative_error
from tests.support.joint import Uncommitted, keys_of, refreshing, uncommitted
from tests.support.masked import contribution, refresh_shares

LEVELS = 4


def make_task(
    features: int = 3,
    outputs: int = 2,
    parties: int = 2,
    rounds: int = 3,
    rows: int = 24,
    ring_dim: int = 1024,
    levels: int = LEVELS,
    **changes: Any,
) -> GramTask:
    """A task for rows in [-1, 1], INSECURE; levels: between two refreshes."""
    ckks = CkksParameters(ring_dim=ring_dim, depth=levels + 2, security_bits=0)
    fields: dict[str, Any] = {
        "names": tuple(party_names(parties)),
        "num_rows": rows,
        "num_features": features,
        "outputs": outputs,
        "rounds": rounds,
        "curvature_bound": row_sum_bound(np.sqrt(features), features, 1.0),
        "ckks": ckks,
    }
    return GramTask(**(fields | changes))


def make_rows(task: GramTask, seed: int) -> tuple[Floats, Floats]:
    """Rows with the bias last, and targets in [0, 1] that depend on them."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (task.num_rows, task.num_features))
    x[:, -1] = 1.0
    z = x @ rng.normal(0, 1, (task.num_features, task.outputs))
    return x, 1 / (1 + np.exp(-z - rng.normal(0, 0.1, z.shape)))


def split(task: GramTask, x: Floats, y: Floats) -> list[GramSums]:
    """Every party's sums; parties differ in size, and one of four rows goes to the first."""
    owner = np.arange(task.num_rows) ** 2 % len(task.names)
    owner[: len(task.names)] = range(len(task.names))
    return [GramSums.of(x[owner == k], y[owner == k]) for k in range(len(task.names))]


@dataclass(frozen=True)
class GramRun:
    """weights: decrypted without flooding; slots: all of them; message: their polynomial's
    residues; refreshed: ciphertexts by refresh step."""

    weights: Floats
    slots: Floats
    message: Any
    context: CkksContext
    refreshed: tuple[int, ...]


def run_encrypted(task: GramTask, sums: Sequence[GramSums]) -> GramRun:
    """Contribute, train, refresh, decrypt exactly; sums: one per party."""
    keys = keys_of(len(task.names), task.ckks, task.layout.rotations)
    keys.forget()
    context, evaluator = keys.context, gram_evaluator(keys.context, task)
    plan: Any = SimpleNamespace(
        names=task.names, unit=UNIT, cover=None, column_maps=lambda step: (None,) * 999
    )
    parts = dict(zip(task.names, sums, strict=True))
    refreshed: list[int] = []

    def answer(name: str, step: str, body: Body) -> Body:
        if step == "contribute":
            packed = {}, pack(task, parts[name])
            return contribution(context, keys.shares[name], keys.public, packed)
        maps = (None,) * len(body.blobs)
        return refresh_reply(context, partial(refresh_shares, keys.shares[name]), maps, step, body)

    again = refreshing(evaluator, plan, keys)

    def fresh(vectors: Any) -> Exchange[Any]:
        refreshed.append(sum(len(vector.cts) for vector in vectors))
        return again(vectors)

    def share(name: str, step: str, body: Body) -> Body:
        c1 = rns.unpack(body.blobs[0], low, task.ckks.ring_dim)
        return Body(blobs=(rns.pack(product(c1, keys.secrets[name][: len(low)], low), low),))

    inputs = drive(collect(evaluator, task, uncommitted(task.names)), answer)
    heads = drive(train_gram(evaluator, task, inputs, fresh), answer)
    low = context.primes[:DECRYPTION_TOWERS]
    assert heads.level == task.ckks.num_towers - len(low)
    slots = drive(decrypt.decrypt(context, plan, heads, Uncommitted(plan)), share)
    c0, c1 = context.polynomials_of(heads.ct)
    message = c0
    for name in task.names:
        message = rns.add(message, product(c1, keys.secrets[name][: len(low)], low), low)
    return GramRun(task.layout.read_heads(slots), slots, message, context, tuple(refreshed))


def check_against_twin(task: GramTask, least: float) -> None:
    """Weights agree to 1e-9, nothing else is released, noise and refreshes are as predicted.

    least: the largest weight is above it.
    """
    x, y = make_rows(task, seed=task.num_features)
    sums = split(task, x, y)
    run = run_encrypted(task, sums)
    twin = run_gram_twin(task, reduce(operator.add, sums))
    assert np.abs(twin).max() > least  # zero weights would prove nothing
    assert relative_error(run.weights, twin) < 1e-9
    expected = np.zeros(task.ckks.num_slots)
    expected[task.layout.released() > 0] = twin.ravel()
    error = (run.slots - expected) / UNIT
    assert np.abs(error).max() < 1e-6
    assert run.refreshed == refresh_schedule(task)
    # The flooding hides noise of this size; half of it is kept as a margin.
    std = np.sqrt(np.mean(error**2)) * 2.0**task.ckks.scale_bits / np.sqrt(task.ckks.ring_dim / 2)
    assert std < 0.5 * model_error_std(task)
