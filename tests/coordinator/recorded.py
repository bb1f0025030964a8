"""Recorded runs on toy rings (INSECURE), honest and not, and a forger's tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from coordinator.log import FOLDER, TRANSCRIPT, file_name, recorded
from protocols.errors import CohortError
from protocols.messages import Ask, Body, Envelope, decode, digest, encode, public_bytes
from protocols.transcript import Transcript
from tests.helpers import Session, make_session

# Nesterov's state: two ciphertexts in every refresh but the first.
SMALL: dict[str, Any] = {"ring_dim": 512, "degree": 3, "update": "nag", "rows": 4, "rounds": 3}
Deviation = Callable[[Any], Any]
Message = tuple[dict[str, Any], bytes]  # its line in the transcript, its frame


def record(
    folder: Path,
    deviate: Deviation | None = None,
    watch: dict[str, Session] | None = None,
    **changes: Any,
) -> Session:
    """Run and keep every message.

    deviate: wraps the coordinator's exchange; watch: gets the session as "it" before the run.
    """
    session = make_session(**(SMALL | {"parties": 3} | changes))
    if watch is not None:
        watch["it"] = session
    folder.mkdir(exist_ok=True)
    session.transcript = session.coordinator._transcript = Transcript(folder / TRANSCRIPT)
    if deviate:
        honest = session.coordinator.protocol
        session.coordinator.protocol = lambda: deviate(honest())  # type: ignore[method-assign]
    key = public_bytes(session.coordinator_key)
    try:
        # A party may refuse what deviates, or the decryption fail.
        with suppress(*([CohortError] if deviate else [])):
            session.run(
                recorded(session.ask, folder / FOLDER, key, session.coordinator._party_keys)
            )
    finally:
        session.transcript.close()
    return session


def altered(step: str, change: Callable[[Body], Body], *parties: str) -> Deviation:
    """A coordinator that sends something else in one step, to these parties."""

    def deviate(exchange: Any) -> Any:
        replies: Any = None
        while True:
            try:
                asked = exchange.send(replies)
            except StopIteration as stop:
                return stop.value
            if asked.step == step:
                others = {name: change(asked.bodies[name]) for name in parties}
                asked = Ask(step, {**asked.bodies, **others})
            replies = yield asked

    return deviate


def messages(folder: Path) -> list[Message]:
    """Everything that was recorded."""
    lines = [json.loads(text) for text in (folder / TRANSCRIPT).read_text().splitlines()]
    return [(line, (folder / FOLDER / file_name(line["index"])).read_bytes()) for line in lines]


def rewrite(folder: Path, change: Callable[[list[Message]], object]) -> None:
    """Change the log, then number and chain it again, as a forger would."""
    found = messages(folder)
    change(found)
    for path in (folder / FOLDER).glob("*.msg"):
        path.unlink()
    transcript = Transcript(folder / TRANSCRIPT)
    for line, frame in found:
        (folder / FOLDER / file_name(len(transcript.lines))).write_bytes(frame)
        transcript.add(
            step=line["step"],
            sender=line["sender"],
            recipient=line["recipient"],
            size=len(frame),
            message=digest(frame),
        )
    transcript.close()


def resign(session: Session, frame: bytes, key: Any, **changes: Any) -> bytes:
    """The same message with other fields, signed by `key`."""
    keys = [session.coordinator_key, *session.party_keys.values()]
    for known in keys:
        with suppress(CohortError):
            old = decode(frame, public_bytes(known))
            fields = {name: getattr(old, name) for name in Envelope.__dataclass_fields__}
            return encode(Envelope(**(fields | changes)), key)
    raise AssertionError("nobody's message")


def position(found: list[Message], step: str, sender: str, recipient: str) -> int:
    """Index of one message."""
    return next(
        k
        for k, (line, _) in enumerate(found)
        if (line["step"], line["sender"], line["recipient"]) == (step, sender, recipient)
    )
