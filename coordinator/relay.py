"""Hands every party the others' replies with its next request: see `protocols.steps.replica`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from coordinator.coordinator import AskParties, Requests, arrivals
from protocols.exchange.relayed import beside


def relaying(
    ask: AskParties, keep: Callable[[AskParties], AskParties] = lambda ask: ask
) -> AskParties:
    """The same `ask`, which relays; keep: writes down messages as they are without that.

    The replies to one step are held until the next one is asked.
    """
    held: dict[str, dict[str, bytes]] = {}  # by step, party

    def sending(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        before = [replies for name, replies in held.items() if name != step]
        replies = before[-1] if before else {}

        def request(name: str) -> bytes:
            return beside(outgoing[name], [data for n, data in replies.items() if n != name])

        yield from arrivals(ask(step, Requests(outgoing, request)))

    def asking(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        for old in [*held][:-1]:
            del held[old]
        own = held.setdefault(step, {})
        for name, data in arrivals(kept(step, outgoing)):
            own[name] = data
            yield name, data

    kept = keep(sending)
    return asking
