"""The protocol `encrypted-model`: rows stay home, and meet the encrypted model there.

In every round the coordinator sends the encrypted point, parties answer with encrypted gradients of
their own rows, noise included, and the coordinator adds them, applies the update on ciphertexts and
has the parties refresh what it made. It learns the final model and nothing before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import DECRYPTION_TOWERS
from protocols.ckks import residues as rns
from protocols.ckks.circuits import projection, side_by_side
from protocols.ckks.circuits.rows import ColumnSum, advance
from protocols.ckks.circuits.side_by_side import Pair, Parts, SideBySide
from protocols.ckks.evaluation import CkksContext, unload
from protocols.ckks.residues import Residues
from protocols.errors import ProtocolError
from protocols.exchange.messages import Body, Exchange
from protocols.model import gradient as model_gradient
from protocols.model import refresh as model_refresh
from protocols.model.errors import release_error_std
from protocols.model.plan import ModelPlan
from protocols.names import ENCRYPTED_MODEL
from protocols.numerics.slot_bounds import LARGEST_SLOT
from protocols.plan.protocol import Protocol, Step, Watch, Weights, other_parties
from protocols.rows.protocol import CEREMONY, DECRYPT, chunks, joint_keys
from protocols.steps import decrypt, pads
from protocols.steps.confirmed import View
from protocols.steps.decrypt import DIVERGED
from protocols.steps.rounds import noting
from protocols.steps.survivors import Survivors

STEPS = (
    *CEREMONY,
    Step(
        pads.KEYS,
        pads.give_key,
        "keys",
        "a public key, for pads that cancel in sums",
        told="who signed which set of key shares",
        sends="ephemeral key, signed",
        learns="public",
    ),
    Step(
        pads.AGREE,
        pads.agree,
        "keys",
        "nothing: you agree on pads with every other party",
        carries=other_parties,
        told="all signed keys",
        learns="every pair of parties: a secret",
    ),
    Step(
        model_gradient.KEYS,
        model_gradient.take_keys,
        "keys",
        "nothing: you receive the joint evaluation keys",
        count=lambda plan: 1 + len(plan.rotation_chunks),
        carries=lambda plan, party: [2, *chunks(plan, party)],
        told="the joint evaluation keys",
        learns="they are public",
    ),
    Step(
        model_gradient.STEP,
        model_gradient.answer,
        "train",
        "the encrypted gradient of your rows, useless without everybody else's",
        count=lambda plan: plan.rounds,
        shows_rows=True,
        repeats=True,
        committed=True,
        noisy=True,
        carries=lambda plan, party: [plan.layout.num_parts] * plan.rounds,
        told="c0 of the encrypted point; at t = 0 nothing",
        sends="X o q(w) + label term + noise, under fresh encryption, kernel and pads",
        learns="nothing (RLWE); the sum over all parties is a ciphertext, a single reply is none",
    ),
    Step(
        model_refresh.STEP,
        model_refresh.share,
        "refresh",
        "a masked share of a ciphertext (no one learns a value that the mask hides)",
        count=lambda plan: plan.rounds,
        repeats=True,
        carries=lambda plan, party: plan.refreshes,
        told="c1 of what the update made; everyone's endorsements of the digests",
        sends="masked decryption share, re-encryption share of T(mask)",
        learns="nothing (masks)",
    ),
    DECRYPT,
)


class Given:
    """The gradient that the parties send, in the place of one that is computed.

    terms: (c0, c1) of each part, or none yet: no rule but adds them.
    """

    def __init__(self, terms: Sequence[Pair], scale: float, weight_unit: float) -> None:
        self._terms, self._scale, self.weight_unit = terms, scale, weight_unit

    def __call__(self, point: Parts, step: float) -> ColumnSum:
        """step * gradient / R, to be summed by the next refresh."""
        return ColumnSum(self._terms, step * self._scale)


def coordinate(
    plan: ModelPlan, seed: bytes, seeds: Mapping[str, str], watch: Watch
) -> Exchange[Weights]:
    """The coordinator's half, from the agreement to the released weights.

    Raises:
        ProtocolError: a party failed or lied; `culprit` names it.
    """
    view = View(seed)
    return (yield from noting(view, _coordinate(plan, seed, seeds, watch, view), PROTOCOL.is_alike))


def _coordinate(
    plan: ModelPlan, seed: bytes, seeds: Mapping[str, str], watch: Watch, view: View
) -> Exchange[Weights]:
    context = CkksContext(plan.ckks, plan.session)
    try:
        keys = yield from joint_keys(context, plan, seed, seeds, watch, view)
        yield from pads.agreement(plan, seed, keys.endorsements)
        yield from model_gradient.hand_out(context, plan, keys)

        watch.on_phase("train")
        survivors = Survivors(plan, seed, view, watch.on_missing)
        state = yield from _train(context, plan, seed, survivors, watch)

        watch.on_phase("decrypt")
        return plan.decode((yield from release(context, plan, state, survivors)))
    finally:
        unload(context.tag)


def _train(
    context: CkksContext, plan: ModelPlan, seed: bytes, survivors: Survivors, watch: Watch
) -> Exchange[Parts]:
    """w / R after the last iteration."""
    rule = plan.rule
    evaluator = SideBySide(context, plan.layout)
    state = rule.start(side_by_side.zero(context, plan.layout))
    older = model_gradient.Older(context.primes[0])
    for t in range(plan.rounds):
        # While the parties are at it.
        own = cache(partial(_own_path, evaluator, plan, t, state))
        point = rule.point(state)
        terms = yield from model_gradient.total(context, plan, survivors, t, point, older, own)
        shares, kept = own()
        spread = [evaluator.spread(terms, share) for share in shares]
        made = yield from model_refresh.refresh(context, plan, seed, t, spread, survivors)
        watch.on_refresh(spread, made)
        state = (*made, *kept)
        watch.on_iteration(t)
    return rule.weights(state)


def _own_path(
    evaluator: SideBySide, plan: ModelPlan, t: int, state: tuple[Parts, ...]
) -> tuple[list[list[Pair] | None], tuple[Parts, ...]]:
    """Of round t what no reply is in: shares of the next sums, and what is kept of the state."""
    gradient = Given((), plan.gradient_scale, plan.units.weight_unit)
    sums, kept = advance(evaluator, plan.rule, t, state, gradient)
    return [evaluator.own_share(total) for total in sums], kept


# -- release --------------------------------------------------------------------------------------


def release(
    context: CkksContext, plan: ModelPlan, weights: Parts, survivors: Survivors
) -> Exchange[NDArray[np.float64]]:
    """Weights w from an encrypted w / unit: part p's coefficients are moved by p places.

    Every coefficient of the decrypted polynomial but 2k of each part is zero.

    Raises:
        ProtocolError: the shares do not fit together.
    """
    layout = plan.layout
    low, n = context.primes[:DECRYPTION_TOWERS], plan.ckks.ring_dim
    c0: Residues = np.zeros((DECRYPTION_TOWERS, n), np.uint64)
    c1 = c0
    for part, pair in enumerate(weights.pairs):
        own = (each[:DECRYPTION_TOWERS] for each in pair)
        first, second = (projection.shifted(each, low, part) for each in own)
        c0, c1 = rns.add(c0, first, low), rns.add(c1, second, low)
    request = Body(blobs=(rns.pack(c1, low),))
    _, (shares,) = yield from survivors.ask(decrypt.STEP, request, [low], n)
    message = rns.add(c0, shares, low)
    slots = []
    for part in range(layout.num_parts):
        moved = projection.shifted(message, low, -part)
        coefficients = projection.project(moved, low, layout.period)
        if max(map(abs, coefficients)) > LARGEST_SLOT * 2**plan.ckks.scale_bits:
            raise ProtocolError(
                "the decryption shares do not fit together: one is missing, doubled or of another "
                f"round{'' if plan.slot_bound else DIVERGED}"
            )
        scaled = [c / 2**plan.ckks.scale_bits for c in coefficients]
        slots.append(projection.to_slots(scaled, layout.period))
    found: NDArray[np.float64] = layout.of_parts(np.stack(slots).conj()) * plan.unit
    return found


PROTOCOL = Protocol(
    ENCRYPTED_MODEL,
    STEPS,
    coordinate,
    release_error_std,
    rounds=(model_gradient.STEP, model_refresh.STEP),
)
