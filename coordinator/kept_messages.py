"""`ask` over a folder: what was answered before is not asked again, so that a run can go on.

Given the parties' replies every request is fixed to the bit (see `coordinator.replay`), so a
coordinator that died runs its own code once more on the recorded replies and goes on where they
end. The folder's format is that of `coordinator.message_log`.

Not fixed is the decoder's noise: the request `finish`, which carries the weights, may come out
different. So the weights count from the moment when that request is on disk, see `recorded_finish`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from coordinator.coordinator import AskParties
from coordinator.message_log import KEY, file_name
from protocols.errors import MessageError, ProtocolError
from protocols.messages import COORDINATOR, Envelope, decode, digest
from protocols.private_files import write_private
from protocols.transcript import Transcript

FINISH = "finish"


def resumable(
    ask: AskParties, folder: Path, coordinator_key: str, parties: Mapping[str, str]
) -> AskParties:
    """The same `ask`, from recorded replies where there are some; parties: verification keys.

    Raises:
        ProtocolError: a request differs from the recorded one (data or program have changed), or a
            recorded reply is damaged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_private(folder / KEY, f"{coordinator_key}\n".encode())
    numbers = count()

    def asking(step: str, outgoing: Mapping[str, bytes]) -> Mapping[str, bytes]:
        requests = {name: folder / file_name(next(numbers)) for name in outgoing}
        replies = {name: folder / file_name(next(numbers)) for name in outgoing}
        for name, data in outgoing.items():
            if requests[name].exists() and requests[name].read_bytes() != data:
                raise ProtocolError(
                    f"step {step!r}: the request to party {name!r} differs from the recorded one; "
                    "the program or its settings have changed since this session began"
                )
            if not requests[name].exists():
                write_private(requests[name], data)
        held = {name: path.read_bytes() for name, path in replies.items() if path.exists()}
        for name, data in held.items():
            _read(replies[name], data, parties[name])
        missing = {name: data for name, data in outgoing.items() if name not in held}
        fresh = ask(step, missing) if missing else {}
        for name, data in fresh.items():
            write_private(replies[name], data)
        return {**held, **fresh}

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


def recorded_finish(folder: Path, parties: tuple[str, ...], coordinator_key: str) -> Finish | None:
    """The requests `finish`, if all of them are on disk: then the run has its weights."""
    size, number = len(parties), 0
    while (folder / file_name(number)).exists():
        paths = [folder / file_name(number + k) for k in range(2 * size)]
        envelope = _read(paths[0], paths[0].read_bytes(), coordinator_key)
        if envelope.step == FINISH:
            if not all(path.exists() for path in paths[:size]):
                return None
            held = dict(zip(parties, paths[size:], strict=True))
            return Finish(
                {name: path.read_bytes() for name, path in zip(parties, paths, strict=False)},
                {name: path.read_bytes() for name, path in held.items() if path.exists()},
                number,
                list(envelope.body.meta["weights"]),
            )
        number += 2 * size
    return None


def complete_finish(
    ask: AskParties, folder: Path, finish: Finish, parties: Mapping[str, str]
) -> None:
    """Tell the parties that have not answered; parties: verification keys by name.

    Raises:
        ProtocolError: a party refuses.
    """
    missing = {n: data for n, data in finish.requests.items() if n not in finish.replies}
    fresh = ask(FINISH, missing) if missing else {}
    for position, name in enumerate(finish.requests):
        if name not in fresh:
            continue
        reply = decode(fresh[name], parties[name])
        if reply.answers != digest(finish.requests[name]) or "error" in reply.body.meta:
            raise ProtocolError(f"party {name!r} refuses {FINISH!r}", culprit=name)
        number = finish.first + len(finish.requests) + position
        write_private(folder / file_name(number), fresh[name])


def rebuild_transcript(
    folder: Path, path: Path, parties: Mapping[str, str], coordinator_key: str
) -> None:
    """Write the hash chain of the recorded messages again; parties: verification keys by name."""
    transcript = Transcript(path)
    names, number = tuple(parties), 0
    while (file := folder / file_name(number)).exists():
        name = names[number % len(names)]
        asked = number // len(names) % 2 == 0
        data = file.read_bytes()
        envelope = _read(file, data, coordinator_key if asked else parties[name])
        if COORDINATOR not in (envelope.sender, envelope.recipient):
            raise ProtocolError(f"{file.name} is no message of the coordinator's")
        transcript.add(
            step=envelope.step,
            sender=envelope.sender,
            recipient=envelope.recipient,
            size=len(data),
            message=digest(data),
        )
        number += 1
    transcript.close()
