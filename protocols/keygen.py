"""Steps `commit-keys` to `relinearise`: the joint key ceremony, star-shaped, no leader.

The joint secret is s = sum_p s_p. All uniform halves come from the joint seed, so that nobody sends
them. Each party uploads what depends on its secret, and downloads all b_p, H0 and H1:

    commit-keys  -> {seeds}    <- digest of what `keys` will send, signed (see `commitments`)
    keys         -> {digests}  <- b_p = -a s_p + e; h0 = -a' u_p + P s_p g + e0, h1 = a' s_p + e1
    public-shares/k  -> b_p of some parties  <- {}
    rotations/k  -> {indices}  <- one b_p = -a'' s_p(X^k) + P s_p g + e per index
    relinearise  -> H0, H1     <- t_p = s_p H0 + (u_p - s_p) H1 + e2

H0, H1 are the sums of all h0, h1, and (sum_p t_p, H1) is the key for s^2, with the error
s e0 + u e1 + e2 (Mouchet, Troncoso-Pastoriza, Bossuat, Hubaux, PETS 2021). Every digit of the
gadget g has its own a' and errors; u_p is a ternary secret that is forgotten after `relinearise`.

Security: s_p and u_p both stand under a', as two secrets of ring-LWE. The element H1 = a' s + e1 of
the second round depends on the secret: circular security is assumed, see docs/security-argument.md.

The joint public key is (b, a), b = sum_p b_p, and no party takes it from the coordinator: it is
handed all b_p, holds each against its party's digest, and adds them up (`add_public_shares`).
Rotation keys, H0 and H1 are the coordinator's word. Parties compute nothing under rotation keys; a
coordinator that sends another H0 or H1 reads s_p: SECURITY.md says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocols import agree, commitments
from protocols.circuit_plan import CircuitPlan
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.residues import Residues
from protocols.ckks.shared_keys import once
from protocols.commitments import Opening, Terms
from protocols.errors import MessageError, ProtocolError
from protocols.labels import PUBLIC_KEY, rotation_label
from protocols.messages import Body, Exchange, to_everyone
from protocols.protocol import Request
from protocols.secret_half import CircuitHalf, KeysHalf
from protocols.wire import RunningSums, residues_of

RELINEARISE = "relinearise"
PUBLIC_SHARES = "public-shares"


def public_key(context: CkksContext, seed: bytes, b: Residues) -> Any:
    """Joint public key from the summed b and the seed's a."""
    return context.public_key(b, context.uniform_polynomial(seed, PUBLIC_KEY))


# -- party half -----------------------------------------------------------------------------------


def commit(half: CircuitHalf, request: Request) -> Body:
    """Reply to `commit-keys`: makes the key share."""
    half.begin(agree.joint_seed(half.plan, agree.seeds_of(request.body)))
    return half.keys.commit(answer_keys(half.context, half.secret))


def open_keys(half: CircuitHalf, request: Request) -> Body:
    """Reply to `keys`."""
    return half.keys.open(request.body)


def add_shares(half: CircuitHalf, request: Request) -> Body:
    """Reply to `public-shares/k`."""
    names = half.plan.member_chunks[request.index]
    half.public_b = add_public_shares(half.context, half.public_b, half.keys, names, request.body)
    return Body()


def rotate(half: CircuitHalf, request: Request) -> Body:
    """Reply to `rotations/k`: indices from the plan, never from the request."""
    return answer_rotations(half.context, half.secret, half.plan.rotation_chunks[request.index])


def relinearise(half: CircuitHalf, request: Request) -> Body:
    """Reply to `relinearise`."""
    return answer_relinearise(half.context, half.secret, request.body)


def answer_keys(context: CkksContext, secret: KeysHalf) -> Body:
    """What is committed to, then sent as reply to `keys`."""
    first = (rns.pack(half, context.key_primes) for half in secret.relinearisation_first())
    return Body(blobs=(rns.pack(secret.public_share(), context.primes), *first))


def answer_rotations(context: CkksContext, secret: KeysHalf, indices: Sequence[int]) -> Body:
    """Reply to `rotations/k`."""
    shares = (secret.rotation_share(index) for index in indices)
    return Body(blobs=tuple(rns.pack(share, context.key_primes) for share in shares))


def answer_relinearise(context: CkksContext, secret: KeysHalf, request: Body) -> Body:
    """Reply to `relinearise`.

    Raises:
        MessageError: the request holds no two well-formed sums.
    """
    if len(request.blobs) != 2:
        raise MessageError(f"the step `{RELINEARISE}` carries exactly two blobs")
    primes = context.key_primes
    h0, h1 = residues_of(request, context, primes)
    return Body(blobs=(rns.pack(secret.relinearisation_second(h0, h1), primes),))


def add_public_shares(
    context: CkksContext, total: Residues, keys: Opening, names: Sequence[str], request: Body
) -> Residues:
    """Reply to `public-shares/k`: the sum so far with the b_p of these parties, in their order.

    keys: this party's half of `commitments.KEYS`, opened. Parties of one process check each for
    itself, and add up once.

    Raises:
        ProtocolError: a b_p is not what its party committed to; names it. MessageError: malformed.
    """
    others = request.meta.get("others")
    if not isinstance(others, dict) or len(request.blobs) != len(names):
        raise MessageError(
            f"the step carries {len(names)} shares, and the digests sent beside them"
        )
    for name, own in zip(names, request.digests, strict=True):
        rest = others.get(name)
        if not isinstance(rest, list) or not keys.is_committed(name, [own, *map(str, rest)]):
            raise ProtocolError(
                f"the public key share of party {name!r} is not the one that it committed to: it "
                "was exchanged on the way; do not go on with this coordinator",
                culprit=name,
            )

    def add() -> tuple[Residues, Residues]:
        found = total
        for part in residues_of(request, context, context.primes):
            found = rns.add(found, part, context.primes)
        return total, found

    # What is remembered holds the sum before: no other array has its place meanwhile.
    return once(context, "public shares", (id(total), request.digests), add)[1]


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
    context: CkksContext, plan: CircuitPlan, seed: bytes, seeds: Mapping[str, str]
) -> Exchange[JointKeys]:
    """Run the ceremony, load the joint evaluation keys.

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

    terms = Terms.of(plan, commitments.KEYS, seed)
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
    (t,) = sums.of((yield to_everyone(RELINEARISE, names, request, sums.fold)))
    keys = JointKeys(public_b, endorsements, (h1, t), rotations)
    keys.load(context, seed)
    return keys
