"""An LFFR run without transport on an INSECURE toy ring: joint keys, contribute, train, decrypt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocols import decrypt, refresh
from protocols.ckks import residues as rns
from protocols.ckks.context import CkksContext
from protocols.ckks.evaluator import Evaluator
from protocols.ckks.lffr_circuit import LFFR_LEVELS
from protocols.ckks.parameters import CkksParameters
from protocols.contribute import collect, contribution
from protocols.curvature import largest_row_sum
from protocols.lffr import LffrPlan, fixed_hessian_of
from protocols.lffr_training import LffrCircuit, train_lffr
from protocols.messages import Body, Exchange
from protocols.models.lffr import PAPER_LINK
from protocols.plan import Member
from tests import exact
from tests.helpers import Floats, drive, party_names, refreshing, uncommitted
from tests.protocols.gram_session import gram_keys


def make_plan(
    features: int = 3,
    outputs: int = 2,
    rows: Sequence[int] = (12, 12),
    rounds: int = 2,
    ring_dim: int = 512,
    **changes: Any,
) -> LffrPlan:
    """A plan for rows in [-1, 1], INSECURE."""
    ridge = changes.get("ridge", 0.0)
    largest = largest_row_sum(features, columns=[1.0] * features)
    fields: dict[str, Any] = {
        "session": "session",
        "members": tuple(
            Member(name=name, rows=count, verify_key="00" * 32, commitment="11" * 32)
            for name, count in zip(party_names(len(rows)), rows, strict=True)
        ),
        "schema": {"digest": "22" * 32},
        "num_features": features,
        "outputs": outputs,
        "rounds": rounds,
        "link": PAPER_LINK,
        "curvature": fixed_hessian_of(largest, ridge=ridge, offset=0.02),
        "ckks": CkksParameters(ring_dim=ring_dim, depth=LFFR_LEVELS + 2, security_bits=0),
        "privacy": None,
        "profile": "fast-insecure",
    }
    return LffrPlan(**(fields | changes))


def make_rows(plan: LffrPlan, seed: int) -> tuple[Floats, Floats]:
    """Rows with the bias last, and targets in [0, 1] that depend on them."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (plan.num_rows, plan.num_features))
    x[:, -1] = 1.0
    z = x @ rng.normal(0, 1, (plan.num_features, plan.outputs))
    return x, 1 / (1 + np.exp(-z - rng.normal(0, 0.1, z.shape)))


def shards(plan: LffrPlan, *arrays: Floats) -> list[tuple[Floats, ...]]:
    """Each party's part of arrays of all rows."""
    cuts = np.cumsum([member.rows for member in plan.members])[:-1]
    return list(zip(*(np.split(array, cuts) for array in arrays), strict=True))


@dataclass(frozen=True)
class LffrRun:
    """weights: as `release` gives them, but without flooding, shape (d, c); slots: all of them;
    message: the polynomial's residues modulo the first prime; refreshed: ciphertexts by step."""

    plan: LffrPlan
    weights: Floats
    slots: Floats
    message: Any
    context: CkksContext
    refreshed: tuple[int, ...]

    def noise_std(self, twin: Floats) -> float:
        """Of the message polynomial beside the twin's weights, per coefficient."""
        ckks, prime = self.plan.ckks, self.context.primes[0]
        slots = self.plan.layout.heads(twin / self.plan.unit)
        wanted = exact.encoded(slots, ckks.ring_dim, 2.0**ckks.scale_bits)
        return exact.rms(exact.centred(exact.coefficients(self.message, prime) - wanted, prime))


def run_encrypted(
    plan: LffrPlan, x: Floats, y: Floats, noises: Sequence[Floats] | None = None
) -> LffrRun:
    """Contribute, train, refresh, decrypt exactly; noises: one per party, zeros by default."""
    keys = gram_keys(len(plan.names), plan.ckks, plan.rotations)
    keys.forget()
    context, evaluator = keys.context, Evaluator(keys.context, plan.layout)
    zeros = np.zeros((plan.rounds, plan.num_features, plan.outputs))
    parts = dict(zip(plan.names, shards(plan, x, y), strict=True))
    noise = dict(zip(plan.names, noises or [zeros] * len(plan.names), strict=True))
    refreshed: list[int] = []

    def answer(name: str, step: str, body: Body) -> Body:
        if step == "contribute":
            packed = LffrCircuit(plan).pack(name, *parts[name], noise[name])
            return contribution(context, keys.shares[name], keys.public_key, packed)
        index = int(step.partition("/")[2])
        return refresh.answer_refresh(
            context, keys.shares[name], plan.column_maps(index), index, body
        )

    again = refreshing(evaluator, plan, keys)

    def fresh(vectors: Any) -> Exchange[Any]:
        refreshed.append(len(vectors))
        return again(vectors)

    def share(name: str, step: str, body: Body) -> Body:
        c1 = rns.unpack(body.blobs[0], low, plan.ckks.ring_dim)
        return Body(blobs=(rns.pack(exact.product(c1, keys.secrets[name][: len(low)], low), low),))

    data, side = drive(collect(evaluator, plan, uncommitted(plan.names)), answer)
    encrypted = drive(train_lffr(evaluator, plan, data, side, fresh), answer)
    low = context.primes[: decrypt.DECRYPTION_TOWERS]
    level = plan.ckks.num_towers - len(low)
    heads = evaluator.drop_to(encrypted, level)
    slots = drive(decrypt.decrypt(context, plan, heads), share)
    message, c1 = context.polynomials_of(heads.ct)
    for secret in keys.secrets.values():
        message = rns.add(message, exact.product(c1, secret[: len(low)], low), low)
    weights = plan.layout.read_heads(slots)
    return LffrRun(plan, weights, slots, message[0], context, tuple(refreshed))
