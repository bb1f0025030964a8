"""A replica: the coordinator's computation once more at a party, before it answers.

The coordinator relays everybody's signed replies to a step beside its next request, or ahead of it,
while it computes that itself (`exchange.relayed`). The replica runs the same generator
(`whole.whole_run`) on them, and every request of a run follows from the replies before it, to the
bit. A party goes on only if what it is asked is what its own replica asks.

Security: so a coordinator that deviates gets nothing, whatever it is after: another point, other
keys, a chosen ciphertext, a sum that is none, a step left out. What a replica takes as a reply is

- signed by its party, whose key is in the plan that this party agreed to, and in its roster;
- to exactly the request that the replica itself would have sent that party, so that this one was
  told nothing else; its head says that it was asked nothing in between.

Two replicas are fed the same, or those who sign two replies to one request are found by the views
that all confirm (`confirmed.View`). NOT prevented: what the replies themselves bring about. An
owner that chooses its own, or who is lost, which with cover is the coordinator's word (`cover`).

Costs: everybody's replies travel to all with a replica, each of which computes the same. Its
state is in memory only: a party that restarts is relayed the whole session once more, and answers
again where its new replica's transcript has the head that the old one's had: so it goes on from
the same replies, and no others.

Fixed for one release of OpenFHE and equal floating-point arithmetic, as for `coordinator.replay`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.errors import MessageError, ProtocolError
from protocols.exchange.messages import (
    MAX_HEADER_BYTES,
    SIGNATURE_BYTES,
    UNHEARD,
    Ask,
    Body,
    Envelope,
    address_of,
    decode,
    digest,
    heard,
    signed_part,
)
from protocols.exchange.transcript import LOST, Transcript
from protocols.names import COORDINATOR
from protocols.plan.protocol import BEFORE, FINISH, Watch, protocol_of
from protocols.plan.run_plan import RunPlan
from protocols.steps import second_moment
from protocols.steps.finish import weights_of
from protocols.steps.whole import whole_run

Array = NDArray[np.float64]
DECODED = 6.5
"""Deviations of the decoder's noise that weights may be off by: P(beyond) = 1e-10."""


HEAD_BYTES = MAX_HEADER_BYTES + SIGNATURE_BYTES
"""The most bytes that a message has besides its blobs."""


def _step_of(data: bytes) -> str:
    return address_of(data[:HEAD_BYTES])[0]


class Replica:
    """Of one run; name: its party; session, plan: as this party is asked to agree to.

    size_cap: of a message; apart: whether rows and keys are in another process, so that work that
    needs no reply is done while they are at theirs (`messages.Ask.meanwhile`).
    """

    def __init__(
        self, name: str, session: str, plan: RunPlan, size_cap: int, *, apart: bool = False
    ) -> None:
        self._name, self._session, self._plan, self._cap = name, session, plan, size_cap
        self._keys, self._transcript = dict(plan.roster), Transcript()
        self._heads = dict.fromkeys(self._keys, UNHEARD)
        self._evidence: Any = None
        self._exchange = whole_run(
            self._keys,
            lambda members: plan.among(plan.session, members),
            self._transcript,
            lambda agreed: Watch(evidence=self._evidence),
        )
        self._asked: Ask = next(self._exchange)
        self._due = self._noted()
        self._is_ahead, self._apart = False, apart
        self._beside: threading.Thread | None = None
        self._heard = dict[str, tuple[Body, int, str]]()  # folded, size, digest
        self.head = ""
        """Of the transcript, once the last request was followed."""

    def confirmation(self) -> Body:
        """What is asked next, for whoever follows this party: see `witnesses`.

        Heads once it was asked, by party; of `finish` the request itself, whose weights are noisy.
        """
        asked = self._asked
        if asked.step == FINISH:
            told = asked.bodies[self._name]
            return Body({"step": FINISH, "finish": dict(told.meta)}, told.blobs)
        heads = {
            member.name: self._heads[member.name]
            for member in self._plan.members
            if self._name in member.follows and member.name != self._name
        }
        return Body({"step": asked.step, "heads": heads})

    def take(self, relayed: Sequence[bytes], own: bytes, *, more: bool = False) -> None:
        """Compute what is asked next, ahead of the request; see `follow`.

        Nothing where the replies are not those to the step before. more: they are not all.
        """
        if self._is_ahead or {*map(_step_of, relayed)} != {self._asked.step}:
            return
        self.hear(relayed, own)
        # What rows are whitened by comes with the request.
        if not more and not (self._plan.whitens and self._asked.step == BEFORE[-1]):
            self._advance()
            self._is_ahead = True

    def hear(self, relayed: Sequence[bytes], own: bytes = b"") -> None:
        """Read and fold replies to what is asked, of which nothing else is kept; see `follow`.

        Those of another step are passed over, and a second one of the same party.
        """
        asked = self._asked
        if own and self._name in asked.bodies and self._name not in self._heard:
            self._read(self._name, own)
        for data in relayed:
            step, sender, _ = address_of(data[:HEAD_BYTES])
            if step == asked.step and sender in asked.bodies and sender not in self._heard:
                self._read(sender, data)

    def _advance(self) -> None:
        replies, asked = dict[str, Body](), self._asked
        for name in asked.bodies:
            if name not in self._heard and not asked.lossy:
                raise ProtocolError(f"step {asked.step!r}: no reply of {name!r} was relayed")
            # In the plan's order, as the coordinator hands them to its generator.
            body, size, message = self._heard.pop(name, (None, *LOST))
            self._add(name, COORDINATOR, size, message)
            if body is not None:
                replies[name] = body
        self._join()
        try:
            self._asked = self._exchange.send(replies)
        except StopIteration:
            raise ProtocolError("this run is over: nothing is asked any more") from None
        self._due = self._noted()

    def follow(self, request: Envelope, name: str, relayed: Sequence[bytes], own: bytes) -> None:
        """Take everybody's replies to the step before; refuse a request that is not what follows.

        name: the request's digest; relayed: messages of the other parties; own: this party's, empty
        where it is among them.

        Raises:
            ProtocolError: names step and field, or whose reply is none. MessageError: malformed.
        """
        if request.step == second_moment.STEP:
            self._evidence = second_moment.Evidence.from_body(request.body)
        if not self._is_ahead:
            self.hear(relayed, own)
            self._advance()
        asked, self._is_ahead = self._asked, False
        if asked.step != request.step:
            raise ProtocolError(
                f"step {request.step!r} was asked where {asked.step!r} follows from the replies"
            )
        if self._name not in asked.bodies:
            raise ProtocolError(f"step {asked.step!r}: nothing is due from this party")
        for difference in differences(asked.bodies[self._name], request.body, asked.step == FINISH):
            raise ProtocolError(
                f"step {asked.step!r}: {difference} is not what follows from everybody's replies: "
                "the coordinator deviates, and this party has stopped"
            )
        if asked.step == FINISH:
            check_told(self._plan, request.body, asked.bodies[self._name])
        elif name != self._due[self._name]:  # in what no field says, such as 1.0 for 1
            raise ProtocolError(f"step {asked.step!r}: the request does not follow to the bit")
        self.head = self._transcript.head
        if self._apart and asked.meanwhile:
            self._beside = threading.Thread(target=_quietly, args=(asked.meanwhile,), daemon=True)
            self._beside.start()

    def _join(self) -> None:
        if self._beside is not None:
            self._beside.join()
            self._beside = None

    def is_at(self, name: str) -> bool:
        """Whether the request of this digest is the last one that was followed."""
        return not self._is_ahead and self._due.get(self._name) == name

    def close(self) -> None:
        """Free what the computation holds."""
        self._join()
        self._exchange.close()

    def _noted(self) -> dict[str, str]:
        """Digests of what is asked now, by party, which heads and transcript have from here on."""
        found = {}
        for name, body in self._asked.bodies.items():
            signed = signed_part(Envelope(self._session, self._asked.step, COORDINATOR, name, body))
            found[name] = digest(signed)
            self._heads[name] = heard(self._heads[name], found[name])
            size = len(signed) + SIGNATURE_BYTES + sum(map(len, body.blobs))
            self._add(COORDINATOR, name, size, found[name])
        return found

    def _read(self, name: str, data: bytes) -> None:
        """A reply, of the party itself, to what the replica asks it."""
        asked = self._asked
        step = asked.step
        try:
            reply = decode(data, self._keys[name], size_cap=self._cap)
        except MessageError as error:
            raise ProtocolError(f"step {step!r}, reply of {name!r}: {error}") from None
        address = (reply.session, reply.step, reply.sender, reply.recipient)
        if address != (self._session, step, name, COORDINATOR):
            raise ProtocolError(f"step {step!r}: a reply of {name!r} to another step was relayed")
        if reply.answers != self._due[name]:
            raise ProtocolError(
                f"step {step!r}: party {name!r} was asked something else than what follows from "
                "everybody's replies"
            )
        if reply.seen != self._heads[name]:
            raise ProtocolError(
                f"step {step!r}: party {name!r} was asked something in between that no replica asks"
            )
        if "error" in reply.body.meta:
            raise ProtocolError(f"step {step!r}: party {name!r} has refused, and nothing follows")
        body = asked.fold(name, reply.body) if asked.fold else reply.body
        self._heard[name] = body, len(data), digest(data)

    def _add(self, sender: str, recipient: str, size: int, message: str) -> None:
        self._transcript.add(
            step=self._asked.step, sender=sender, recipient=recipient, size=size, message=message
        )


def _quietly(work: Callable[[], object]) -> None:
    """Whoever needs what this makes meets the same error."""
    with suppress(Exception):
        work()


def check_told(plan: RunPlan, told: Body, asked: Body) -> None:
    """Weights that are told are those that were decrypted, to the decoder's noise."""
    due, released = weights_of(asked), weights_of(told)
    if due.shape != released.shape:
        raise ProtocolError("released weights have another shape than the decrypted ones")
    check_weights(plan, released, due)


def check_weights(plan: RunPlan, released: Array, due: Array) -> str:
    """Released weights against those that follow, shape (d,) or (d, outputs); what was found.

    Raises:
        ProtocolError: they are further apart than two noisy decodings of one polynomial.
    """
    bound = DECODED * protocol_of(plan).release_error(plan)
    largest = float(np.abs(released - due).max(initial=0.0))
    if not largest <= bound:
        raise ProtocolError(
            f"released weights differ by {largest:.2g} from the decrypted ones, more than "
            f"{bound:.2g}"
        )
    return f"as decrypted, to {largest:.2g} (noise of the decoder: at most {bound:.2g})"


def differences(due: Body, sent: Body, is_finish: bool) -> Iterator[str]:
    """Field and blobs that differ; not the weights of `finish`, whose decoding is noisy."""
    wanted: Mapping[str, Any] = json.loads(json.dumps(dict(due.meta)))
    for key in dict.fromkeys([*wanted, *sent.meta]):
        if key not in wanted or key not in sent.meta or wanted[key] != sent.meta[key]:
            yield f"field {key!r}"
    if len(due.blobs) != len(sent.blobs):
        yield f"the number of blobs, {len(sent.blobs)} for {len(due.blobs)},"
    for position, (a, b) in enumerate(zip(due.digests, sent.digests, strict=False)):
        if a != b and not is_finish:
            yield f"blob {position}"
