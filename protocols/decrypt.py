"""Step `decrypt`: the joint decryption of the final model, once.

    decrypt -> c1 of the masked model (1 tower)   <- d_p = c1 s_p + e_smudge

The coordinator adds c0 + sum_p d_p and decodes. Every slot but one per weight is zero before.

Security: rescaled ciphertext only (noise degree 1), one share per party and run; P - 1 shares give
noise. Error: sqrt(P) * 2^20 per coefficient.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import residues as rns
from protocols.ckks.context import CkksContext
from protocols.ckks.evaluator import EncryptedVector, Evaluator
from protocols.errors import MessageError, ProtocolError
from protocols.messages import Ask, Body, Exchange
from protocols.plan import RunPlan
from protocols.secret_half import SecretHalf
from protocols.wire import sum_blobs

STEP = "decrypt"


# -- party half -------------------------------------------------------------------------------------


def answer_decrypt(context: CkksContext, secret: SecretHalf, request: Body) -> Body:
    """Reply to `decrypt`.

    Raises:
        MessageError: malformed residues. PolicyError: a share was already given.
    """
    if len(request.blobs) != 1:
        raise MessageError("the step `decrypt` carries exactly one blob")
    low = context.primes[:1]
    c1 = rns.unpack(request.blobs[0], low, context.params.ring_dim)
    return Body(blobs=(rns.pack(secret.decryption_share(c1, STEP), low),))


# -- coordinator half -------------------------------------------------------------------------------


def decrypt(
    evaluator: Evaluator, plan: RunPlan, weights: EncryptedVector
) -> Exchange[NDArray[np.float64]]:
    """Weights, shape (num_features,), of a replicated encrypted vector; one level for the mask.

    Raises:
        ProtocolError: the ciphertext is not rescaled, or the shares do not fit together.
    """
    context, names = evaluator.context, plan.names
    heads = evaluator.drop_to(evaluator.mask_heads(weights), context.params.depth)
    if heads.ct.GetNoiseScaleDeg() != 1:
        raise ProtocolError("only rescaled ciphertexts are decrypted (noise degree 1)")
    c0, c1 = context.polynomials_of(heads.ct)
    low = context.primes[:1]
    request = Body(blobs=(rns.pack(c1, low),))
    replies = yield Ask(STEP, dict.fromkeys(names, request))
    shares = sum_blobs(replies, names, 0, low, context.params.ring_dim)
    slots = fuse(context, rns.add(c0, shares, low))
    return evaluator.layout.read_heads(slots)


def fuse(context: CkksContext, message: np.typing.NDArray[np.uint64]) -> NDArray[np.float64]:
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
