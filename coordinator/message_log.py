"""Every message of a run as a file, for an audit afterwards.

    transcript.jsonl          the hash chain (see `protocols.transcript`)
    messages/000012.msg       the signed frame that line 12 of it names
    messages/coordinator.key  the coordinator's verification key, 64 hexadecimal digits

The coordinator saw all of it. Nobody else has all messages together, so the folder has mode 0700
and its files 0600. The replies are what a deviating coordinator cannot make up: each is signed by
its party, and names the request that it answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any

from coordinator.coordinator import AskParties, arrivals
from protocols.errors import MessageError, ParameterError
from protocols.messages import COORDINATOR, Envelope, decode, digest
from protocols.private_files import FOLDER_MODE, write_private
from protocols.transcript import LOST, verify

FOLDER, TRANSCRIPT, KEY = "messages", "transcript.jsonl", "coordinator.key"


def file_name(index: int) -> str:
    """Of the frame that line `index` of the transcript names."""
    return f"{index:06d}.msg"


def keep_messages(ask: AskParties, folder: Path | None, coordinator_key: str) -> AskParties:
    """The same `ask`, which also writes every frame to `folder`, in the transcript's order.

    folder: new, or None to keep nothing; coordinator_key: verification key, hexadecimal. Requests
    are on disk before they are sent.

    Raises:
        OSError: the folder exists, or cannot be written.
    """
    if folder is None:
        return ask
    folder.mkdir(mode=FOLDER_MODE, parents=True)
    _write(folder / KEY, f"{coordinator_key}\n".encode())
    number = Numbers()

    def keeping(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        requests, replies = number.take(outgoing)
        for name, request in outgoing.items():
            _write(folder / requests[name], request)
        for name, reply in arrivals(ask(step, outgoing)):
            if name in replies:
                _write(folder / replies.pop(name), reply)
            yield name, reply

    return keeping


class Numbers:
    """File names of one step after the other, as the transcript counts: requests, then replies."""

    def __init__(self) -> None:
        self._next = 0

    @property
    def upcoming(self) -> str:
        """The first one of the next step."""
        return file_name(self._next)

    def take(self, names: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Of one step's requests and replies, by party; names: in the plan's order."""
        count = len(names)
        files = [file_name(self._next + k) for k in range(2 * count)]
        self._next += 2 * count
        return dict(zip(names, files[:count], strict=True)), dict(
            zip(names, files[count:], strict=True)
        )


def require_messages(folder: Path) -> None:
    """Check that a run folder holds recorded messages.

    Raises:
        ParameterError: it holds none.
    """
    if not (folder / FOLDER).is_dir() or not (folder / TRANSCRIPT).is_file():
        raise ParameterError(
            f"{str(folder)!r} holds no {FOLDER} beside a {TRANSCRIPT}: record the run with "
            "cohort simulate --keep-messages"
        )


def _write(path: Path, data: bytes) -> None:
    write_private(path, data, durable=False)  # a record for later: no step waits for the disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the transcript; bytes: size of the frame; message: SHA-256 of its signed part."""

    index: int
    step: str
    sender: str
    recipient: str
    bytes: int
    message: str

    def __post_init__(self) -> None:
        for field in fields(self):
            kind = int if field.name in ("index", "bytes") else str
            if type(getattr(self, field.name)) is not kind:
                raise MessageError(f"{TRANSCRIPT}: {field.name} is not of type {kind.__name__}")
        if COORDINATOR not in (self.sender, self.recipient) or self.sender == self.recipient:
            raise MessageError(f"{TRANSCRIPT}, {self}: not between a party and the coordinator")

    @property
    def is_request(self) -> bool:
        """Whether the coordinator sent it."""
        return self.sender == COORDINATOR

    @property
    def is_lost(self) -> bool:
        """Whether it is a reply that never came."""
        return not self.is_request and (self.bytes, self.message) == LOST

    @property
    def party(self) -> str:
        """The other end."""
        return self.recipient if self.is_request else self.sender

    def __str__(self) -> str:
        return f"message {self.index} ({self.step}, {self.sender} to {self.recipient})"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the log, in its order; requests and replies by party."""

    name: str
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        if len(self.requests) + len(self.replies) + len(self.lost) != len(self.entries):
            raise MessageError(f"step {self.name!r}: somebody sent or received two messages")

    @property
    def requests(self) -> dict[str, Entry]:
        """What the coordinator asked."""
        return {entry.party: entry for entry in self.entries if entry.is_request}

    @property
    def replies(self) -> dict[str, Entry]:
        """What was answered."""
        return {e.party: e for e in self.entries if not e.is_request and not e.is_lost}

    @property
    def lost(self) -> tuple[str, ...]:
        """Parties that did not answer, and were covered for."""
        return tuple(entry.party for entry in self.entries if entry.is_lost)


class MessageLog:
    """The messages of a recorded run, read one at a time.

    folder: holds transcript.jsonl and messages/; entries: its lines, an unbroken chain; steps: the
    same, grouped; coordinator_key: as recorded, hexadecimal.

    Raises:
        MessageError, ProtocolError: transcript or key are not as they were written.
    """

    def __init__(self, folder: Path) -> None:
        self._messages = folder / FOLDER
        try:
            lines = [_line(t) for t in _text(folder / TRANSCRIPT).splitlines(True)]
            key = _text(self._messages / KEY)
        except (OSError, ValueError, RecursionError) as error:
            raise MessageError(f"transcript or {KEY} unreadable: {error}") from None
        if not re.fullmatch(r"[0-9a-f]{64}\n", key):
            raise MessageError(f"{FOLDER}/{KEY} does not hold 64 hexadecimal digits")
        verify(lines)
        self.coordinator_key = key.strip()
        try:
            self.entries = tuple(
                Entry(**{k: v for k, v in line.items() if k != "chain"}) for line in lines
            )
        except TypeError as error:
            raise MessageError(f"{TRANSCRIPT}: a line has other fields ({error})") from None
        self.steps = [
            Step(name, tuple(group)) for name, group in groupby(self.entries, lambda e: e.step)
        ]

    def read(self, entry: Entry, verify_key: str) -> Envelope:
        """The message that an entry names.

        verify_key: its sender's, hexadecimal.

        Raises:
            MessageError: it is missing, forged, changed, or another one than the entry's.
        """
        try:
            data = (self._messages / file_name(entry.index)).read_bytes()
        except OSError as error:
            raise MessageError(f"{entry}: {error.strerror or error}") from None
        try:
            envelope = decode(data, verify_key, size_cap=entry.bytes)
        except MessageError as error:
            raise MessageError(f"{entry}: {error}") from None
        address = (envelope.step, envelope.sender, envelope.recipient)
        if (digest(data), len(data)) != (entry.message, entry.bytes) or address != (
            entry.step,
            entry.sender,
            entry.recipient,
        ):
            raise MessageError(f"{entry}: the file holds another message than {TRANSCRIPT} names")
        return envelope

    def check(self, session: str, keys: Mapping[str, str]) -> None:
        """Read every message: signatures, addresses, and which request a reply answers.

        keys: the parties' verification keys by name, hexadecimal.

        Raises:
            MessageError: one is not what the transcript says.
        """
        for step in self.steps:
            requests = step.requests
            for entry in step.entries:
                if entry.party not in keys or entry.party not in requests:
                    raise MessageError(f"{entry}: the plan has no such party, or nobody asked it")
                if entry.is_lost:
                    continue
                key = self.coordinator_key if entry.is_request else keys[entry.party]
                answers = "" if entry.is_request else requests[entry.party].message
                envelope = self.read(entry, key)
                if (envelope.session, envelope.answers) != (session, answers):
                    raise MessageError(f"{entry}: of another session, or answers another request")

    def check_strays(self) -> None:
        """Raise MessageError if there is a file that is in no line of the transcript."""
        known = {KEY, *(file_name(e.index) for e in self.entries if not e.is_lost)}
        for name in sorted({path.name for path in self._messages.iterdir()} - known):
            raise MessageError(f"{FOLDER}/{name} is in no line of {TRANSCRIPT}")


def _text(path: Path) -> str:
    return path.read_bytes().decode("ascii")  # read_text would take \r for \n


def _line(text: str) -> dict[str, Any]:
    fields = json.loads(text)
    # Byte for byte as written, so that no change goes unseen.
    if not isinstance(fields, dict) or json.dumps(fields) + "\n" != text:
        raise ValueError(f"a line of {TRANSCRIPT} is not as it was written")
    return fields
