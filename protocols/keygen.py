"""Steps `keys`, `rotations/k` and `square`: the joint key ceremony, star-shaped, no leader.

The joint secret is s = sum_p s_p. All uniform halves come from the joint seed, so that parties
upload only what depends on their secret, and download next to nothing:

    keys         -> {seeds}       <- b_p = -a s_p + e;  r_p = -a' s_p + P s_p + e'
    rotations/k  -> {indices}     <- one b_p per index
    square       -> sum_p r_p     <- (a' s_p + e, r s_p + e')         summed: the key for s^2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocols.circuit_plan import CircuitPlan
from protocols.ckks import residues as rns
from protocols.ckks.context import CkksContext
from protocols.ckks.residues import Residues
from protocols.errors import MessageError
from protocols.messages import Body, Exchange, to_everyone
from protocols.secret_half import SecretHalf
from protocols.wire import RunningSums

PUBLIC_KEY = "public-key"
RELINEARISATION = "relinearisation"


def rotation_label(index: int) -> str:
    """Label of a rotation key's uniform half."""
    return f"rotation/{index}"


def public_key(context: CkksContext, seed: bytes, b: Residues) -> Any:
    """Joint public key from the summed b and the seed's a."""
    return context.public_key(b, context.uniform_polynomial(seed, PUBLIC_KEY))


# -- party half -----------------------------------------------------------------------------------


def answer_keys(context: CkksContext, secret: SecretHalf) -> Body:
    """Reply to `keys`."""
    return Body(
        blobs=(
            rns.pack(secret.public_share(), context.primes),
            rns.pack(secret.relinearisation_share(), context.key_primes),
        )
    )


def answer_rotations(context: CkksContext, secret: SecretHalf, indices: Sequence[int]) -> Body:
    """Reply to `rotations/k`."""
    shares = (secret.rotation_share(index) for index in indices)
    return Body(blobs=tuple(rns.pack(share, context.key_primes) for share in shares))


def answer_square(context: CkksContext, secret: SecretHalf, request: Body) -> Body:
    """Reply to `square`.

    Raises:
        MessageError: the request holds no well-formed sum.
    """
    if len(request.blobs) != 1:
        raise MessageError("the step `square` carries exactly one blob")
    joint = rns.unpack(request.blobs[0], context.key_primes, context.params.ring_dim)
    a, b = secret.relinearisation_square(joint)
    return Body(blobs=(rns.pack(a, context.key_primes), rns.pack(b, context.key_primes)))


# -- coordinator half -----------------------------------------------------------------------------


def ceremony(
    context: CkksContext, plan: CircuitPlan, seed: bytes, seeds: Mapping[str, str]
) -> Exchange[Residues]:
    """Run the ceremony, load the joint evaluation keys, return the summed b of the public key."""
    names, n = plan.names, context.params.ring_dim
    primes = context.key_primes
    sums = RunningSums(names, [context.primes, primes], n)
    replies = yield to_everyone("keys", names, Body({"seeds": dict(seeds)}), sums.fold)
    public_b, first = sums.of(replies)

    rotations = []
    for k, indices in enumerate(plan.rotation_chunks):
        sums = RunningSums(names, [primes] * len(indices), n)
        request = Body({"indices": list(indices)})
        replies = yield to_everyone(f"rotations/{k}", names, request, sums.fold)
        for index, b in zip(indices, sums.of(replies), strict=True):
            a = context.uniform_key_half(seed, rotation_label(index))
            rotations.append(context.rotation_key_map(index, a, b))

    sums = RunningSums(names, [primes, primes], n)
    replies = yield to_everyone("square", names, Body(blobs=(rns.pack(first, primes),)), sums.fold)
    a, b = sums.of(replies)
    context.load_evaluation_keys(context.evaluation_key(a, b), rotations)
    return public_b
