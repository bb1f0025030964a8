"""Step `refresh/t` of an encrypted model: fresh sums over the columns of what was added up.

    refresh/t -> c1 of each (3 towers)      <- h0 (3 towers), h1 (all towers) of each, {words}

h0_p = c1 s_p - M_p, locked, and h1_p = -a' s_p + T(M_p) + e_p, see `steps.refresh`. Different is:

- T (`ckks.subring`) sees 2k coefficients. M_p is uniform modulo the refresh's primes on all
  others, and an integer in the room of `ckks.sampling` on these;
- T rounds, so that results are at level 0, without a rescaling;
- shares are not committed to. What a party chooses last is c0 of the fresh vector; every c1 that a
  secret meets later has fresh encryptions of the next round in it, fixed after that. (Of two
  vectors in one refresh, the difference of both c1 has none: rules that refresh two are linear, so
  it is a public combination of random elements alone.) A repetition is committed to: who stands in
  for whom is confirmed first.

Security: a party answers once everyone has endorsed the digests that it was shown for `gradient/t`,
and its h0 opens where the kernels of all who are left were asked for the same c1 (`steps.locks`): a
kernel that alone is asked for another one, whoever drives it, shows nothing. That the c1 of all is
made of the replies that fit the digests is the coordinator's word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from protocols.ckks import REFRESH_TOWERS, subring
from protocols.ckks import residues as rns
from protocols.ckks.circuits import projection
from protocols.ckks.circuits.side_by_side import Pair, Parts
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.residues import Residues
from protocols.ckks.subring import TraceMap
from protocols.errors import MessageError, ProtocolError
from protocols.exchange.messages import Body, Exchange
from protocols.exchange.wire import residues_of
from protocols.model.plan import ModelPlan
from protocols.plan.protocol import Request
from protocols.steps.locks import CHECK, WORDS, Lock
from protocols.steps.refresh import label
from protocols.steps.survivors import Survivors

STEP = "refresh"

# -- party half -----------------------------------------------------------------------------------


def share(half: Any, request: Request) -> Body:
    """Reply to `refresh/t`, or to the step that repeats it.

    Raises:
        MessageError: malformed residues, or another number of polynomials than the plan has.
    """
    plan, context = half.plan, half.context
    maps = plan.column_maps(request.index)
    if len(request.body.blobs) != len(maps):
        raise MessageError(f"{len(request.body.blobs)} ciphertexts to refresh, {len(maps)} are due")
    low, step = context.primes[:REFRESH_TOWERS], f"{request.kind}/{request.index}"
    given = residues_of(request.body, context, low)
    reply: Body = half.session.refresh(maps, step, Body(blobs=request.body.blobs))
    # The next point is the first of the new vectors.
    elements = [context.refresh_label(label(step, k), c1) for k, c1 in enumerate(given)]
    half.elements = elements[: plan.layout.num_parts]
    return reply


# -- coordinator half -----------------------------------------------------------------------------


def joined(
    context: CkksContext, c0: Residues, h0: Residues, h1: Residues, trace_map: TraceMap
) -> Residues:
    """c0 of the fresh ciphertext, from that of the old one and the sums of both shares."""
    low = context.primes[:REFRESH_TOWERS]
    hidden = projection.project(rns.add(c0, h0, low), low, trace_map.period)
    mapped = subring.embed(trace_map.apply(hidden), context.primes, context.params.ring_dim)
    return rns.add(mapped, h1, context.primes)


def refresh(
    context: CkksContext,
    plan: ModelPlan,
    seed: bytes,
    step: int,
    vectors: Sequence[Sequence[Pair]],
    survivors: Survivors,
) -> Exchange[tuple[Parts, ...]]:
    """Through the step's maps: fresh vectors at level 0, part by part."""
    low, n = context.primes[:REFRESH_TOWERS], plan.ckks.ring_dim
    pairs = [pair for vector in vectors for pair in vector]
    request = Body(blobs=tuple(rns.pack(c1, low) for _, c1 in pairs))
    shapes = [low, context.primes] * len(pairs)
    answered, sums = yield from survivors.ask(f"{STEP}/{step}", request, shapes, n)
    hiding = streams_of(survivors.replies, len(pairs), low, n)
    fresh = []
    for k, ((c0, c1), trace_map) in enumerate(zip(pairs, plan.column_maps(step), strict=True)):
        h0 = rns.subtract(sums[2 * k], hiding[k], low)
        first = joined(context, c0, h0, sums[2 * k + 1], trace_map)
        fresh.append(
            [first, context.uniform_polynomial(seed, context.refresh_label(label(answered, k), c1))]
        )
    made = iter(fresh)
    return tuple(Parts(list(islice(made, len(vector)))) for vector in vectors)


def streams_of(
    replies: Mapping[str, Body], count: int, primes: Sequence[int], ring_dim: int
) -> list[Residues]:
    """Sums over parties of what hides their replies; replies: of all who are left, in order.

    Raises:
        ProtocolError: words are missing, or some party was asked for something else, or lies.
    """
    said = {name: _words(name, reply) for name, reply in replies.items()}
    totals = [rns.zeros(len(primes), ring_dim)] * count
    for name, reply in replies.items():
        if not isinstance(reply.meta.get(CHECK), str):
            raise ProtocolError(f"party {name!r} did not lock its share", culprit=name)
        others = [given.get(name) for other, given in said.items() if other != name]
        lock = Lock.of([each for each in others if each is not None])
        if None in others or lock.check != reply.meta.get(CHECK):
            raise ProtocolError(
                f"the share of party {name!r} does not open: it was asked for another ciphertext "
                "than the others, or one of them lies; do not go on with this run"
            )
        own = lock.streams(count, primes, ring_dim)
        totals = [rns.add(total, each, primes) for total, each in zip(totals, own, strict=True)]
    return totals


def _words(name: str, reply: Body) -> dict[str, bytes]:
    found: Any = reply.meta.get(WORDS)
    try:
        return {str(other): bytes.fromhex(text) for other, text in found.items()}
    except (AttributeError, TypeError, ValueError):
        raise ProtocolError(f"party {name!r} gave no words for the others", culprit=name) from None
