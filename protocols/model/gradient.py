"""Steps `evaluation-keys/k`, `gradient/t`: the encrypted model down, encrypted gradients up.

    evaluation-keys/0  -> H1, sum_p t_p of the relinearisation key     <- {}
    evaluation-keys/k  -> the summed b of some rotation keys           <- {}
    commit-gradient/0  -> nothing: the model is zero                   <- a digest, signed
    commit-gradient/t  -> c0 of each part of the point                 <- a digest, signed
    gradient/t         -> all digests                                  <- (c0, c1) of each part

A part's reply, at REFRESH_TOWERS towers, is

    X o q(Enc(w)) + Enc(label term + noise, repeated) + (kernel + pad, 0)          `clear_rows`

with a fresh encryption under the joint public key. c1 of the point does not travel: it is the
random element of the last refresh, which everybody has from the joint seed.

Security of a reply
- c1 of X o q(Enc(w)) is a public function of private rows. The fresh encryption adds a v + e1 to it
  and b v + e0 to c0, v new for each ciphertext: ring-LWE samples under the joint key, to whoever
  lacks one honest party's share. A label is encrypted under once; a retry resends the bytes.
- `subring.outside` is uniform on all coefficients but the 2k that a sum over columns has. What a
  refresh shows of a row is nothing, whatever its masks are.
- It is fixed before any reply of the round is seen (`commitments`), so c1 of the sum, which the
  refresh multiplies secrets by, holds an a v that nobody else's reply depends on.
- On those 2k, pads that cancel (`pads`), under a label that holds the view: they cancel only among
  parties that were asked the same. So c0 of a reply is uniform, and no single reply is a
  ciphertext of anything: a copy, or a multiple, of one in another party's reply is noise.
- Noise is inside: each party adds N chi_(p,t) to its own sum before it encrypts, `contribute`.
- Evaluation keys and c0 are the coordinator's word. Another point, or other keys, changes what the
  sum of all replies says, not how one reply is hidden: SECURITY.md, "Not prevented, detected".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from protocols.ckks import REFRESH_TOWERS
from protocols.ckks import residues as rns
from protocols.ckks.circuits.side_by_side import Pair, Parts
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.residues import Residues
from protocols.errors import MessageError, ProtocolError
from protocols.exchange.messages import Body, Exchange, to_everyone
from protocols.exchange.wire import residues_of
from protocols.model.plan import ModelPlan
from protocols.plan.protocol import Request
from protocols.steps.keygen import JointKeys
from protocols.steps.survivors import Survivors

KEYS, STEP = "evaluation-keys", "gradient"


class ModelHalf(Protocol):
    """One party of a run; see `parties.verifier.encrypted_model.EncryptedModelParty`."""

    plan: ModelPlan
    seed: bytes
    context: CkksContext

    def take_keys(self, index: int, keys: Sequence[Residues]) -> None:
        """Keep some of the evaluation keys; the last ones are loaded with all others."""
        ...

    def gradient(self, t: int, label: str, point: Sequence[Residues]) -> list[list[Residues]]:
        """(c0, c1) of each part of the reply; point: c0 of each part, empty for zero weights."""
        ...


# -- party half -----------------------------------------------------------------------------------


def take_keys(half: ModelHalf, request: Request) -> Body:
    """Reply to `evaluation-keys/k`.

    Raises:
        MessageError: other keys than the plan has.
    """
    plan, primes, index = half.plan, half.context.key_primes, request.index
    due = len(plan.rotation_chunks[index - 1]) if index else 2
    if len(request.body.blobs) != due:
        raise MessageError(f"{len(request.body.blobs)} halves of evaluation keys, {due} are due")
    half.take_keys(index, residues_of(request.body, half.context, primes))
    return Body()


def answer(half: ModelHalf, request: Request) -> Body:
    """Reply to `gradient/t`, or to the step that repeats it.

    Raises:
        MessageError: malformed residues, or another number of parts than the plan has.
        PolicyError: a repetition at another point than the first time.
    """
    plan, t, blobs = half.plan, request.index, request.body.blobs
    due = plan.layout.num_parts if t else 0
    if len(blobs) != due:
        raise MessageError(f"{len(blobs)} parts of a point, {due} are due")
    primes = half.context.primes
    point = residues_of(request.body, half.context, primes)
    parts = half.gradient(t, f"{request.kind}/{t}", point)
    low = primes[:REFRESH_TOWERS]
    return Body(blobs=tuple(rns.pack(each, low) for part in parts for each in part))


# -- coordinator half -----------------------------------------------------------------------------


def hand_out(context: CkksContext, plan: ModelPlan, keys: JointKeys) -> Exchange[None]:
    """Send everyone the joint evaluation keys."""
    primes = context.key_primes
    chunks = [keys.relinearisation, *([keys.rotations[i] for i in c] for c in plan.rotation_chunks)]
    for k, halves in enumerate(chunks):
        request = Body(blobs=tuple(rns.pack(half, primes) for half in halves))
        yield to_everyone(f"{KEYS}/{k}", plan.names, request)


class Older:
    """Points and sums of gradients up to now: no reply is a multiple of one of them.

    A party encrypts afresh, so c1 of an honest reply is none but with a probability of 2^-100. A
    multiple beside a fresh encryption looks like any other reply: it is not found.

    prime: first one of the replies.
    """

    def __init__(self, prime: int) -> None:
        self._prime, self._known = prime, set[tuple[int, ...]]()

    def note(self, polynomials: Iterable[Residues]) -> None:
        """c1 that are public from now on."""
        self._known |= {self._ratios(c1) for c1 in polynomials}

    def check(self, name: str, position: int, polynomial: Residues) -> None:
        """Refuse a party's reply whose c1, in odd places, is a multiple of a known one.

        Raises:
            ProtocolError: names the party.
        """
        if position % 2 and self._ratios(polynomial) in self._known:
            raise ProtocolError(
                f"the gradient of party {name!r} is a multiple of what was public before: it is "
                "not made of its rows; do not go on with it",
                culprit=name,
            )

    def _ratios(self, c1: Residues) -> tuple[int, ...]:
        """Equal for c1 and its multiples by integers: two values over a third."""
        first, *others = map(int, c1[0][:3])
        inverse = pow(first, -1, self._prime) if first else 0
        return tuple(other * inverse % self._prime for other in others)


def total(
    context: CkksContext,
    plan: ModelPlan,
    survivors: Survivors,
    t: int,
    point: Parts,
    older: Older,
    meanwhile: Callable[[], object] | None = None,
) -> Exchange[list[Pair]]:
    """The sum of everyone's gradients at a point, (c0, c1) of each part.

    point: as the last refresh left it; not asked for at t = 0, where it is zero; older: of the
    rounds before; meanwhile: see `messages.Ask`.

    Raises:
        ProtocolError: a reply is a multiple of what was public before; names its party.
    """
    low, n = context.primes[:REFRESH_TOWERS], plan.ckks.ring_dim
    blobs = tuple(rns.pack(c0, context.primes) for c0, _ in (point.pairs if t else ()))
    shapes = [low] * (2 * plan.layout.num_parts)
    if t:
        older.note([c1 for _, c1 in point.pairs])
    _, sums = yield from survivors.ask(
        f"{STEP}/{t}", Body(blobs=blobs), shapes, n, meanwhile, older.check
    )
    older.note(sums[1::2])
    return list(zip(sums[0::2], sums[1::2], strict=True))
