"""Hands every party the others' replies to a step: see `protocols.steps.replica`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from coordinator.coordinator import AskParties, Requests, arrivals
from coordinator.errors import LostError
from protocols.errors import CohortError, MessageError
from protocols.exchange.messages import meta_of
from protocols.exchange.relayed import BEHIND, PART_BYTES, RELAY, beside
from protocols.plan.protocol import BEFORE, FINISH
from protocols.steps.witnesses import witnesses_of

Kept = bytes | Path
"""A reply, or the file that has it."""
Past = Callable[[str], Iterable[tuple[bytes, Sequence[Kept]]]]
"""By party: each request to it but the first, and all replies to the step before."""
Ahead = Callable[[str, bool], bytes]
"""The request RELAY to a party; whether another one follows with replies to the same step."""
RESTARTS = 3
"""How often a party may be restarted in one step, and is brought back."""
PATIENCE = 0.05
"""How long a coordinator computes [s] before few replies go ahead of its next request; many go
at once, in parts."""


def relaying(
    ask: AskParties,
    keep: Callable[[AskParties], AskParties] = lambda ask: ask,
    before: Mapping[str, Mapping[str, bytes]] = MappingProxyType({}),
    ahead: Ahead | None = None,
    patience: float = PATIENCE,
    past: Past | None = None,
    files: Mapping[str, Path] = MappingProxyType({}),
) -> AskParties:
    """The same `ask`, which relays: beside the next request, or ahead of it.

    keep: writes down messages as they are without that; before: replies that are held already, by
    step and party; ahead: None: nothing goes ahead, as where parties compute in this process; past:
    what a party that was restarted is brought back by, where something goes ahead; files: where
    `keep` has the replies to the step that is asked, by party, which are then not held in memory.
    The replies to one step are held until the next one is asked: nobody is told any of them before
    all are there.

    Who follows what is in the replies to `enrol`: an owner with a replica gets the others' replies,
    one with witnesses their words (`steps.witnesses`), for which replies go ahead to these.
    """
    held: dict[str, dict[str, Kept]] = {step: dict(found) for step, found in before.items()}
    follows = dict[str, tuple[str, ...]]()
    if ahead is not None and past is not None:
        ask = _bringing(ask, ahead, past, follows)
    early, sent = _Early(ask, ahead, patience, follows), set[str]()

    def sending(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        replies = next((held[name] for name in reversed(held) if name != step), {})
        # A replica begins with the plan: what it follows from comes beside it.
        words = early.told(replies, outgoing) if step not in BEFORE[:2] else {}
        sent.add(step)

        def request(name: str) -> bytes:
            own = follows.get(name, ())
            if own == (name,):
                others = () if name in words else _of_others(replies, name)
                return beside(outgoing[name], [*map(_data, others)])
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
            own[name] = files.get(name, data)
            if step == BEFORE[0]:
                follows[name] = _follows(data)
            yield name, data
        if step in sent and step not in (
            BEFORE[0],
            FINISH,
        ):  # and not written down by an earlier process
            early.begin(own)
        sent.clear()

    for name, kept_reply in held.get(BEFORE[0], {}).items():
        follows[name] = _follows(_data(kept_reply))
    kept = keep(sending)
    return asking


def _bringing(
    ask: AskParties,
    ahead: Ahead,
    past: Past,
    follows: Mapping[str, tuple[str, ...]],
) -> AskParties:
    """The same `ask`; a party whose reply says BEHIND is relayed the session, and asked again.

    It is sent the session's requests and replies from the first on, a RELAY or more each. One that
    is behind after RESTARTS of these has refused, and the caller gets its refusal.
    """

    def bring(name: str) -> None:
        caught_up = False
        for request, replies in past(name):
            was_up, parts = caught_up, in_parts(replies)
            for k, part in enumerate(parts):
                first = [request] if k == 0 and not was_up else []
                told = beside(ahead(name, k + 1 < len(parts)), [*first, *map(_data, part)])
                for _, data in arrivals(ask(RELAY, {name: told})):
                    caught_up = not _meta(data).get(BEHIND)
            if was_up:
                return  # once more after it has caught up: the replies to the last step

    def asking(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        due, lost = outgoing, list[LostError]()
        for left in reversed(range(RESTARTS + 1)):
            behind = list[str]()
            try:
                for name, data in arrivals(ask(step, due)):
                    # Others' replies are for those who have said that they compute on them.
                    if left and _meta(data).get(BEHIND) and follows.get(name) == (name,):
                        behind.append(name)
                    else:
                        yield name, data
            except LostError as error:
                lost.append(error)
            if not behind:
                break
            for name in behind:
                bring(name)
            due = Requests(behind, outgoing.__getitem__)
        if lost:
            names = tuple(name for error in lost for name in error.parties)
            raise LostError("; ".join(map(str, lost)), names)

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


def _of_others(replies: Mapping[str, Kept], name: str) -> list[Kept]:
    return [data for other, data in replies.items() if other != name]


def _data(reply: Kept) -> bytes:
    return reply if isinstance(reply, bytes) else reply.read_bytes()


def _size(reply: Kept) -> int:
    return len(reply) if isinstance(reply, bytes) else reply.stat().st_size


def in_parts(replies: Sequence[Kept]) -> list[list[Kept]]:
    """The same in order, in one part or more of at most PART_BYTES, or of one reply."""
    parts, left = [list[Kept]()], PART_BYTES
    for reply in replies:
        if (size := _size(reply)) > left and parts[-1]:
            parts.append([])
            left = PART_BYTES
        parts[-1].append(reply)
        left -= size
    return parts


class _Early:
    """Relays in another thread: many replies, or if the next request is long in coming."""

    def __init__(
        self,
        ask: AskParties,
        ahead: Ahead | None,
        patience: float,
        follows: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._ask, self._ahead, self._patience, self._follows = ask, ahead, patience, follows
        self._timer: threading.Timer | None = None
        self._words = dict[str, bytes]()  # replies to what went ahead

    def begin(self, replies: Mapping[str, Kept]) -> None:
        """From now on the next request is computed."""
        if self._ahead is not None:
            self._words = {}
            patience = 0.0 if sum(map(_size, replies.values())) > PART_BYTES else self._patience
            self._timer = threading.Timer(patience, self._tell, (dict(replies),))
            self._timer.daemon = True
            self._timer.start()

    def _tell(self, replies: Mapping[str, Kept], names: Collection[str] | None = None) -> None:
        """To names, who have replicas; None: to all who do."""
        assert self._ahead is not None  # noqa: S101 (it began)
        make = self._ahead
        if names is None:
            names = [name for name, own in self._follows.items() if own == (name,)]
        parts = {name: in_parts(_of_others(replies, name)) for name in names}
        with suppress(CohortError):  # who is lost, or refuses, is found by the next request
            for k in range(max(map(len, parts.values()), default=0)):
                due = [name for name, own in parts.items() if k < len(own)]
                last = {name for name in due if k + 1 == len(parts[name])}

                def request(name: str, k: int = k, last: Collection[str] = last) -> bytes:
                    return beside(make(name, name not in last), [*map(_data, parts[name][k])])

                for name, data in arrivals(self._ask(RELAY, Requests(due, request))):
                    if name in last:
                        self._words[name] = data

    def told(self, replies: Mapping[str, Kept], outgoing: Collection[str]) -> Mapping[str, bytes]:
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
