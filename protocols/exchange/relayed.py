"""A request, and beside it the replies of others to the step before: see `steps.replica`.

    request | replies | size of each (8 bytes) | their number (4 bytes) | MARK

Nothing of it is signed but the messages themselves, each by its sender.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from protocols.errors import MessageError

RELAY = "relay"
"""No step: brings replies, ahead of the request that follows from them."""
BEHIND = "behind"
"""Field of a reply: this party's replica has to follow the session anew, from its first step."""
MORE = "more"
"""Field of a RELAY: other replies to the same step come in the next one."""
PART_BYTES = 1 << 25
"""Of replies in one RELAY, but for one reply that is larger."""
MARK = b"\0CPHC-relayed-1\0"
_SIZE, _COUNT = struct.Struct("<Q"), struct.Struct("<I")


def beside(request: bytes, replies: Sequence[bytes]) -> bytes:
    """One message of these."""
    sizes = b"".join(_SIZE.pack(len(reply)) for reply in replies)
    return b"".join([request, *replies, sizes, _COUNT.pack(len(replies)), MARK])


def parted(data: bytes) -> tuple[bytes, tuple[bytes, ...] | None]:
    """The request, and the replies beside it; None: there is no such part.

    Raises:
        MessageError: sizes that do not fit the message.
    """
    if not data.endswith(MARK):
        return data, None
    end = len(data) - len(MARK) - _COUNT.size
    count = _COUNT.unpack_from(data, end)[0] if end >= 0 else -1
    start = end - _SIZE.size * count
    if not 0 <= start <= end:
        raise MessageError("the replies beside a request do not fit the message")
    sizes = [size for (size,) in _SIZE.iter_unpack(data[start:end])]
    place = start - sum(sizes)
    if place < 0:
        raise MessageError("the replies beside a request do not fit the message")
    request, found = data[:place], []
    for size in sizes:
        found.append(data[place : place + size])
        place += size
    return request, tuple(found)
