"""Hands every party the others' replies with its next request: see `protocols.steps.replica`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from coordinator.coordinator import AskParties, Requests, arrivals
from protocols.exchange.relayed import beside


def relaying(
    ask: AskParties,
    keep: Callable[[AskParties], AskParties] = lambda ask: ask,
    before: Mapping[str, Mapping[str, bytes]] = MappingProxyType({}),
) -> AskParties:
    """The same `ask`, which relays; keep: writes down messages as they are without that.

    The replies to one step are held until the next one is asked. before: those that are held
    already, by step and party.
    """
    held = {step: dict(replies) for step, replies in before.items()}

    def sending(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        replies = next((held[name] for name in reversed(held) if name != step), {})

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
