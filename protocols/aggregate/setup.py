"""Steps `mask-keys` and `opening-key`: the coordinator learns s = sum_p s_p and no single s_p.

Messages
    mask-keys    -> {seeds of everyone}   <- {key, signature}
    opening-key  -> {keys of everyone}    <- s_p + sum_(q > p) M_pq - sum_(q < p) M_pq  mod 2^16

M_pq is expanded from an X25519 agreement of ephemeral keys and cancels in the sum over all parties
(Bonawitz et al., CCS 2017, without drop-outs). 16 bits hold s: |s| <= 12 NOISE_STD sqrt(P) < 2^15.

Security: the keys travel through the coordinator. Each is signed with its party's identity key,
together with the session's digest, which holds the joint seed: a coordinator that puts in its own
key, or an old one, is detected by every party before any masked secret is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from protocols.aggregate import AggregateParameters
from protocols.aggregate.cipher import mask_key_text
from protocols.errors import ProtocolError
from protocols.exchange import OPENING_KEY, signed_messages, signed_values
from protocols.exchange.messages import Body, Exchange, to_everyone
from protocols.exchange.signed_values import SignedValue
from protocols.plan.protocol import Request
from protocols.steps import agree

MASK_KEYS = "mask-keys"
Masked = NDArray[np.uint16]


class OpeningHalf(Protocol):
    """A party's secret in these steps: `parties.kernel.sums.aggregate_share.AggregateShare`."""

    def mask_key(self) -> SignedValue:
        """This party's signed ephemeral key."""
        ...

    def masked_secret(self, keys: Mapping[str, SignedValue]) -> Masked:
        """s_p under the masks that it shares with all others, shape (n,); once."""
        ...


class SumsHalf(Protocol):
    """One party of secure aggregation; session: `parties.kernel.sums.session.SumsSession`."""

    plan: Any
    session: Any

    def begin(self, seeds: Mapping[str, str]) -> None:
        """Make the secret; seeds: everybody's."""
        ...

    def remark(self) -> Mapping[str, str]:
        """What goes with it, for the party itself in a later run."""
        ...


def check_keys(digest: bytes, roster: Mapping[str, str], keys: Mapping[str, SignedValue]) -> None:
    """Refuse keys that are not those of exactly this roster.

    digest: of the session; roster: Ed25519 verification keys (hex) by party name, from the plan.

    Raises:
        ProtocolError: a key is missing, left over or not signed by its owner's identity
            key for this session.
    """
    signed_values.check("mask key", partial(mask_key_text, digest), roster, keys)


# -- party half -----------------------------------------------------------------------------------


def give_key(half: SumsHalf, request: Request) -> Body:
    """Reply to `mask-keys`: makes the secret."""
    half.begin(agree.seeds_of(request.body))
    return answer_mask_keys(half.session)


def give_opening(half: SumsHalf, request: Request) -> Body:
    """Reply to `opening-key`."""
    return answer_opening_key(half.session, request.body)


def answer_mask_keys(secret: OpeningHalf) -> Body:
    """Reply to `mask-keys`."""
    return secret.mask_key().to_body()


def answer_opening_key(secret: OpeningHalf, request: Body) -> Body:
    """Reply to `opening-key`.

    Raises:
        MessageError: malformed keys. ProtocolError: see `check_keys`.
    """
    keys = signed_values.of_request(request)
    return Body(blobs=(secret.masked_secret(keys).astype("<u2").tobytes(),))


# -- coordinator half -----------------------------------------------------------------------------


def opening_key(
    params: AggregateParameters,
    digest: bytes,
    roster: Mapping[str, str],
    seeds: Mapping[str, str],
) -> Exchange[NDArray[np.int64]]:
    """Run both steps; the joint opening key s, shape (n,).

    digest, roster: see `check_keys`; seeds: every party's, hexadecimal, see `Agreement`.

    Raises:
        ProtocolError: a reply is malformed or forged (names the party), or the masks do not cancel.
    """
    names = tuple(roster)
    replies = yield to_everyone(MASK_KEYS, names, Body({"seeds": dict(seeds)}))
    keys = signed_messages.replied(replies)
    check_keys(digest, roster, keys)
    replies = yield to_everyone(OPENING_KEY, names, signed_messages.to_request(keys))
    return unmask(params, {name: replies[name] for name in names})


def unmask(params: AggregateParameters, replies: Mapping[str, Body]) -> NDArray[np.int64]:
    """s from the replies of all parties to `opening-key`."""
    total = np.zeros(params.ring_dim, np.uint16)
    for name, reply in replies.items():
        if len(reply.blobs) != 1 or len(reply.blobs[0]) != 2 * params.ring_dim:
            raise ProtocolError(f"party {name!r} sent no masked secret", culprit=name)
        total += np.frombuffer(reply.blobs[0], "<u2")  # mod 2^16
    s = total.view(np.int16).astype(np.int64)
    if int(np.abs(s).max()) > params.noise_units:
        raise ProtocolError(
            "the masks do not cancel: a party used other keys than the rest; start a new session"
        )
    return s
