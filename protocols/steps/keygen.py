"""Steps `commit-keys` to `relinearise`: the joint key ceremony, star-shaped, no leader.

The joint secret is s = sum_p s_p. All uniform halves come from the joint seed, so that nobody sends
them. Each party uploads what depends on its secret, and downloads all b_p, H0 and H1:

    commit-keys  -> {seeds}    <- digest of what `keys` will send, signed (see `commitments`)
    keys         -> {digests}  <- b_p = -a s_p + e; h0 = -a' u_p + P s_p g + e0, h1 = a' s_p + e1
    public-shares/k  -> b_p of some parties  <- {}
    rotations/k  -> {indices}  <- one b_p = -a'' s_p(X^k) + P s_p g + e per index
    commit-relinearise -> H0, H1     <- digest of what `relinearise` will send, signed for H0, H1
    relinearise        -> {digests}  <- t_p = s_p H0 + (u_p - s_p) H1 + e2

H0, H1 are the sums of all h0, h1, and (sum_p t_p, H1) is the key for s^2, with the error
s e0 + u e1 + e2 (Mouchet, Troncoso-Pastoriza, Bossuat, Hubaux, PETS 2021). Every digit of the
gadget g has its own a' and errors; u_p is a ternary secret that is forgotten after `relinearise`.

Security: s_p and u_p both stand under a', as two secrets of ring-LWE. The element H1 = a' s + e1 of
the second round depends on the secret: circular security is assumed, see
docs/method/security-argument.md.

The joint public key is (b, a), b = sum_p b_p, and no party takes it from the coordinator: it is
handed all b_p, holds each against its party's digest, and adds them up (`KeySession`).
t_p leaves its party's kernel once everybody has signed that H0 and H1 are what it was asked for.
That these are the sums is the coordinator's word, as rotation keys are. On encrypted rows parties
compute nothing under rotation keys; a coordinator that sends everybody another H0 or H1 reads s_p:
SECURITY.md says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocols.ckks import objects
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.residues import Residues
from protocols.exchange import PUBLIC_KEY, commit_of, rotation_label
from protocols.exchange.messages import Body, Exchange, to_everyone
from protocols.exchange.wire import RunningSums
from protocols.plan.circuit_plan import CircuitPlan
from protocols.plan.protocol import Request
from protocols.steps import agree, commitments, endorsed
from protocols.steps.commitments import Gathering
from protocols.steps.confirmed import View
from protocols.steps.rounds import Hold
from protocols.steps.secret_half import CircuitHalf, KeysHalf

RELINEARISE = "relinearise"
PUBLIC_SHARES = "public-shares"


def public_key(context: CkksContext, seed: bytes, b: Residues) -> Any:
    """Joint public key from the summed b and the seed's a."""
    return objects.public_key(context, b, context.uniform_polynomial(seed, PUBLIC_KEY))


# -- party half -----------------------------------------------------------------------------------


def commit(half: CircuitHalf, request: Request) -> Body:
    """Reply to `commit-keys`: makes the key share."""
    half.begin(agree.seeds_of(request.body))
    return half.keys.commit(answer_keys(half.context, half.secret))


def open_keys(half: CircuitHalf, request: Request) -> Body:
    """Reply to `keys`."""
    return half.keys.open(request.body)


def add_shares(half: CircuitHalf, request: Request) -> Body:
    """Reply to `public-shares/k`."""
    names = half.plan.member_chunks[request.index]
    half.secret.add_public_shares(names, request.body, half.keys.commitments)
    return Body()


def rotate(half: CircuitHalf, request: Request) -> Body:
    """Reply to `rotations/k`: indices from the plan, never from the request."""
    return answer_rotations(half.context, half.secret, half.plan.rotation_chunks[request.index])


def relinearise(half: CircuitHalf, request: Request) -> Hold:
    """Reply to `relinearise`: the kernel makes and keeps it."""
    return Hold(half.secret, half.secret.hold_relinearisation)


def answer_keys(context: CkksContext, secret: KeysHalf) -> Body:
    """What is committed to, then sent as reply to `keys`."""
    first = (rns.pack(half, context.key_primes) for half in secret.relinearisation_first())
    return Body(blobs=(rns.pack(secret.public_share(), context.primes), *first))


def answer_rotations(context: CkksContext, secret: KeysHalf, indices: Sequence[int]) -> Body:
    """Reply to `rotations/k`."""
    shares = (secret.rotation_share(index) for index in indices)
    return Body(blobs=tuple(rns.pack(share, context.key_primes) for share in shares))


# -- coordinator half -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JointKeys:
    """What the ceremony makes.

    public_b: the public key's b, summed; endorsements: everyone's, of the key shares;
    relinearisation: (H1, sum_p t_p); rotations: the summed b of each rotation key.
    """

    public_b: Residues
    endorsements: Body
    relinearisation: tuple[Residues, Residues]
    rotations: Mapping[int, Residues]

    def load(self, context: CkksContext, seed: bytes) -> None:
        """Make the evaluation keys usable in this context."""
        load_keys(context, seed, self.relinearisation, self.rotations)


def load_keys(
    context: CkksContext,
    seed: bytes,
    relinearisation: tuple[Residues, Residues],
    rotations: Mapping[int, Residues],
) -> None:
    """Make joint evaluation keys usable; arguments as in `JointKeys`."""
    maps = [
        context.rotation_key_map(index, context.uniform_key_half(seed, rotation_label(index)), b)
        for index, b in rotations.items()
    ]
    context.load_evaluation_keys(context.evaluation_key(*relinearisation), maps)


def ceremony(
    context: CkksContext, plan: CircuitPlan, seed: bytes, seeds: Mapping[str, str], view: View
) -> Exchange[JointKeys]:
    """Run the ceremony, load the joint evaluation keys; view: of what everyone was asked.

    Raises:
        ProtocolError: a party sent other shares than it committed to, or malformed ones; names it.
    """
    names, n = plan.names, context.params.ring_dim
    primes = context.key_primes
    sums = RunningSums(names, [context.primes, primes, primes], n)
    shares: dict[str, tuple[bytes, list[str]]] = {}

    def fold(name: str, body: Body) -> Body:
        kept = sums.fold(name, body)
        shares[name] = body.blobs[0], list(body.digests[1:])
        return kept

    terms = endorsed.KEYS.terms(seed, plan.roster)
    request = Body({"seeds": dict(seeds)})
    endorsements = yield from commitments.opened(terms, request, fold)
    public_b, h0, h1 = sums.of({})
    for k, chunk in enumerate(plan.member_chunks):
        others = {name: shares[name][1] for name in chunk}
        request = Body({"others": others}, tuple(shares.pop(name)[0] for name in chunk))
        yield to_everyone(f"{PUBLIC_SHARES}/{k}", names, request)

    rotations: dict[int, Residues] = {}
    for k, indices in enumerate(plan.rotation_chunks):
        sums = RunningSums(names, [primes] * len(indices), n)
        request = Body({"indices": list(indices)})
        replies = yield to_everyone(f"rotations/{k}", names, request, sums.fold)
        rotations.update(zip(indices, sums.of(replies), strict=True))

    sums = RunningSums(names, [primes], n)
    request = Body(blobs=(rns.pack(h0, primes), rns.pack(h1, primes)))
    replies = yield to_everyone(commit_of(RELINEARISE), names, request)
    gathering = Gathering(
        endorsed.of_round(plan.roster, RELINEARISE, seed, (), view.digest), sums.fold
    )
    whole = gathering.committed(replies)
    replies = yield to_everyone(RELINEARISE, names, whole, gathering.take)
    gathering.endorsed(replies)
    (t,) = sums.of(replies)
    keys = JointKeys(public_b, endorsements, (h1, t), rotations)
    keys.load(context, seed)
    return keys
