"""The content of a message, before it has an address."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Body:
    """Content of one message: small public fields and binary blobs."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    blobs: tuple[bytes, ...] = ()

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """SHA-256 of each blob, hexadecimal."""
        return tuple(hashlib.sha256(blob).hexdigest() for blob in self.blobs)

    def beside(self, meta: Mapping[str, Any]) -> Body:
        """The same blobs, which are not hashed again, beside other fields."""
        made = Body(meta, self.blobs)
        if "digests" in vars(self):
            vars(made)["digests"] = self.digests
        return made
