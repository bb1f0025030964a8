"""`ask` over a folder: what was answered before is not asked again, so that a run can go on.

Given the parties' replies every request is fixed to the bit (see `coordinator.replay`), so a
coordinator that died runs its own code once more on the recorded replies and goes on where they
end. The folder's format is that of `coordinator.message_log`.

Not fixed is the decoder's noise: the request `finish`, which carries the weights, may come out
different. So the weights count from the moment when that request is on disk, see `recorded_finish`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from coordinator.coordinator import AskParties, arrivals
from coordinator.message_log import KEY, Numbers, file_name
from protocols.errors import LostError, MessageError, ProtocolError
from protocols.messages import (
    COORDINATOR,
    MAX_HEADER_BYTES,
    Envelope,
    address_of,
    decode,
    digest,
)
from protocols.private_files import write_private
from protocols.transcript import LOST, Transcript

FINISH = "finish"
# Enough of a message to hold its header.
HEAD_BYTES = MAX_HEADER_BYTES + 64


def resumable(
    ask: AskParties, folder: Path, coordinator_key: str, parties: Mapping[str, str]
) -> AskParties:
    """The same `ask`, from recorded replies where there are some.

    folder: is there, and nobody else writes to it; parties: verification keys by name.

    Raises:
        ProtocolError: a request differs from the recorded one (data or program have changed), or a
            recorded reply is damaged.
    """
    write_private(folder / KEY, f"{coordinator_key}\n".encode())
    number = Numbers()

    def asking(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        requests, replies = (
            {n: folder / f for n, f in each.items()} for each in number.take(outgoing)
        )
        for name, data in outgoing.items():
            if requests[name].exists() and requests[name].read_bytes() != data:
                raise ProtocolError(
                    f"step {step!r}: the request to party {name!r} differs from the recorded one; "
                    "the program or its settings have changed since this session began"
                )
            if not requests[name].exists():
                write_private(requests[name], data)
        missing = {name: data for name, data in outgoing.items() if not replies[name].exists()}
        decided = (folder / number.upcoming).exists()
        for name in [name for name in outgoing if name not in missing]:
            held = replies[name].read_bytes()
            _read(replies[name], held, parties[name])
            yield name, held
        if missing and decided:
            # The run went on without them: that is settled.
            raise LostError(f"no reply to {step!r} from {', '.join(missing)}", tuple(missing))
        for name, data in arrivals(ask(step, missing) if missing else {}):
            if name in missing and not replies[name].exists():
                write_private(replies[name], data)
            yield name, data

    return asking


def _read(path: Path, data: bytes, key: str) -> Envelope:
    """A recorded message.

    Raises:
        ProtocolError: it is not as it was written; names the file.
    """
    try:
        return decode(data, key)
    except MessageError as error:
        raise ProtocolError(f"the recorded message {path.name} is damaged: {error}") from None


@dataclass(frozen=True, slots=True)
class Finish:
    """The last step as recorded: requests and replies by party."""

    requests: dict[str, bytes]
    replies: dict[str, bytes]
    first: int
    weights: list[Any]


@dataclass(frozen=True, slots=True)
class _Kept:
    """A recorded message, unread but for its address."""

    path: Path
    number: int
    step: str
    sender: str
    recipient: str


def _kept(folder: Path) -> list[_Kept]:
    """All of them, in the transcript's order; a reply that was refused may be unreadable."""
    found = []
    for path in sorted(folder.glob("*.msg")):
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        with suppress(MessageError):
            found.append(_Kept(path, int(path.stem), *address_of(head)))
    return found


def recorded_finish(folder: Path, parties: tuple[str, ...], coordinator_key: str) -> Finish | None:
    """The requests `finish`, if all of them are on disk: then the run has its weights."""
    kept = _kept(folder)
    asked = {m.recipient: m for m in kept if (m.step, m.sender) == (FINISH, COORDINATOR)}
    if not asked:
        return None
    before = [m for m in kept if m.step != FINISH][-1].step
    # Whoever was asked before is still there.
    present = [m.recipient for m in kept if (m.step, m.sender) == (before, COORDINATOR)]
    if set(asked) != set(present):
        return None
    requests = {name: asked[name].path.read_bytes() for name in parties if name in asked}
    first = min(asked.values(), key=lambda message: message.number)
    envelope = _read(first.path, requests[first.recipient], coordinator_key)
    return Finish(
        requests,
        {m.sender: m.path.read_bytes() for m in kept if m.step == FINISH and m.sender in asked},
        first.number,
        list(envelope.body.meta["weights"]),
    )


def complete_finish(
    ask: AskParties, folder: Path, finish: Finish, parties: Mapping[str, str]
) -> None:
    """Tell the parties that have not answered; parties: verification keys by name.

    Raises:
        ProtocolError: a party refuses.
    """
    missing = {n: data for n, data in finish.requests.items() if n not in finish.replies}
    positions = {name: k for k, name in enumerate(finish.requests)}
    for name, data in arrivals(ask(FINISH, missing) if missing else {}):
        if name not in missing:
            continue
        reply = decode(data, parties[name])
        if reply.answers != digest(finish.requests[name]) or "error" in reply.body.meta:
            raise ProtocolError(f"party {name!r} refuses {FINISH!r}", culprit=name)
        number = finish.first + len(finish.requests) + positions[name]
        write_private(folder / file_name(number), data)


def rebuild_transcript(
    folder: Path, path: Path, parties: Mapping[str, str], coordinator_key: str
) -> None:
    """Write the hash chain of the recorded messages again; parties: verification keys by name."""
    transcript, kept = Transcript(path), _kept(folder)
    for step, group in groupby(kept, key=lambda message: message.step):
        messages = {(message.sender, message.recipient): message for message in group}
        asked = [recipient for sender, recipient in messages if sender == COORDINATOR]
        for pair in (*((COORDINATOR, n) for n in asked), *((n, COORDINATOR) for n in asked)):
            found, (size, message) = messages.get(pair), LOST
            if found is not None:
                data = found.path.read_bytes()
                key = coordinator_key if pair[0] == COORDINATOR else parties[pair[0]]
                _read(found.path, data, key)
                size, message = len(data), digest(data)
            elif step == kept[-1].step:
                break  # not answered yet
            transcript.add(step=step, sender=pair[0], recipient=pair[1], size=size, message=message)
    transcript.close()
