"""LFFR on encrypted rows without transport, INSECURE toy ring: plan, rows, and what a run gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from protocols.ckks import CkksParameters
from protocols.ckks.circuits.lffr import LFFR_LEVELS
from protocols.lffr.plan import LffrPlan, fixed_hessian_of
from protocols.models.lffr import PAPER_LINK
from protocols.plan.run_plan import Member
from protocols.rows.curvature import largest_row_sum
from tests.support import exact
from tests.support.helpers import Floats, party_names
from tests.support.joint import Released, encrypted_weights, joint_keys


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


def run_encrypted(
    plan: LffrPlan, x: Floats, y: Floats, noises: Sequence[Floats] | None = None
) -> Released:
    """noises: one per party, zeros by default."""
    zeros = np.zeros((plan.rounds, plan.num_features, plan.outputs))
    return encrypted_weights(plan, shards(plan, x, y), noises or [zeros] * len(plan.names))


def noise_std(plan: LffrPlan, run: Released, twin: Floats) -> float:
    """Of the message polynomial beside the twin's weights, per coefficient."""
    ckks = plan.ckks
    prime = joint_keys(len(plan.names), ckks.depth, ckks.ring_dim).context.primes[0]
    slots = plan.layout.heads(twin / plan.unit)
    wanted = exact.encoded(slots, ckks.ring_dim, 2.0**ckks.scale_bits)
    return exact.rms(exact.centred(exact.coefficients(run.message[0], prime) - wanted, prime))
