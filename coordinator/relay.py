"""Hands every party the others' replies to a step: see `protocols.steps.replica`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType

from coordinator.coordinator import AskParties, Requests, arrivals
from protocols.errors import CohortError
from protocols.exchange.relayed import RELAY, beside
from protocols.plan.protocol import FINISH

log = logging.getLogger(__name__)

PATIENCE = 0.05
"""How long a coordinator computes [s] before replies go ahead of its next request."""


def relaying(
    ask: AskParties,
    keep: Callable[[AskParties], AskParties] = lambda ask: ask,
    before: Mapping[str, Mapping[str, bytes]] = MappingProxyType({}),
    ahead: Callable[[str], bytes] | None = None,
    patience: float = PATIENCE,
) -> AskParties:
    """The same `ask`, which relays: beside the next request, or ahead of it.

    keep: writes down messages as they are without that; before: replies that are held already, by
    step and party; ahead: the request RELAY to a party, None: nothing goes ahead, as where parties
    compute in this process. The replies to one step are held until the next one is asked.
    """
    held = {step: dict(replies) for step, replies in before.items()}
    early = _Early(ask, ahead, patience)

    def sending(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        replies = next((held[name] for name in reversed(held) if name != step), {})
        told = early.told()

        def request(name: str) -> bytes:
            return beside(outgoing[name], () if name in told else _of_others(replies, name))

        yield from arrivals(ask(step, Requests(outgoing, request)))

    def asking(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        for old in [*held][:-1]:
            del held[old]
        own = held.setdefault(step, {})
        for name, data in arrivals(kept(step, outgoing)):
            own[name] = data
            yield name, data
        if step != FINISH:
            early.begin(own)

    kept = keep(sending)
    return asking


def _of_others(replies: Mapping[str, bytes], name: str) -> list[bytes]:
    return [data for other, data in replies.items() if other != name]


class _Early:
    """Relays in another thread, if the next request is long in coming."""

    def __init__(
        self, ask: AskParties, ahead: Callable[[str], bytes] | None, patience: float
    ) -> None:
        self._ask, self._ahead, self._patience = ask, ahead, patience
        self._timer: threading.Timer | None = None
        self._told = set[str]()

    def begin(self, replies: Mapping[str, bytes]) -> None:
        """From now on the next request is computed."""
        if self._ahead is not None:
            self._told = set()
            self._timer = threading.Timer(self._patience, self._tell, (dict(replies),))
            self._timer.daemon = True
            self._timer.start()

    def _tell(self, replies: Mapping[str, bytes]) -> None:
        assert self._ahead is not None  # noqa: S101 (it began)
        make = self._ahead

        def request(name: str) -> bytes:
            return beside(make(name), _of_others(replies, name))

        with suppress(CohortError):  # who is lost, or refuses, is found by the next request
            for name, _ in arrivals(self._ask(RELAY, Requests(replies, request))):
                self._told.add(name)

    def told(self) -> Collection[str]:
        """Who has the replies to the last step; waits for what has begun."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._timer = None
        told, self._told = self._told, set()
        return told
