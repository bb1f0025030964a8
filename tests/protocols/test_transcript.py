"""The transcript: a hash chain that shows every change but a cut at its end."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from protocols.errors import ProtocolError
from protocols.transcript import GENESIS, Transcript, chain, verify


def filled(path: Path | None = None, count: int = 5) -> Transcript:
    transcript = Transcript(path)
    for k in range(count):
        transcript.add(step=f"refresh/{k}", sender="a", recipient="b", size=k, message=f"{k:064x}")
    return transcript


def test_an_empty_transcript() -> None:
    """Its head is 32 zero bytes."""
    assert Transcript().head == verify([]) == GENESIS == "0" * 64


def test_the_chain_verifies() -> None:
    """verify recomputes the head."""
    transcript = filled()
    assert verify(transcript.lines) == transcript.head
    assert [line["index"] for line in transcript.lines] == list(range(5))


def test_the_chain_is_what_the_docstring_says() -> None:
    """SHA-256(chain | canonical JSON): stable for ever, so that old runs can be verified."""
    transcript = filled(count=1)
    text = (
        '{"bytes":0,"index":0,"message":"' + "0" * 64 + '","recipient":"b","sender":"a",'
        '"step":"refresh/0"}'
    )
    assert transcript.head == hashlib.sha256(bytes(32) + text.encode()).hexdigest()


def test_the_order_of_fields_does_not_matter() -> None:
    """The JSON is canonical."""
    assert chain(GENESIS, {"a": 1, "b": "ü"}) == chain(GENESIS, {"b": "ü", "a": 1})
    assert chain(GENESIS, {"a": 1}) != chain("11" * 32, {"a": 1})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("index", 7),
        ("step", "refresh/9"),
        ("sender", "c"),
        ("recipient", "c"),
        ("bytes", 99),
        ("message", "ff" * 32),
        ("chain", "ff" * 32),
        ("extra", 1),
    ],
)
@pytest.mark.parametrize("position", [0, 2, 4])
def test_a_changed_line(field: str, value: Any, position: int) -> None:
    """The first line that does not follow is named."""
    lines = [dict(line) for line in filled().lines]
    lines[position][field] = value
    with pytest.raises(ProtocolError, match=f"line {position} "):
        verify(lines)


def test_a_missing_doubled_or_moved_line() -> None:
    """Lines follow one another."""
    lines = filled().lines
    for broken in (
        lines[1:],
        lines[:2] + lines[3:],
        [*lines[:2], lines[1], *lines[2:]],
        [lines[1], lines[0], *lines[2:]],
    ):
        with pytest.raises(ProtocolError, match="does not follow"):
            verify(broken)


def test_a_rewritten_line_changes_the_head() -> None:
    """Who recomputes the chain from there on gets another head than the one on record."""
    forged = Transcript()
    for line in filled().lines:
        sender = "c" if line["index"] == 2 else line["sender"]
        forged.add(
            step=line["step"],
            sender=sender,
            recipient=line["recipient"],
            size=line["bytes"],
            message=line["message"],
        )
    assert verify(forged.lines) == forged.head != filled().head


def test_a_cut_shows_in_the_head_alone() -> None:
    """A prefix is a valid chain: readers compare the head with the one in the run folder."""
    lines = filled().lines
    assert verify(lines[:3]) != filled().head


def test_the_file_has_every_line_at_once(tmp_path: Path) -> None:
    """Lines are flushed as they come, so that an aborted run leaves them."""
    path = tmp_path / "transcript.jsonl"
    transcript = filled(path)
    read = [json.loads(line) for line in path.read_text().splitlines()]
    assert read == transcript.lines
    assert verify(read) == transcript.head
    transcript.close()
    transcript.close()


@pytest.mark.parametrize("line", [{}, {"index": 0}, {"chain": None, "index": 0}])
def test_a_line_without_its_fields(line: dict[str, Any]) -> None:
    """Refused like any other change."""
    with pytest.raises(ProtocolError):
        verify([line])


def test_consistent_links_with_false_numbers() -> None:
    """Who counts wrongly is refused even where every link follows."""
    lines, head = [], GENESIS
    for index in (0, 2):
        head = chain(head, {"index": index})
        lines.append({"index": index, "chain": head})
    with pytest.raises(ProtocolError, match="line 1 "):
        verify(lines)
