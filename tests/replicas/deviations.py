"""Coordinators that deviate, against owners with replicas. INSECURE toy rings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

from coordinator.coordinator import AskParties
from coordinator.relay import relaying
from protocols.errors import ProtocolError
from protocols.exchange.messages import Ask, Body
from protocols.exchange.relayed import MORE, RELAY, parted
from tests.support.helpers import Session
from tests.support.sessions import VICTIM, Change, Deviation, driven, reply_of, request


def with_replicas(session: Session, witnesses: tuple[str, ...] = ()) -> Session:
    """The same, of owners with replicas; but for the victim's, where witnesses are named."""
    for name, party in session.parties.items():
        replica: Any = witnesses if witnesses and name == VICTIM else "own"
        party._policy = replace(party._policy, replica=replica)
    return session


def relayed(
    session: Session, ask: Any = None, keep: Any = lambda ask: ask, past: Any = None
) -> AskParties:
    """A session's transport, which relays; nothing goes ahead but to witnesses."""

    def ahead(name: str, more: bool) -> bytes:
        return request(session, name, RELAY, Body({MORE: True} if more else {}))

    def deliver(step: str, outgoing: Any) -> Any:
        return (session.deliver if step == RELAY else ask or session.ask)(step, outgoing)

    return relaying(deliver, keep, ahead=ahead, patience=60.0, past=past)


def past_of(session: Session, name: str) -> Iterator[tuple[bytes, list[bytes]]]:
    """As `coordinator.log.past`."""
    before = list[bytes]()
    for _, group in groupby(session.recorded, key=lambda message: message[0]):
        step = [*group]
        for _, to, asked, _ in step:
            if to == name and before:
                yield parted(asked)[0], before
        if name in (each[1] for each in step):
            before = [reply for *_, reply in step]
    yield b"", before  # a request is in the log before it is sent


def ran(
    session: Session,
    deviate: Deviation | None = None,
    ask: Any = None,
    witnesses: tuple[str, ...] = (),
    past: Any = None,
) -> str:
    """What ended a run of owners with replicas; empty: it came to its end."""
    with_replicas(session, witnesses)
    if deviate:
        honest = session.coordinator.protocol
        session.coordinator.protocol = lambda: deviate(honest())  # type: ignore[method-assign]
    try:
        session.run(relayed(session, ask, past=past))
    except ProtocolError as error:
        return str(error)
    return ""


def refusals(session: Session) -> dict[str, str]:
    """What each party answered to the last step that was asked, empty where it answered."""
    last = session.recorded[-1][0]
    return {
        name: str(reply_of(session, name, reply).body.meta.get("error", ""))
        for step, name, _, reply in session.recorded
        if step == last
    }


def believing(step: str, change: Callable[[str, Body], Body]) -> Deviation:
    """A coordinator that goes on from other replies to a step than those that it relays."""

    def meet(ask: Ask) -> Any:
        fold = ask.fold or (lambda name, body: body)
        other = replace(ask, fold=lambda name, body: fold(name, change(name, body)))
        return (yield other if ask.step == step else ask)

    return lambda exchange: driven(exchange, meet)


# -- changes of a request --------------------------------------------------------------------------


def blob(at: int, change: Callable[[bytes], bytes]) -> Change:
    """Of one blob of a request."""

    def changed(body: Body) -> Body:
        blobs = list(body.blobs)
        blobs[at] = change(blobs[at])
        return Body(body.meta, tuple(blobs))

    return changed


def one_bit(data: bytes) -> bytes:
    """The lowest bit: still a residue below its prime, but for one value in 2^60."""
    return bytes([data[0] ^ 1]) + data[1:]


def zeros(data: bytes) -> bytes:
    """The smallest chosen ciphertext."""
    return bytes(len(data))
