"""The transcript: a hash chain that shows every change but a cut at its end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocols.errors import ProtocolError
from protocols.exchange.transcript import GENESIS, Transcript, chain, verify

Lines = list[dict[str, Any]]


def filled(path: Path | None = None, count: int = 5, **forged: Any) -> Transcript:
    """Of that many lines; forged: fields of line 2, in a chain that follows from it."""
    transcript = Transcript(path)
    for k in range(count):
        fields = {"step": f"refresh/{k}", "sender": "a", "recipient": "b", "size": k}
        fields |= {"message": f"{k:064x}"} | (forged if k == 2 else {})
        transcript.add(**fields)
    return transcript


def test_the_head_is_that_of_the_chain() -> None:
    """32 zero bytes where there is no line; a cut, or a rewritten line, shows in it alone."""
    transcript = filled()
    assert Transcript().head == verify([]) == GENESIS == "0" * 64
    assert verify(transcript.lines) == transcript.head
    assert [line["index"] for line in transcript.lines] == list(range(5))
    assert verify(transcript.lines[:3]) != transcript.head
    forged = filled(sender="c")
    assert verify(forged.lines) == forged.head != transcript.head


def test_the_chain_is_what_the_docstring_says() -> None:
    """SHA-256(chain | canonical JSON): stable for ever, so that old runs can be verified."""
    text = (
        '{"bytes":0,"index":0,"message":"' + "0" * 64 + '","recipient":"b","sender":"a",'
        '"step":"refresh/0"}'
    )
    assert filled(count=1).head == hashlib.sha256(bytes(32) + text.encode()).hexdigest()
    assert chain(GENESIS, {"a": 1, "b": "ü"}) == chain(GENESIS, {"b": "ü", "a": 1})
    assert chain(GENESIS, {"a": 1}) != chain("11" * 32, {"a": 1})


CHANGES = {
    "index": 7,
    "step": "refresh/9",
    "sender": "c",
    "recipient": "c",
    "bytes": 99,
    "message": "ff" * 32,
    "chain": "ff" * 32,
    "extra": 1,
}


@pytest.mark.parametrize("field", CHANGES)
@pytest.mark.parametrize("position", [0, 2, 4])
def test_a_changed_line_is_named(field: str, position: int) -> None:
    lines = [dict(line) for line in filled().lines]
    lines[position][field] = CHANGES[field]
    with pytest.raises(ProtocolError, match=f"line {position} "):
        verify(lines)


def miscounted() -> Lines:
    """Every link follows, but line 1 says 2."""
    first = chain(GENESIS, {"index": 0})
    second = chain(first, {"index": 2})
    return [{"index": 0, "chain": first}, {"index": 2, "chain": second}]


BROKEN: dict[str, Callable[[Lines], Lines]] = {
    "first one missing": lambda lines: lines[1:],
    "missing": lambda lines: lines[:2] + lines[3:],
    "doubled": lambda lines: [*lines[:2], lines[1], *lines[2:]],
    "moved": lambda lines: [lines[1], lines[0], *lines[2:]],
    "empty": lambda lines: [{}],
    "no chain": lambda lines: [{"index": 0}],
    "chain of another type": lambda lines: [{"chain": None, "index": 0}],
    "miscounted": lambda lines: miscounted(),
}


@pytest.mark.parametrize("case", BROKEN)
def test_lines_that_do_not_follow_are_refused(case: str) -> None:
    with pytest.raises(ProtocolError, match="line 1 " if case == "miscounted" else "not follow"):
        verify(BROKEN[case](filled().lines))


def test_the_file_has_every_line_at_once(tmp_path: Path) -> None:
    """Lines are flushed as they come, so that an aborted run leaves them."""
    transcript = filled(tmp_path / "transcript.jsonl")
    read = [json.loads(line) for line in (tmp_path / "transcript.jsonl").read_text().splitlines()]
    assert read == transcript.lines
    assert verify(read) == transcript.head
    transcript.close()
    transcript.close()
