"""Step `decrypt`: the joint decryption of the final model, once.

    decrypt -> c1 of the masked model (2 towers)   <- d_p = c1 s_p + e_flood

The coordinator adds c0 + sum_p d_p and decodes. Every slot but one per weight is zero before.

Security: rescaled ciphertext only (noise degree 1), one share per party and run, flooded to 40
statistical bits by every party (see `protocols.ckks.flooding`); P - 1 shares give noise.
Error: `release_error_std` per weight.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import residues as rns
from protocols.ckks.context import CkksContext
from protocols.ckks.evaluator import EncryptedVector, Evaluator
from protocols.ckks.flooding import error_std, flooding_std, slot_std
from protocols.errors import MessageError, ProtocolError
from protocols.messages import Ask, Body, Exchange
from protocols.plan import RunPlan
from protocols.secret_half import SecretHalf
from protocols.wire import sum_blobs

STEP = "decrypt"
# One prime would bound the weights by 2^(first_mod_bits - scale_bits - 1).
DECRYPTION_TOWERS = 2


def model_error_std(plan: RunPlan) -> float:
    """Bound on the noise of the encrypted model before its decryption, per coefficient."""
    layout, rate = plan.layout, float(plan.update["learning_rate"])
    # Noise in a row moves its gradient by |q(z)| + |x| |q'(z)| |w| of it: 1/2 and about as much
    # again. One round moves w / R by eta / (R N) times the sum over rows, in which it adds as
    # sqrt(N).
    per_round = rate / (plan.link.radius * math.sqrt(layout.num_rows))
    return error_std(
        plan.ckks,
        len(plan.members),
        rounding_gain=plan.rule.noise_gain(),
        row_gain=plan.rounds * per_round,
    )


def flooding_of(plan: RunPlan) -> float:
    """Every party's flooding noise, std per coefficient."""
    return flooding_std(model_error_std(plan))


def release_error_std(plan: RunPlan) -> float:
    """Standard deviation of the error of each released weight: R sqrt(2 P) sigma_flood as slot.

    The 2: OpenFHE's decoder adds Gaussian noise as large as the error that it finds.
    """
    total = math.sqrt(2 * len(plan.members)) * flooding_of(plan)
    return plan.link.radius * slot_std(plan.ckks, total)


# -- party half -----------------------------------------------------------------------------------


def answer_decrypt(context: CkksContext, plan: RunPlan, secret: SecretHalf, request: Body) -> Body:
    """Reply to `decrypt`.

    Raises:
        MessageError: malformed residues. PolicyError: a share was already given.
    """
    if len(request.blobs) != 1:
        raise MessageError("the step `decrypt` carries exactly one blob")
    low = context.primes[:DECRYPTION_TOWERS]
    c1 = rns.unpack(request.blobs[0], low, context.params.ring_dim)
    share = secret.decryption_share(c1, STEP, flooding_of(plan))
    return Body(blobs=(rns.pack(share, low),))


# -- coordinator half -----------------------------------------------------------------------------


def decrypt(
    evaluator: Evaluator, plan: RunPlan, weights: EncryptedVector
) -> Exchange[NDArray[np.float64]]:
    """Weights w, shape (num_features,), from an encrypted w / R; one level for the mask.

    Raises:
        ProtocolError: the ciphertext is not rescaled, or the shares do not fit together.
    """
    context, names = evaluator.context, plan.names
    level = context.params.num_towers - DECRYPTION_TOWERS
    heads = evaluator.drop_to(evaluator.mask_heads(weights), level)
    if heads.ct.GetNoiseScaleDeg() != 1:
        raise ProtocolError("only rescaled ciphertexts are decrypted (noise degree 1)")
    c0, c1 = context.polynomials_of(heads.ct)
    low = context.primes[:DECRYPTION_TOWERS]
    request = Body(blobs=(rns.pack(c1, low),))
    replies = yield Ask(STEP, dict.fromkeys(names, request))
    shares = sum_blobs(replies, names, 0, low, context.params.ring_dim)
    slots = fuse(context, rns.add(c0, shares, low))
    return evaluator.layout.read_heads(slots) * plan.link.radius


def fuse(context: CkksContext, message: rns.Residues) -> NDArray[np.float64]:
    """Slots of the message polynomial c0 + sum_p d_p, shape (num_slots,).

    Raises:
        ProtocolError: the polynomial is no message: a share is missing, doubled or of another
            round.
    """
    try:
        plaintext = context.cc.MultipartyDecryptFusion([context.ciphertext([message])])
    except RuntimeError:
        raise ProtocolError(
            "the decryption shares do not fit together: one is missing, doubled or of another round"
        ) from None
    plaintext.SetLength(context.num_slots)
    return np.array(plaintext.GetRealPackedValue())
