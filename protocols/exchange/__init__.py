"""Messages, documents and files: what travels, and what is kept.

Here: a message's content, before it has an address; and names that both sides know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

COVERED, COMMIT = "cover-", "commit-"
"""Prefixes: of a step that repeats another one without the parties that have vanished; of the step
before another one, in which its replies are fixed."""
PUBLIC_KEY = "public-key"
RELINEARISATION = "relinearisation"
OPENING_KEY = "opening-key"
CONTRIBUTE = "contribute"
KEYS = "keys"


def repeated(step: str) -> str:
    """The step that `step` repeats, itself if it repeats none."""
    return step.removeprefix(COVERED)


def commit_of(step: str) -> str:
    """The step in which the replies to `step` are fixed."""
    again = COVERED if step != repeated(step) else ""
    return f"{again}{COMMIT}{repeated(step)}"


def rotation_label(index: int) -> str:
    """Label of a rotation key's uniform half."""
    return f"rotation/{index}"


@dataclass(frozen=True)
class Body:
    """Content of one message: small public fields and binary blobs."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    blobs: tuple[bytes, ...] = ()

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """SHA-256 of each blob, hexadecimal."""
        return tuple(map(_digest, self.blobs))

    def beside(self, meta: Mapping[str, Any]) -> Body:
        """The same blobs, which are not hashed again, beside other fields."""
        made = Body(meta, self.blobs)
        if "digests" in vars(self):
            vars(made)["digests"] = self.digests
        return made


# Sender and receiver of one process have the same blobs, and so have all its parties.
@lru_cache(maxsize=4)
def _digest(blob: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(blob).hexdigest()
