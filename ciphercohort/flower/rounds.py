"""What client and server have to agree on: names of steps, and what a round is bound to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ciphercohort.flower.members import Roster

# Of those known, that each roster has at least, and that each round asks.
LEAST_SHARE = 0.5
KEYS, ROSTER, SUM, OPEN = "keys", "roster", "sum", "open"
QUERY = "query"
# Records of a reply whose numbers are summed as they are; also with more, after a full stop.
SUMS = "sums"
# Name of the record that holds a contribution.
WORDS = "secure-sum.words"


def bound(kind: str, content: bytes, arrays: bytes) -> bytes:
    """What has one set of contributors: the model, of a query the whole question.

    content, arrays: digests, of all that a message holds and of its arrays alone.
    """
    # Flower hands both "train" and "train.default" to one function.
    name = kind.removesuffix(".default")
    return name.encode() + b"\0" + (content if name.split(".")[0] == QUERY else arrays)


def round_context(
    roster: Roster | bytes, fields: Mapping[str, Any], kind: str, group: str, model: bytes
) -> bytes:
    """32 bytes that no other round of any session has.

    roster: or its digest; fields: of the request: session, epoch, round, asked, plan; kind, group:
    type and group of the message; model: digest of all else in it.
    """
    digest = roster if isinstance(roster, bytes) else roster.digest()
    names = ("session", "epoch", "round", "asked", "plan")
    said = json.dumps([kind, group, *(fields[name] for name in names)]).encode()
    return hashlib.sha256(b"ciphercohort/flower/round/3\0" + digest + model + said).digest()
