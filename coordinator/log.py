"""Every message of a run as a file: what an audit reads, and what a run that died goes on from.

    transcript.jsonl          the hash chain (see `protocols.exchange.transcript`)
    messages/000012.msg       the signed frame that line 12 of it names
    messages/coordinator.key  the coordinator's verification key, 64 hexadecimal digits

The coordinator saw all of it. Nobody else has all messages together, so the folder has mode 0700
and its files 0600. The replies are what a deviating coordinator cannot make up: each is signed by
its party, and names the request that it answers.

Given the parties' replies every request is fixed to the bit (see `coordinator.replay`), so a
coordinator that died runs its own code once more on the recorded replies and goes on where they
end. Not fixed is the decoder's noise: the request `finish`, which carries the weights, may come out
different. So the weights count from the moment when that request is on disk, see `recorded_finish`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from coordinator.coordinator import AskParties, Requests, arrivals
from coordinator.errors import LostError
from protocols.errors import MessageError, ParameterError, ProtocolError
from protocols.exchange.messages import MAX_HEADER_BYTES, Envelope, address_of, decode, digest
from protocols.exchange.private_files import FOLDER_MODE, write_private
from protocols.exchange.transcript import LOST, Transcript, verify
from protocols.names import COORDINATOR
from protocols.plan.protocol import BEFORE, FINISH
from protocols.steps.finish import weights_of

FOLDER, TRANSCRIPT, KEY = "messages", "transcript.jsonl", "coordinator.key"
# Enough of a message to hold its header.
HEAD_BYTES = MAX_HEADER_BYTES + 64


def file_name(index: int) -> str:
    """Of the frame that line `index` of the transcript names."""
    return f"{index:06d}.msg"


# -- writing, and going on ------------------------------------------------------------------------


def recorded(
    ask: AskParties,
    folder: Path | None,
    coordinator_key: str,
    parties: Mapping[str, str],
    *,
    durable: bool = True,
    files: dict[str, Path] | None = None,
) -> AskParties:
    """The same `ask`, which writes every frame to `folder`, and does not ask what was answered.

    folder: nobody else writes to it; None keeps nothing; coordinator_key: verification key,
    hexadecimal; parties: theirs by name; durable: wait for the disk at every message, so that a
    run can go on after the machine has died; files: is told where the replies to the step that is
    asked are. Requests are on disk before they are sent.

    Raises:
        ProtocolError: a request differs from the recorded one (data or program have changed), or a
            recorded reply is damaged.
        OSError: the folder cannot be written.
    """
    if folder is None:
        return ask
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    write_private(folder / KEY, f"{coordinator_key}\n".encode(), durable=durable)
    number = _Numbers()

    def asking(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        requests, replies = (
            {n: folder / f for n, f in each.items()} for each in number.take(outgoing)
        )
        if files is not None:
            files.clear()
            files.update(replies)
        for name, data in outgoing.items():
            if not requests[name].exists():
                write_private(requests[name], data, durable=durable)
            elif requests[name].read_bytes() != data:
                raise ProtocolError(
                    f"step {step!r}: the request to party {name!r} differs from the recorded one; "
                    "the program or its settings have changed since this session began"
                )
        unanswered = [name for name in outgoing if not replies[name].exists()]
        missing = Requests(unanswered, outgoing.__getitem__)
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
                write_private(replies[name], data, durable=durable)
            yield name, data

    return asking


class _Numbers:
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
    weights: Any  # nested lists


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


def unanswered(folder: Path) -> tuple[str, dict[str, float]]:
    """The latest step on disk, and whose reply to it is not there: by party, since when [epoch].

    Nothing is read but heads. Without a message: no step, and nobody.
    """
    step, asked = "", dict[str, float]()
    answered = set[str]()
    for path in sorted(folder.glob("*.msg"), reverse=True):
        try:
            with path.open("rb") as file:
                name, sender, recipient = address_of(file.read(HEAD_BYTES))
        except (MessageError, OSError):
            continue
        if name != (step := step or name):
            break
        if sender != COORDINATOR:
            answered.add(sender)
        else:
            asked[recipient] = path.stat().st_mtime
    return step, {name: since for name, since in reversed(asked.items()) if name not in answered}


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
        weights_of(envelope.body).tolist(),
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


def last_replies(folder: Path) -> dict[str, dict[str, bytes]]:
    """To `enrol`, and to the last step but `finish`: by step, then by party."""
    found: dict[str, dict[str, bytes]] = {}
    for message in _kept(folder):
        if message.step != FINISH and message.sender != COORDINATOR:
            found = {step: found.get(step, {}) for step in (BEFORE[0], message.step)}
            found[message.step][message.sender] = message.path.read_bytes()
    return found


def past(folder: Path, name: str) -> Iterator[tuple[bytes, list[Path]]]:
    """Every request to a party but `enrol`, and files of all replies to the step before each."""
    replies: list[_Kept] = []
    for _, group in groupby(_kept(folder), key=attrgetter("step")):
        messages = [*group]
        for asked in (message for message in messages if message.recipient == name and replies):
            yield asked.path.read_bytes(), [reply.path for reply in replies]
        replies = [message for message in messages if message.sender != COORDINATOR]


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


# -- auditing -------------------------------------------------------------------------------------


def holds_messages(folder: Path) -> bool:
    """Whether every message of the run in a folder was kept there."""
    return (folder / FOLDER).is_dir() and (folder / TRANSCRIPT).is_file()


def require_messages(folder: Path) -> None:
    """Check that a run folder holds recorded messages.

    Raises:
        ParameterError: it holds none.
    """
    if not holds_messages(folder):
        raise ParameterError(
            f"{str(folder)!r} holds no {FOLDER} beside a {TRANSCRIPT}: record the run with "
            "cohort simulate --keep-messages"
        )


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
class LoggedStep:
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
            LoggedStep(name, tuple(group))
            for name, group in groupby(self.entries, attrgetter("step"))
        ]

    def frame(self, entry: Entry) -> bytes:
        """A message as it was sent.

        Raises:
            MessageError: it is missing.
        """
        try:
            return (self._messages / file_name(entry.index)).read_bytes()
        except OSError as error:
            raise MessageError(f"{entry}: {error.strerror or error}") from None

    def read(self, entry: Entry, verify_key: str) -> Envelope:
        """The message that an entry names.

        verify_key: its sender's, hexadecimal.

        Raises:
            MessageError: it is missing, forged, changed, or another one than the entry's.
        """
        data = self.frame(entry)
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
