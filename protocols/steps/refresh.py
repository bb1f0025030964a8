"""Step `refresh/k`: interactive multiparty bootstrapping of a few ciphertexts at once.

    commit-refresh/k -> c1 of each ciphertext (3 towers)   <- a digest, signed
    refresh/k        -> all digests                        <- h0 (3 towers), h1 (all towers) of each

h0_p = c1 s_p - M_p and h1_p = -a' s_p + M_p + e_p, M_p uniform in the room of the three primes
(about 177 - log2 P bits, see `ckks/sampling.py`); the sums give c0 + h0 = m - M and the fresh
ciphertext (m - M + h1, a') of m.

Where the plan names a public map T (`ckks/column_map.py`), parties send h1_p = -a' s_p + T(M_p) +
e_p and the coordinator has (T(m - M) + h1, a') of T(m), at twice the scale: one level for its
rescaling (Mouchet, Troncoso-Pastoriza, Bossuat, Hubaux, PETS 2021, "masked transform").

Security: shares are fixed before any is seen (`commitments`): their sum is c0 of the fresh
ciphertext, and products bring it into a later c1. a' is expanded from the joint seed (see `agree`),
the label and c1; the coordinator can choose neither a' nor a c1 that is related to it. A party
answers each label once; a retry gets the
cached bytes.
T plays no part in that: h1_p is T(M_p) under a one-time pad of learning with errors, whatever T is.
A coefficient of h0 is within |m| / 2^k of uniform, k the mask's bits: 2^-116 for |m| = 2^60 and
three parties, 2^-94 for all coefficients of 128 refreshed ciphertexts at ring 2^15.
Error: P fresh key errors, 3.19 sqrt(P n / 2) / scale per slot: 2^-49 at ring 2^15, scale 2^59;
through a map, one rescaling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from protocols.ckks import REFRESH_TOWERS
from protocols.ckks import residues as rns
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.column_map import ColumnMap
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.residues import Residues, each
from protocols.exchange.messages import Body, Exchange
from protocols.plan.circuit_plan import CircuitPlan, ColumnMaps
from protocols.plan.protocol import Request
from protocols.steps.rounds import Hold
from protocols.steps.secret_half import CircuitHalf
from protocols.steps.survivors import Survivors

STEP = "refresh"
# The same values at level 0, or what the step's map makes of them; numbers its own steps.
Refresh = Callable[[Sequence[EncryptedVector]], Exchange[tuple[EncryptedVector, ...]]]


def label(step: str, position: int) -> str:
    """Label of one ciphertext's refresh; step: "refresh/k", or the step that repeats it."""
    return f"{step}/{position}"


# -- party half -----------------------------------------------------------------------------------


def share(half: CircuitHalf, request: Request) -> Hold:
    """Reply to `refresh/k`, or to the step that repeats it: the kernel makes and keeps it."""
    maps = tuple(half.plan.column_maps(request.index))
    return Hold(half.secret, partial(half.session.hold_refresh, maps))


# -- coordinator half -----------------------------------------------------------------------------


def refresh(
    evaluator: Evaluator,
    plan: CircuitPlan,
    seed: bytes,
    step: int,
    public_key: Any,
    vectors: Sequence[EncryptedVector],
    survivors: Survivors,
) -> Exchange[tuple[EncryptedVector, ...]]:
    """The same values at level 0, or through the step's map at level 1, part by part.

    vectors: what the plan's `refreshes` and `column_maps` say of this step; survivors: who of the
    plan's parties is still there.
    """
    context = evaluator.context
    low, n = context.primes[:REFRESH_TOWERS], context.params.ring_dim
    shallow = [context.cc.IntMPBootAdjustScale(ct) for vector in vectors for ct in vector.cts]
    polynomials = [context.polynomials_of(ct) for ct in shallow]
    request = Body(blobs=tuple(rns.pack(c1, low) for _, c1 in polynomials))
    shapes = [low, context.primes] * len(shallow)
    answered, sums = yield from survivors.ask(f"{STEP}/{step}", request, shapes, n)
    labelled = [(label(answered, k), c1) for k, (_, c1) in enumerate(polynomials)]
    elements = [
        context.uniform_polynomial(seed, context.refresh_label(name, c1)) for name, c1 in labelled
    ]
    shares = list(zip(sums[0::2], sums[1::2], elements, strict=True))
    parts = iter(join(context, public_key, shallow, plan.column_maps(step), shares))
    return tuple(evaluator.wrap(*islice(parts, len(vector.cts))) for vector in vectors)


def join(
    context: CkksContext,
    public_key: Any,
    shallow: Sequence[Any],
    maps: ColumnMaps,
    shares: Sequence[tuple[Residues, Residues, Residues]],
) -> list[Any]:
    """(m - M + h1, a'), or rescaled (T(m - M) + h1, a'), of each; shares: (h0, h1, a')."""
    through = [column_map for column_map, _ in zip(maps, shallow, strict=False)]
    lifted = []
    for ct, column_map, share in zip(shallow, through, shares, strict=True):
        wanted = share if column_map is None else share[:1]
        h0, *rest = (context.ciphertext([part]) for part in wanted)
        h1, random = rest or (context.nothing(), context.nothing())
        lifted.append(context.cc.IntMPBootEncrypt(public_key, [h0, h1], random, ct))

    def mapped(column_map: ColumnMap, masked: Residues, h1: Residues) -> Residues:
        primes = context.primes
        return rns.add(column_map.apply(masked, primes, primes[-1]), h1, primes)

    going = [k for k, column_map in enumerate(through) if column_map is not None]
    for k in going:
        lifted[k].RemoveElement(1)
    masked = [context.residues_of(lifted[k]) for k in going]
    first = each(mapped, [through[k] for k in going], masked, [shares[k][1] for k in going])
    products = [[c0, shares[k][2]] for c0, k in zip(first, going, strict=True)]
    rescaled = iter(context.products(products))
    return [
        ct if column_map is None else context.cc.Rescale(next(rescaled))
        for ct, column_map in zip(lifted, through, strict=True)
    ]
