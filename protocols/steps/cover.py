"""Steps `cover-…`: optional cover for parties that vanish once they have contributed.

    cover-keys       -> {}                      <- {key, signature}   ephemeral X25519 keys
    cover-deal       -> {keys of everyone}      <- f_p(x_j) for every other party j, sealed for j
    cover-hold       -> what the others sealed  <- {}
    cover-confirm           -> {missing, stand_ins}                <- {}
    cover-commit-refresh/k  -> {missing, stand_ins}, c1 of each    <- a digest, signed
    cover-refresh/k         -> all digests                         <- as `refresh/k`
    cover-commit-decrypt, cover-decrypt: the same                  (all: `survivors`)

f_p is Shamir's polynomial of degree t - 1 with f_p(0) = s_p over R_Q (`kernel.cover.shamir`), at
x_j = 1 … P in the plan's order. When the parties M do not answer a step, t survivors S stand in for
them: j in S repeats the step, and goes on, with

    s_j + sum_(p in M) lambda_j f_p(x_j)   mod Q,      which add up to the joint secret s

over the survivors. Nobody rebuilds an s_p, and masks, errors and flooding are added after the
multiplication, at their usual sizes: lambda blows up nothing.

Security
- Fewer than t parties and the coordinator learn nothing about another s_p from the shares. So the
  keys withstand t - 1 colluding parties in place of P - 1, and a plan with privacy has t - 1 >= its
  colluders. Where t collude, they have every key.
- A share is sealed by ChaCha20-Poly1305 under HKDF(X25519) of keys that are signed by their
  parties for this session, bound to dealer and receiver; the dealer signs what it sealed, so that
  a changed share names the coordinator and an ill-formed one its dealer.
- Before a stand-in's share leaves, all who are left have signed M and S, and what is asked: each
  digest is signed for the view, which holds them (`commitments`). So it is with every later step:
  no two parties who count on each other go by different sets.
- S is fixed by the first loss; M may grow. A party repeats a step once, for the same c1 and under a
  label of its own (so with another random element, see `refresh`). It refuses another S, an M that
  is less than before, that holds S or itself; who refuses stands in for nobody.
- A reply that comes late is one answer more, of a faithful coordinator: with both answers to a
  refresh it has ring-LWE samples with different random elements, and the message under two
  independent masks; with both to the decryption, one polynomial under two independent floodings:
  `decrypt.flooding_of` charges tau = 2. Late replies of a covered party are ignored, and it is
  asked nothing more.
- NOT prevented: a coordinator that declares parties missing against the truth can have the joint
  secret key. T of them (or T - 1 and one on its side) answer `decrypt` for a c1 of its choice, then
  `cover-decrypt` for the same c1 as stand-ins for all others: the second answers add up to c1 s
  + e. A log that says "lost" of them does not pass the audit without their own statements, and with
  them it does not pass either (`coordinator.replay`, `tests/coordinator/test_records.py`).
- NOT prevented: two groups of t parties or more, each told that the other is missing. Its signed
  requests show it. There are no two where 2t > P.
- A dealer that deals another polynomial spoils the model of a run in which it goes missing, and the
  decryption is refused (`decrypt.fuse`): what is fused is no message.

Size: 8 (P - 1) n towers bytes of shares up and down per party; the coordinator holds P times that
between `cover-deal` and `cover-hold`.
"""

from __future__ import annotations

from functools import partial

from protocols.errors import ProtocolError
from protocols.exchange import signed_messages, signed_values
from protocols.exchange.messages import Ask, Body, Exchange, to_everyone
from protocols.plan.circuit_plan import CircuitPlan
from protocols.plan.protocol import Request, Step, Watch, other_parties
from protocols.steps.sealed_shares import address, binding, cover_key_text, others, signed_share
from protocols.steps.secret_half import CircuitHalf

KEYS, DEAL, HOLD = "cover-keys", "cover-deal", "cover-hold"


# -- party half -----------------------------------------------------------------------------------


def give_key(half: CircuitHalf, request: Request) -> Body:
    """Reply to `cover-keys`."""
    return half.secret.cover_key().to_body()


def deal(half: CircuitHalf, request: Request) -> Body:
    """Reply to `cover-deal`.

    Raises:
        MessageError: malformed keys. ProtocolError: a key is not signed by its party.
    """
    return Body(blobs=half.secret.deal(signed_values.of_request(request.body)))


def hold(half: CircuitHalf, request: Request) -> Body:
    """Reply to `cover-hold`.

    Raises:
        ProtocolError: a share is not as its dealer sealed it; names the culprit.
    """
    half.secret.hold(request.body.blobs)
    return Body()


def _has_cover(plan: CircuitPlan) -> bool:
    return plan.cover is not None


STEPS = (
    Step(
        KEYS,
        give_key,
        "keys",
        "a public key, for shares that others encrypt for you",
        asked=_has_cover,
        sends="ephemeral key, signed",
        learns="public",
    ),
    Step(
        DEAL,
        deal,
        "keys",
        "shares of your key share, each encrypted for one other party",
        asked=_has_cover,
        carries=other_parties,
        told="all signed keys",
        sends="shares of s_p, each sealed for one other party",
        learns="any t parties together: s_p",
    ),
    Step(
        HOLD,
        hold,
        "keys",
        "nothing: you receive the others' shares",
        asked=_has_cover,
        alike=False,
        carries=other_parties,
        told="the others' sealed shares",
        learns="the same",
    ),
)


# -- coordinator half -----------------------------------------------------------------------------


def ask(plan: CircuitPlan, seed: bytes, watch: Watch) -> Exchange[None]:
    """Have every party deal shares of its secret to all others; nothing without cover.

    Raises:
        ProtocolError: a key or a share is not signed by its party; names it.
    """
    if plan.cover is None:
        return
    names, bound = plan.names, binding(seed)
    replies = yield to_everyone(KEYS, names, Body())
    keys = signed_messages.replied(replies)
    text = partial(cover_key_text, bound)
    signed_values.check("cover key", text, plan.roster, keys)
    replies = yield to_everyone(DEAL, names, signed_messages.to_request(keys))
    dealt: dict[str, dict[str, bytes]] = {}
    for member in plan.members:
        name, receivers = member.name, others(names, member.name)
        blobs = replies[name].blobs
        dealt[name] = dict(zip(receivers, blobs, strict=False))
        if len(blobs) != len(receivers) or not all(
            signed_share(member.verify_key, address(bound, name, receiver), blob) is not None
            for receiver, blob in dealt[name].items()
        ):
            raise ProtocolError(f"party {name!r} sealed its shares for others", culprit=name)
    held = {
        name: Body(blobs=tuple(dealt[dealer][name] for dealer in others(names, name)))
        for name in names
    }
    yield Ask(HOLD, held)
