"""Step `refresh/k`: interactive multiparty bootstrapping of a few ciphertexts at once.

    refresh/k -> c1 of each ciphertext (3 towers)   <- h0 (3 towers), h1 (all towers) of each

h0_p = c1 s_p - M_p and h1_p = -a' s_p + M_p + e_p, M_p uniform below the two mask primes (~119
bits); the sums give c0 + h0 = m - M and the fresh ciphertext (m - M + h1, a') of m.

Security: a' is expanded from the joint seed (see `agree`), the label and c1; the coordinator can
choose neither a' nor a c1 that is related to it. A party answers each label once; a retry gets the
cached bytes.
Error: P fresh key errors, 3.19 sqrt(P n / 2) / scale per slot: 2^-49 at ring 2^15, scale 2^59.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from protocols.circuit_plan import CircuitPlan
from protocols.ckks import residues as rns
from protocols.ckks.context import CkksContext
from protocols.ckks.evaluator import EncryptedVector, Evaluator
from protocols.ckks.parameters import REFRESH_TOWERS
from protocols.errors import MessageError
from protocols.messages import Body, Exchange
from protocols.secret_half import SecretHalf
from protocols.standing import Standing

STEP = "refresh"


def label(step: str, position: int) -> str:
    """Label of one ciphertext's refresh; step: "refresh/k", or the step that repeats it."""
    return f"{step}/{position}"


# -- party half -----------------------------------------------------------------------------------


def answer_refresh(
    context: CkksContext, secret: SecretHalf, index: int, request: Body, kind: str = STEP
) -> Body:
    """Reply to `refresh/index`; kind: of the step, where it repeats another (see `cover`).

    Raises:
        MessageError: malformed residues. PolicyError: a share was already given.
    """
    if not request.blobs:
        raise MessageError("the step `refresh` carries at least one blob")
    low = context.primes[:REFRESH_TOWERS]
    blobs = []
    for position, blob in enumerate(request.blobs):
        c1 = rns.unpack(blob, low, context.params.ring_dim)
        h0, h1 = secret.refresh_share(c1, label(f"{kind}/{index}", position))
        blobs += [rns.pack(h0, low), rns.pack(h1, context.primes)]
    return Body(blobs=tuple(blobs))


# -- coordinator half -----------------------------------------------------------------------------


def refresh(
    evaluator: Evaluator,
    plan: CircuitPlan,
    seed: bytes,
    step: int,
    public_key: Any,
    vectors: Sequence[EncryptedVector],
    standing: Standing | None = None,
) -> Exchange[tuple[EncryptedVector, ...]]:
    """The same values at level 0; every part of a vector is a ciphertext of its own.

    standing: who of the plan's parties is still there, all by default.
    """
    context, standing = evaluator.context, standing or Standing(plan)
    low, n = context.primes[:REFRESH_TOWERS], context.params.ring_dim
    shallow = [context.cc.IntMPBootAdjustScale(ct) for vector in vectors for ct in vector.cts]
    polynomials = [context.polynomials_of(ct) for ct in shallow]
    request = Body(blobs=tuple(rns.pack(c1, low) for _, c1 in polynomials))
    shapes = [low, context.primes] * len(shallow)
    answered, sums = yield from standing.ask(f"{STEP}/{step}", request, shapes, n)
    fresh, halves = [], iter(sums)
    for position, (ct, h0, h1) in enumerate(zip(shallow, halves, halves, strict=True)):
        element = context.refresh_element(seed, label(answered, position), polynomials[position][1])
        *pair, random = context.ciphertexts([[h0], [h1], [element]])
        fresh.append(context.cc.IntMPBootEncrypt(public_key, pair, random, ct))
    parts = iter(fresh)
    return tuple(evaluator.wrap(*islice(parts, len(vector.cts))) for vector in vectors)
