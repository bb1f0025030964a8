"""The protocol `secure-aggregation`: one small ciphertext per party and round; only the sum opens.

Every opened sum is differentially private, so the coordinator applies the update rule in the clear.
What a party contributes is in `objectives`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from protocols.aggregate import setup
from protocols.aggregate.cipher import session_digest
from protocols.aggregate.coordinator_cipher import CoordinatorCipher
from protocols.exchange.messages import Exchange
from protocols.names import SECURE_AGGREGATION
from protocols.plan.protocol import Protocol, Step, Watch, Weights
from protocols.sums import plan as gradients
from protocols.sums.plan import GradientPlan

STEPS = (
    Step(
        "mask-keys",
        setup.give_key,
        "keys",
        "a public key, for masks that cancel in the sum",
        told="all seeds",
        sends="ephemeral key, signed",
        learns="public",
    ),
    Step(
        "opening-key",
        setup.give_opening,
        "keys",
        "your masked part of the key that opens sums, never a single part",
        carries=lambda plan, party: (len(plan.members) - 1,),
        told="all signed keys",
        sends="s_p under masks that cancel",
        learns="coordinator: sum_p s_p",
    ),
    Step(
        "round",
        gradients.contribute,
        "train",
        "what your rows add to a sum, encrypted",
        count=lambda plan: len(plan.queries),
        shows_rows=True,
        opens=True,
        noisy=True,
        told="the point",
        sends="encrypted contribution + noise share",
        learns="coordinator: the noisy sum",
    ),
)


def coordinate(
    plan: GradientPlan, seed: bytes, seeds: Mapping[str, str], watch: Watch
) -> Exchange[Weights]:
    """The coordinator's half, from the agreement to the released weights, of the plan's shape.

    Raises:
        ProtocolError: a party failed or lied; `culprit` names it.
    """
    watch.on_phase("keys")
    digest = session_digest(plan.cipher, plan.session, seed)
    key = yield from setup.opening_key(plan.cipher, digest, plan.roster, seeds)
    cipher = CoordinatorCipher(plan.cipher, plan.session, seed, key)

    watch.on_phase("train")
    start = np.zeros(plan.length) if watch.start is None else watch.start.reshape(-1)

    def on_iteration(t: int, weights: Weights) -> None:
        watch.on_iteration(t)
        watch.on_weights(t, weights)

    return (yield from gradients.train(plan, cipher, start, on_iteration))


PROTOCOL = Protocol(SECURE_AGGREGATION, STEPS, coordinate)
