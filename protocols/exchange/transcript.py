"""The transcript: a hash chain over every message that the coordinator sent or received.

Line k of transcript.jsonl: {"index", "step", "sender", "recipient", "bytes", "message", "chain"}
with chain_k = SHA-256(chain_{k-1} | canonical JSON of the other fields) and chain_{-1} 32 zero
bytes. A reply that never came, of a party that others stood in for (see `cover`), is a line of 0
bytes without a message.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from protocols.errors import ProtocolError

GENESIS = "00" * 32
# Size and message of a reply that never came.
LOST = (0, "")


def chain(previous: str, fields: dict[str, Any]) -> str:
    """Next link, hexadecimal."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(bytes.fromhex(previous) + text.encode()).hexdigest()


class Transcript:
    """Appends links; to a file as well, where one is given."""

    def __init__(self, path: Path | None = None) -> None:
        self.head = GENESIS
        self.lines: list[dict[str, Any]] = []
        self._file: TextIO | None = path.open("w", encoding="utf-8") if path else None

    def add(self, *, step: str, sender: str, recipient: str, size: int, message: str) -> None:
        """Log one message; message: its SHA-256, hexadecimal; size in bytes."""
        fields = {
            "index": len(self.lines),
            "step": step,
            "sender": sender,
            "recipient": recipient,
            "bytes": size,
            "message": message,
        }
        self.head = chain(self.head, fields)
        line = {**fields, "chain": self.head}
        self.lines.append(line)
        if self._file:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()
            self._file = None


def verify(lines: Iterable[dict[str, Any]]) -> str:
    """Head of an unbroken chain.

    Raises:
        ProtocolError: a line is missing, changed or out of order.
    """
    head = GENESIS
    for index, line in enumerate(lines):
        fields = {k: v for k, v in line.items() if k != "chain"}
        head = chain(head, fields)
        if line.get("index") != index or line.get("chain") != head:
            raise ProtocolError(f"transcript line {index} does not follow from the one before it")
    return head
