"""Witnesses: owners with replicas confirm to one without what it is asked.

An owner without the machine or the line for a replica names k others (`Member.follows`). Each has a
replica, which knows every request to everybody (`replica.Replica.confirmation`), and signs the
owner's head after the next one; the coordinator hands on these words beside the request.

Security: a head is a hash of all that the owner was asked in the session, enrolment and plan
included, so that k equal ones say that this request and all before it follow from everybody's
replies. An owner that fears t others names t + 1 or more: one of them is honest. What replicas do
not prevent, witnesses do not either. NOT confirmed: who is lost, as for replicas.

Costs: replies go ahead to the witnesses in every step, and the owner is asked once they have
answered; its own traffic grows by a few hundred bytes a witness and step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from protocols.errors import MessageError, ProtocolError
from protocols.exchange.messages import Body, Envelope, address_of, decode
from protocols.exchange.relayed import RELAY
from protocols.names import COORDINATOR
from protocols.plan.protocol import FINISH
from protocols.plan.run_plan import RunPlan
from protocols.steps.replica import HEAD_BYTES, check_told, differences


def check_confirmed(plan: RunPlan, request: Envelope, seen: str, beside: Sequence[bytes]) -> None:
    """Refuse a request that not all witnesses of its recipient confirm.

    seen: its recipient's head, this request included; beside: what the coordinator hands on.

    Raises:
        ProtocolError: names step and witness. MessageError: malformed.
    """
    said = {address_of(data[:HEAD_BYTES])[1]: data for data in beside}
    step = request.step
    for witness in plan.members[plan.party_index(request.recipient)].follows:
        if witness not in said:
            raise ProtocolError(f"step {step!r}: witness {witness!r} confirms nothing")
        word = _word(said[witness], plan, witness)
        if step == FINISH and word.meta.get("step") == FINISH:
            due = Body(dict(word.meta.get("finish") or {}), word.blobs)
            found = next(differences(due, request.body, is_finish=True), "")
            if not found:
                check_told(plan, request.body, due)
        else:
            heads = word.meta.get("heads")
            is_due = isinstance(heads, dict) and heads.get(request.recipient) == seen
            found = "" if is_due and word.meta.get("step") == step else "the request"
        if found:
            raise ProtocolError(
                f"step {step!r}: {found} is not what follows from everybody's replies, as witness "
                f"{witness!r} says: the coordinator deviates, and this party has stopped"
            )


def _word(data: bytes, plan: RunPlan, witness: str) -> Body:
    """What a witness signed in this session."""
    try:
        word = decode(data, plan.roster[witness])
    except MessageError as error:
        raise ProtocolError(f"the word of witness {witness!r}: {error}") from None
    due = (plan.session, RELAY, witness, COORDINATOR)
    if (word.session, word.step, word.sender, word.recipient) != due:
        raise ProtocolError(f"the word of witness {witness!r} is of another session or step")
    return word.body


def witnesses_of(follows: Mapping[str, Sequence[str]]) -> set[str]:
    """Owners who confirm something to others; follows: by owner, see `Member`."""
    return {*chain(*(names for name, names in follows.items() if [*names] != [name]))}
