"""Steps `pad-keys`, `agree-pads`: pads of every pair of parties, which cancel in sums over all.

    pad-keys    -> endorsements of all key shares   <- {key, signature}: an ephemeral X25519 key
    agree-pads  -> {keys of everyone}               <- {}

Party p adds sum_(q > p) U_pq - sum_(q < p) U_pq to what it sends in a step, U_pq uniform from the
pair's agreement and the step's name (Bonawitz et al., CCS 2017). So a reply is uniform until those
of all parties are added: nobody can scale, copy or open one by itself. That holds for any two
honest parties, however many others pool their secrets: every pair has a pad, not only neighbours in
a sparse graph, whose honest part may fall to pieces. Of 200 parties each
draws 5 kilobytes a coefficient for it.

Security: keys travel through the coordinator, and each is signed with its party's identity key
together with the joint seed. Who changes one is detected by every party. A step that is asked again
without parties that have vanished has another name, so other pads.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from protocols.exchange import signed_messages, signed_values
from protocols.exchange.messages import Body, Exchange, to_everyone
from protocols.exchange.signed_values import SignedValue
from protocols.plan.circuit_plan import CircuitPlan
from protocols.plan.protocol import Request

KEYS, AGREE = "pad-keys", "agree-pads"


# -- party half -----------------------------------------------------------------------------------


def give_key(half: Any, request: Request) -> Body:
    """Reply to `pad-keys`: all were told the same key shares."""
    half.keys.confirm(request.body)
    key: SignedValue = half.session.pad_key()
    return key.to_body()


def agree(half: Any, request: Request) -> Body:
    """Reply to `agree-pads`.

    Raises:
        MessageError: malformed keys. ProtocolError: a key is not signed by its party.
    """
    half.session.agree_pads(signed_values.of_request(request.body))
    return Body()


# -- coordinator half -----------------------------------------------------------------------------


def agreement(plan: CircuitPlan, seed: bytes, endorsements: Body) -> Exchange[None]:
    """Run both steps; endorsements: everyone's, of the key shares.

    Raises:
        ProtocolError: a key is not signed by its party; names it.
    """
    keys = signed_messages.replied((yield to_everyone(KEYS, plan.names, endorsements)))
    signed_values.check("pad key", partial(signed_values.pad_key_text, seed), plan.roster, keys)
    yield to_everyone(AGREE, plan.names, signed_messages.to_request(keys))
