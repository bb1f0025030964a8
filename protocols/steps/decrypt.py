"""Step `decrypt`: the joint decryption of the final model, once.

    commit-decrypt -> c1 of the masked model (2 towers)   <- a digest, signed
    decrypt        -> all digests                         <- d_p = c1 s_p + e_flood

The coordinator adds c0 + sum_p d_p and decodes. Every slot but one per weight is zero before.

Security: nobody sends a share before all have signed that they were asked for the same c1. It is a
linear image, by public numbers, of a refresh's output, whose element is a hash; of Gram sums it may
be one product further. Rescaled ciphertext only (noise degree 1), one share per party and run,
flooded to 40 statistical bits by every party (see `protocols.ckks.flooding`); P - 1 shares give
noise.
Error: `release_error_std` per weight.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import DECRYPTION_TOWERS
from protocols.ckks import residues as rns
from protocols.ckks.circuits.coefficients import coefficients
from protocols.ckks.circuits.errors import drawn_std, slot_std
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.flooding import Flooding
from protocols.ckks.transform import to_slots
from protocols.errors import ProtocolError
from protocols.exchange.messages import Body, Exchange
from protocols.numerics.slot_bounds import LARGEST_SLOT
from protocols.plan import kinds
from protocols.plan.circuit_plan import CircuitPlan
from protocols.plan.protocol import Request
from protocols.steps.rounds import Hold
from protocols.steps.secret_half import CircuitHalf
from protocols.steps.survivors import Survivors

STEP = "decrypt"
DIVERGED = (
    "; or the training diverged: lower the learning rate or the iterations, or take --update "
    "barrier"
)


def flooding_of(plan: CircuitPlan) -> Flooding:
    """Every party's flooding noise: tau = 2 with cover (see `cover`)."""
    errors = (
        kinds.shown_error_std(plan),
        kinds.model_error_std(plan),
    )
    return Flooding.of(plan.shown, plan.ckks.ring_dim, *errors, plan.decryptions)


def release_error_std(plan: CircuitPlan) -> float:
    """Std of the error of each released weight: unit * sqrt(P) sigma_shown as slot."""
    total = math.sqrt(len(plan.members)) * drawn_std(flooding_of(plan))
    return plan.decoded_gain * plan.unit * slot_std(plan.ckks, total)


# -- party half -----------------------------------------------------------------------------------


def share(half: CircuitHalf, request: Request) -> Hold:
    """Reply to `decrypt`, or to the step that repeats it: the kernel makes and keeps it."""
    return Hold(half.secret, half.secret.hold_decryption)


# -- coordinator half -----------------------------------------------------------------------------


def decrypt(
    context: CkksContext,
    plan: CircuitPlan,
    heads: EncryptedVector,
    survivors: Survivors,
) -> Exchange[NDArray[np.float64]]:
    """Slots of a ciphertext that is zero wherever nothing is released, times the plan's unit.

    heads: at DECRYPTION_TOWERS towers, see `Evaluator.drop_to`; survivors: the plan's parties that
    are still there.

    Raises:
        ProtocolError: the ciphertext is not rescaled, or the shares do not fit together.
    """
    if heads.ct.GetNoiseScaleDeg() != 1:
        raise ProtocolError("only rescaled ciphertexts are decrypted (noise degree 1)")
    c0, c1 = context.polynomials_of(heads.ct)
    low = context.primes[:DECRYPTION_TOWERS]
    request = Body(blobs=(rns.pack(c1, low),))
    _, (shares,) = yield from survivors.ask(STEP, request, [low], context.params.ring_dim)
    try:
        found: NDArray[np.float64] = fuse(context, rns.add(c0, shares, low)) * plan.unit
        return found
    except ProtocolError as error:
        # Without a proof that the model fits its slots it may have outgrown them.
        raise ProtocolError(f"{error}{'' if plan.slot_bound else DIVERGED}") from None


def release(
    evaluator: Evaluator,
    plan: CircuitPlan,
    heads: EncryptedVector,
    survivors: Survivors,
) -> Exchange[NDArray[np.float64]]:
    """Weights w, shape (num_features,), from an encrypted w / unit as in `Layout.heads`."""
    level = evaluator.context.params.num_towers - DECRYPTION_TOWERS
    low = evaluator.drop_to(heads, level)
    slots = yield from decrypt(evaluator.context, plan, low, survivors)
    found: NDArray[np.float64] = evaluator.layout.read_heads(slots)
    return found


def fuse(context: CkksContext, message: rns.Residues) -> NDArray[np.float64]:
    """Slots of the message polynomial c0 + sum_p d_p, shape (num_slots,).

    Raises:
        ProtocolError: the polynomial is no message: a share is missing, doubled or of another
            round, or the model has outgrown its slots.
    """
    scale = 2.0**context.params.scale_bits
    found = coefficients(message, context.primes[:DECRYPTION_TOWERS])
    # Modulo both primes a wrong sum is uniform, some 2^27 times as large.
    if np.abs(found).max() > LARGEST_SLOT * scale:
        raise ProtocolError(
            "the decryption shares do not fit together: one is missing, doubled or of another round"
        )
    slots: NDArray[np.float64] = to_slots(found).real / scale
    return slots
