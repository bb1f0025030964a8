"""Hands every party the others' replies to a step: see `protocols.steps.replica`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from coordinator.coordinator import AskParties, Requests, arrivals
from coordinator.errors import LostError
from protocols.errors import CohortError, MessageError
from protocols.exchange.messages import meta_of
from protocols.exchange.relayed import BEHIND, RELAY, beside
from protocols.plan.protocol import BEFORE, FINISH
from protocols.steps.witnesses import witnesses_of

Past = Callable[[str], Iterable[tuple[bytes, Sequence[bytes]]]]
"""By party: each request to it but the first, and all replies to the step before."""
PATIENCE = 0.05
"""How long a coordinator computes [s] before replies go ahead of its next request."""


def relaying(
    ask: AskParties,
    keep: Callable[[AskParties], AskParties] = lambda ask: ask,
    before: Mapping[str, Mapping[str, bytes]] = MappingProxyType({}),
    ahead: Callable[[str], bytes] | None = None,
    patience: float = PATIENCE,
    past: Past | None = None,
) -> AskParties:
    """The same `ask`, which relays: beside the next request, or ahead of it.

    keep: writes down messages as they are without that; before: replies that are held already, by
    step and party; ahead: the request RELAY to a party, None: nothing goes ahead, as where parties
    compute in this process; past: what a party that was restarted is brought back by, where
    something goes ahead. The replies to one step are held until the next one is asked.

    Who follows what is in the replies to `enrol`: an owner with a replica gets the others' replies,
    one with witnesses their words (`steps.witnesses`), for which replies go ahead to these.
    """
    held = {step: dict(replies) for step, replies in before.items()}
    follows = dict[str, tuple[str, ...]]()
    if ahead is not None and past is not None:
        ask = _bringing(ask, ahead, past, follows)
    early, sent = _Early(ask, ahead, patience, follows), set[str]()

    def sending(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        replies = next((held[name] for name in reversed(held) if name != step), {})
        words = early.told(replies, outgoing)
        sent.add(step)

        def request(name: str) -> bytes:
            own = follows.get(name, ())
            if own == (name,):
                return beside(outgoing[name], () if name in words else _of_others(replies, name))
            if own:
                return beside(outgoing[name], [words[each] for each in own if each in words])
            return outgoing[name]

        # What a request brings, as evidence, is confirmed once the witnesses have met it.
        late = early.unconfirmed(step, words, outgoing)
        yield from arrivals(ask(step, Requests([n for n in outgoing if n not in late], request)))
        if late:
            words = early.told(replies, late)
            yield from arrivals(ask(step, Requests(late, request)))

    def asking(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        for old in [*held][:-1]:
            del held[old]
        own = held.setdefault(step, {})
        for name, data in arrivals(kept(step, outgoing)):
            own[name] = data
            if step == BEFORE[0]:
                follows[name] = _follows(data)
            yield name, data
        if step in sent and step != FINISH:  # and not written down by an earlier process
            early.begin(own)
        sent.clear()

    for name, data in held.get(BEFORE[0], {}).items():
        follows[name] = _follows(data)
    kept = keep(sending)
    return asking


def _bringing(
    ask: AskParties,
    ahead: Callable[[str], bytes],
    past: Past,
    follows: Mapping[str, tuple[str, ...]],
) -> AskParties:
    """The same `ask`; a party whose reply says BEHIND is relayed the session, and asked again.

    It is sent the session's requests and replies from the first on, one RELAY each. One that is
    still behind after that has refused, and the caller gets its refusal.
    """

    def bring(name: str) -> None:
        caught_up = False
        for request, replies in past(name):
            was_up, relayed = caught_up, replies if caught_up else (request, *replies)
            for _, data in arrivals(ask(RELAY, {name: beside(ahead(name), relayed)})):
                caught_up = not _meta(data).get(BEHIND)
            if was_up:
                return  # once more after it has caught up: the replies to the last step

    def asking(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        behind, lost = list[str](), None
        try:
            for name, data in arrivals(ask(step, outgoing)):
                # Others' replies are for those who have said that they compute on them.
                if _meta(data).get(BEHIND) and follows.get(name) == (name,):
                    behind.append(name)
                else:
                    yield name, data
        except LostError as error:
            lost = error
        for name in behind:
            bring(name)
        if behind:
            yield from arrivals(ask(step, Requests(behind, outgoing.__getitem__)))
        if lost:
            raise lost

    return asking


def _follows(enrolment: bytes) -> tuple[str, ...]:
    """See `Member`; whoever states none, or what is none, follows nobody."""
    found = _meta(enrolment).get("follows")
    return tuple(map(str, found)) if isinstance(found, list) else ()


def _meta(data: bytes) -> Mapping[str, Any]:
    """Of what is no message nothing: whoever reads it next names who sent it."""
    with suppress(MessageError):
        return meta_of(data)
    return {}


def _of_others(replies: Mapping[str, bytes], name: str) -> list[bytes]:
    return [data for other, data in replies.items() if other != name]


class _Early:
    """Relays in another thread, if the next request is long in coming, or to witnesses."""

    def __init__(
        self,
        ask: AskParties,
        ahead: Callable[[str], bytes] | None,
        patience: float,
        follows: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._ask, self._ahead, self._patience, self._follows = ask, ahead, patience, follows
        self._timer: threading.Timer | None = None
        self._words = dict[str, bytes]()  # replies to what went ahead

    def begin(self, replies: Mapping[str, bytes]) -> None:
        """From now on the next request is computed."""
        if self._ahead is not None:
            self._words = {}
            self._timer = threading.Timer(self._patience, self._tell, (dict(replies),))
            self._timer.daemon = True
            self._timer.start()

    def _tell(self, replies: Mapping[str, bytes], names: Collection[str] | None = None) -> None:
        """To names, who have replicas; None: to all who do."""
        assert self._ahead is not None  # noqa: S101 (it began)
        make = self._ahead
        with_replicas = [name for name, own in self._follows.items() if own == (name,)]

        def request(name: str) -> bytes:
            return beside(make(name), _of_others(replies, name))

        with suppress(CohortError):  # who is lost, or refuses, is found by the next request
            asked = Requests(with_replicas if names is None else names, request)
            self._words.update(arrivals(self._ask(RELAY, asked)))

    def told(self, replies: Mapping[str, bytes], outgoing: Collection[str]) -> Mapping[str, bytes]:
        """What each said who has the replies to the last step; waits for what has begun.

        Witnesses of whoever is asked next have them in any case.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._timer = None
        asked = {name: own for name, own in self._follows.items() if name in outgoing}
        silent = [name for name in sorted(witnesses_of(asked)) if name not in self._words]
        if silent and self._ahead is not None:
            self._tell(replies, silent)
        words, self._words = self._words, {}
        return words

    def unconfirmed(
        self, step: str, words: Mapping[str, bytes], outgoing: Collection[str]
    ) -> list[str]:
        """Owners of whose witnesses one has not confirmed this step yet; none before all agree."""
        if step in BEFORE[:2]:
            return []
        known = {name for name, data in words.items() if _meta(data).get("step") == step}
        asked = {name: {*self._follows.get(name, ())} - {name} for name in outgoing}
        return [name for name, own in asked.items() if own & words.keys() - known]
