"""Steps `keys`, `rotations/k` and `relinearise`: the joint key ceremony, star-shaped, no leader.

The joint secret is s = sum_p s_p. All uniform halves come from the joint seed, so that parties
upload only what depends on their secret, and download next to nothing:

    keys         -> {seeds}    <- b_p = -a s_p + e; h0 = -a' u_p + P s_p g + e0, h1 = a' s_p + e1
    rotations/k  -> {indices}  <- one b_p = -a'' s_p(X^k) + P s_p g + e per index
    relinearise  -> H0, H1     <- t_p = s_p H0 + (u_p - s_p) H1 + e2

H0, H1 are the sums of all h0, h1, and (sum_p t_p, H1) is the key for s^2, with the error
s e0 + u e1 + e2 (Mouchet, Troncoso-Pastoriza, Bossuat, Hubaux, PETS 2021). Every digit of the
gadget g has its own a' and errors; u_p is a ternary secret that is forgotten after `relinearise`.

Security: s_p and u_p both stand under a', as two secrets of ring-LWE. The element H1 = a' s + e1 of
the second round depends on the secret: circular security is assumed, see docs/security-argument.md.
H0 and H1 are the coordinator's word. One that sends others reads s_p: SECURITY.md says so.
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
RELINEARISE = "relinearise"


def rotation_label(index: int) -> str:
    """Label of a rotation key's uniform half."""
    return f"rotation/{index}"


def public_key(context: CkksContext, seed: bytes, b: Residues) -> Any:
    """Joint public key from the summed b and the seed's a."""
    return context.public_key(b, context.uniform_polynomial(seed, PUBLIC_KEY))


# -- party half -----------------------------------------------------------------------------------


def answer_keys(context: CkksContext, secret: SecretHalf) -> Body:
    """Reply to `keys`."""
    first = (rns.pack(half, context.key_primes) for half in secret.relinearisation_first())
    return Body(blobs=(rns.pack(secret.public_share(), context.primes), *first))


def answer_rotations(context: CkksContext, secret: SecretHalf, indices: Sequence[int]) -> Body:
    """Reply to `rotations/k`."""
    shares = (secret.rotation_share(index) for index in indices)
    return Body(blobs=tuple(rns.pack(share, context.key_primes) for share in shares))


def answer_relinearise(context: CkksContext, secret: SecretHalf, request: Body) -> Body:
    """Reply to `relinearise`.

    Raises:
        MessageError: the request holds no two well-formed sums.
    """
    if len(request.blobs) != 2:
        raise MessageError(f"the step `{RELINEARISE}` carries exactly two blobs")
    primes, n = context.key_primes, context.params.ring_dim
    h0, h1 = (rns.unpack(blob, primes, n) for blob in request.blobs)
    return Body(blobs=(rns.pack(secret.relinearisation_second(h0, h1), primes),))


# -- coordinator half -----------------------------------------------------------------------------


def ceremony(
    context: CkksContext, plan: CircuitPlan, seed: bytes, seeds: Mapping[str, str]
) -> Exchange[Residues]:
    """Run the ceremony, load the joint evaluation keys, return the summed b of the public key."""
    names, n = plan.names, context.params.ring_dim
    primes = context.key_primes
    sums = RunningSums(names, [context.primes, primes, primes], n)
    replies = yield to_everyone("keys", names, Body({"seeds": dict(seeds)}), sums.fold)
    public_b, h0, h1 = sums.of(replies)

    rotations = []
    for k, indices in enumerate(plan.rotation_chunks):
        sums = RunningSums(names, [primes] * len(indices), n)
        request = Body({"indices": list(indices)})
        replies = yield to_everyone(f"rotations/{k}", names, request, sums.fold)
        for index, b in zip(indices, sums.of(replies), strict=True):
            a = context.uniform_key_half(seed, rotation_label(index))
            rotations.append(context.rotation_key_map(index, a, b))

    sums = RunningSums(names, [primes], n)
    request = Body(blobs=(rns.pack(h0, primes), rns.pack(h1, primes)))
    (t,) = sums.of((yield to_everyone(RELINEARISE, names, request, sums.fold)))
    context.load_evaluation_keys(context.evaluation_key(h1, t), rotations)
    return public_b
