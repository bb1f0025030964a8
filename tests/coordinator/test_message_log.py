"""The message log: written as sent, read back only as written."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from coordinator.coordinator import arrivals
from coordinator.log import (
    FOLDER,
    KEY,
    TRANSCRIPT,
    MessageLog,
    file_name,
    recorded,
    recorded_finish,
)
from protocols.errors import MessageError, ProtocolError
from protocols.exchange.messages import MAGIC, address_of, public_bytes
from protocols.exchange.transcript import Transcript
from tests.support.helpers import Session
from tests.support.sessions import messages, record, small


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Session]:
    folder = tmp_path_factory.mktemp("log")
    return folder, record(folder, small(rounds=2))


@pytest.fixture
def log(finished: tuple[Path, Session], tmp_path: Path) -> Path:
    """A copy to tamper with."""
    return Path(shutil.copytree(finished[0], tmp_path / "log"))


def test_every_frame_is_kept_as_it_was_sent(finished: tuple[Path, Session]) -> None:
    """In the transcript's order, byte by byte, and nothing else."""
    folder, session = finished
    sent = {}
    for step, name, request, reply in session.recorded:
        sent[step, "coordinator", name] = request
        sent[step, name, "coordinator"] = reply
    found = {(m["step"], m["sender"], m["recipient"]): frame for m, frame in messages(folder)}
    assert found == sent
    names = {path.name for path in (folder / FOLDER).iterdir()}
    assert names == {KEY, *(file_name(k) for k in range(len(sent)))}


def test_nobody_else_reads_it(finished: tuple[Path, Session]) -> None:
    folder = finished[0] / FOLDER
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_it_reads_back(finished: tuple[Path, Session]) -> None:
    folder, session = finished
    read = MessageLog(folder)
    read.check(session.coordinator.session, session.verify_keys)
    read.check_strays()
    assert read.coordinator_key == public_bytes(session.coordinator_key)
    assert [step.name for step in read.steps][:3] == ["enrol", "agree", "reveal"]
    for step in read.steps:
        assert set(step.requests) == set(step.replies) == set(session.parties)
        assert all(entry.is_request for entry in step.requests.values())
        assert not any(entry.is_request for entry in step.replies.values())


def test_a_request_is_kept_before_it_is_sent(tmp_path: Path) -> None:
    """So a run that dies still shows what was asked."""
    folder = tmp_path / FOLDER

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        assert (folder / file_name(0)).read_bytes() == b"ask a"
        assert (folder / file_name(1)).read_bytes() == b"ask b"
        return {"b": b"answer b", "c": b"not asked"}

    keeping = recorded(ask, folder, "00" * 32, {})
    arrived = list(arrivals(keeping("enrol", {"a": b"ask a", "b": b"ask b"})))
    assert arrived == [("b", b"answer b"), ("c", b"not asked")]
    assert (folder / file_name(3)).read_bytes() == b"answer b"
    assert len(list(folder.iterdir())) == 4


def test_nothing_is_overwritten_or_kept_unasked(tmp_path: Path) -> None:
    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        return {}

    assert recorded(ask, None, "", {}) is ask
    for request, fails in ((b"one", False), (b"one", False), (b"another", True)):
        keeping = recorded(ask, tmp_path, "00" * 32, {})
        with pytest.raises(ProtocolError, match="differs") if fails else nullcontext():
            list(arrivals(keeping("enrol", {"a": request})))
    assert (tmp_path / file_name(0)).read_bytes() == b"one"


@pytest.mark.parametrize("damage", ["missing", "other", "longer", "shorter", "stray", "session"])
def test_a_damaged_log_names_the_message(
    log: Path, finished: tuple[Path, Session], damage: str
) -> None:
    session, folder = finished[1], log / FOLDER
    first, second = folder / file_name(4), folder / file_name(5)
    words, name = "message 4 .agree, coordinator to hospital-1.", session.coordinator.session
    if damage == "missing":
        first.unlink()
    elif damage == "other":
        second.replace(first)
    elif damage == "longer":
        first.write_bytes(first.read_bytes() + b"0")
    elif damage == "shorter":
        first.write_bytes(first.read_bytes()[:-1])
    elif damage == "stray":
        (folder / "000999.msg").write_bytes(b"")
        words = "000999.msg is in no line"
    else:
        name, words = "other", "message 0 .* of another session"
    read = MessageLog(log)
    with pytest.raises(MessageError, match=words):
        read.check(name, session.verify_keys)
        read.check_strays()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"step": "agree"', '"step": "reveal"', "line 4 does not follow"),
        ('"index": 4, ', '"index":  4, ', "not as it was written"),
        ("\n", "\r", "not as it was written"),
        ("}\n", "\n", "unreadable"),
        ("{", "\x80", "unreadable"),
    ],
)
def test_a_changed_transcript_is_refused(log: Path, old: str, new: str, words: str) -> None:
    text = (log / TRANSCRIPT).read_text()
    (log / TRANSCRIPT).write_bytes(text.replace(old, new, 1).encode("latin-1"))
    with pytest.raises((MessageError, ProtocolError), match=words):
        MessageLog(log)


@pytest.mark.parametrize("change", [{"size": "many"}, {"step": None}, {"sender": "hospital-2"}])
def test_a_well_chained_line_of_another_shape_is_refused(log: Path, change: dict[str, Any]) -> None:
    transcript = Transcript(log / TRANSCRIPT)
    line: dict[str, Any] = {"step": "enrol", "sender": "coordinator", "recipient": "hospital-1"}
    transcript.add(**(line | {"size": 1, "message": "00"} | change))
    transcript.close()
    if "sender" in change:
        with pytest.raises(MessageError, match="not between a party and the coordinator"):
            MessageLog(log)
    else:
        with pytest.raises(MessageError, match="is not of type"):
            MessageLog(log)


@pytest.mark.parametrize("key", ["", "AB" * 32 + "\n", "00" * 32 + "\r"])
def test_the_coordinators_key_is_as_it_was_written(log: Path, key: str) -> None:
    (log / FOLDER / KEY).write_bytes(key.encode())
    with pytest.raises(MessageError, match="64 hexadecimal digits"):
        MessageLog(log)


@pytest.mark.parametrize("header", [b"", b"[]", b'{"step": "keys"}', b"\xff\xfe", b"[" * 50_000])
def test_a_message_without_a_readable_header_has_no_address(header: bytes) -> None:
    """A refused reply lies among the recorded messages: whoever reads them gets a MessageError."""
    head = MAGIC + len(header).to_bytes(4, "little") + header
    with pytest.raises(MessageError, match="no readable header"):
        address_of(head)


@pytest.mark.parametrize("kept", [b"", b"noise" * 20])
def test_an_unreadable_record_is_passed_over(kept: bytes, tmp_path: Path) -> None:
    """The run is then simply not finished."""
    (tmp_path / file_name(0)).write_bytes(kept)
    assert recorded_finish(tmp_path, ("a", "b"), "00" * 32) is None
