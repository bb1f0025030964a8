"""What passes between the kernel and whoever drives it: numbers, texts, arrays and named records.

Frame: bytes of the head (8), number of blobs (4), bytes of each blob (8), all big endian; then the
head, one line of JSON, and the blobs. In the head `{"f": "0x1.8p+1"}` is a float, `{"a": [dtype,
shape, k]}` an array that blob k holds, `{"r": [name, fields]}` one of RECORDS. Nothing is pickled:
a name that is not in a table is refused.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from parties.kernel import EVERY, named
from protocols.errors import MessageError

MOST_HEAD, MOST_BLOBS, MOST_BYTES, MOST_DEPTH = 1 << 26, 1 << 16, 1 << 33, 24
DTYPES = ("|b1", "<u2", "<i4", "<i8", "<u8", "<f8")
Data = bytes | bytearray
_EXACT = 1 << 53  # JSON's readers keep integers up to here
_HEAD, _BLOB = struct.Struct(">QI"), struct.Struct(">Q")

RECORDS: Mapping[str, str] = {
    name: f"{module}:{name}"
    for module, names in {
        "parties.kernel.channel": ("Handle",),
        "parties.kernel.cover": ("CoveredSheet",),
        "parties.kernel.keys": ("CkksParameters", "KeysSheet"),
        "parties.kernel.model": ("Columns", "ModelSheet", "TraceMap"),
        "parties.kernel.rows": ("ColumnMap", "RowsSheet"),
        "parties.kernel.sums": ("SumsRound", "SumsSheet"),
        "protocols.exchange": ("Body",),
        "protocols.exchange.signed_values": ("Agreement", "SignedValue"),
        "protocols.steps.samples": ("Element", "Pad", "Sample", "Term"),
    }.items()
    for name in names
}
"""Classes that a record may be of; loaded when one is, in a room of its owner's protocols."""


@dataclass(frozen=True, slots=True)
class Handle:
    """Something that stays in the kernel, by its number."""

    number: int


class Codec:
    """Values to heads and blobs, and back; records: as RECORDS, with those of a deployment.

    protocols: of the owner on this side.

    Raises:
        MessageError: a value, or what arrived, is of no kind that passes. PolicyError: a record is
        of another protocol.
    """

    def __init__(
        self, records: Mapping[str, str] = RECORDS, protocols: Sequence[str] = EVERY
    ) -> None:
        self._records, self._protocols = records, protocols

    def encode(self, value: Any) -> tuple[bytes, list[memoryview]]:
        """Head and blobs of a value."""
        blobs: list[memoryview] = []
        head = json.dumps(self._plain(value, blobs), allow_nan=False).encode()
        return head, blobs

    def _plain(self, value: Any, blobs: list[memoryview]) -> Any:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, np.integer)):
            return int(value) if abs(int(value)) < _EXACT else {"i": hex(value)}
        if isinstance(value, (float, np.floating)):
            return {"f": float(value).hex()}
        if isinstance(value, (bytes, memoryview)):
            blobs.append(memoryview(value))
            return {"b": len(blobs) - 1}
        if isinstance(value, np.ndarray):
            kind = value.dtype.newbyteorder("<").str
            if kind not in DTYPES:
                raise MessageError(f"arrays of {value.dtype} do not pass")
            blobs.append(np.ascontiguousarray(value, kind).reshape(-1).view(np.uint8).data)
            return {"a": [kind, list(value.shape), len(blobs) - 1]}
        if isinstance(value, (list, tuple, set, frozenset)):
            tag = "l" if isinstance(value, list) else "t" if isinstance(value, tuple) else "s"
            return {tag: [self._plain(each, blobs) for each in value]}
        if isinstance(value, Mapping):
            return {"d": [[self._plain(each, blobs) for each in pair] for pair in value.items()]}
        name = type(value).__name__
        if name in self._records:
            own = [self._plain(getattr(value, field), blobs) for field in _fields(type(value))]
            return {"r": [name, own]}
        raise MessageError(f"a value of type {name} does not pass")

    def decode(self, head: Data, blobs: Sequence[Data]) -> Any:
        """Inverse of `encode`."""
        try:
            return self._value(json.loads(head), blobs, 0)
        except (ValueError, TypeError, LookupError, RecursionError, OverflowError) as error:
            raise MessageError(f"the frame's head is malformed ({type(error).__name__})") from None

    def _value(self, plain: Any, blobs: Sequence[Data], depth: int, inside: bool = False) -> Any:
        """inside: a record, whose fields are no arrays: their integers would wrap."""
        if plain is None or isinstance(plain, (bool, str)):
            return plain
        if isinstance(plain, int):
            return plain
        if not isinstance(plain, dict) or len(plain) != 1 or depth > MOST_DEPTH:
            raise MessageError("the frame's head holds something else than values")
        ((tag, held),) = plain.items()
        if tag == "i":
            return int(held, 16)
        if tag == "f":
            return float.fromhex(held)
        if tag == "b":
            return bytes(blobs[_index(held)])
        if tag == "a":
            kind, shape, k = held
            if inside or not isinstance(shape, list):
                raise MessageError("an array of another type, or inside a record")
            if kind not in DTYPES or not all(type(n) is int and n >= 0 for n in shape):
                raise MessageError("an array of another type")
            blob = blobs[_index(k)]
            if len(blob) != math.prod(shape) * np.dtype(kind).itemsize:
                raise MessageError("an array of another size than its blob")
            return np.frombuffer(blob, kind).reshape(shape)
        if tag == "r":
            name, own = held
            if name not in self._records:
                raise MessageError("a record that is in no table")
            record = named(self._records[name], self._protocols)
            values = (self._value(each, blobs, depth + 1, True) for each in own)
            return record(**dict(zip(_fields(record), values, strict=True)))
        if not isinstance(held, list):
            raise MessageError("the frame's head holds something else than values")
        if tag == "d":
            return dict(
                [self._value(each, blobs, depth + 1, inside) for each in two] for two in held
            )
        kinds = {"l": list, "t": tuple, "s": frozenset}
        return kinds[tag](self._value(each, blobs, depth + 1, inside) for each in held)


def _fields(record: Any) -> tuple[str, ...]:
    """Of a dataclass, or of a struct."""
    named: tuple[str, ...] | None = getattr(record, "__struct_fields__", None)
    return tuple(field.name for field in fields(record)) if named is None else named


def _index(k: Any) -> int:
    if type(k) is not int or k < 0:
        raise MessageError("a blob has no such number")
    return k


class Channel:
    """Frames over a connected socket; one side asks, the other answers.

    codec: of what passes.
    """

    def __init__(self, connection: socket.socket, codec: Codec | None = None) -> None:
        self._connection, self.codec = connection, codec or Codec()

    def send(self, value: Any) -> None:
        """Write one value. Raises MessageError: it is of no kind that passes."""
        head, blobs = self.codec.encode(value)
        sizes = b"".join(_BLOB.pack(len(blob)) for blob in blobs)
        self._connection.sendall(_HEAD.pack(len(head), len(blobs)) + sizes + head)
        for blob in blobs:
            self._connection.sendall(blob)

    def receive(self) -> Any:
        """The next value.

        Raises:
            MessageError: no frame of this kind, or too large. EOFError: the other side is gone.
        """
        size, count = _HEAD.unpack(self._read(_HEAD.size))
        if size > MOST_HEAD or count > MOST_BLOBS:
            raise MessageError(f"a frame of {size} bytes and {count} blobs is too large")
        sizes = [n for (n,) in _BLOB.iter_unpack(self._read(count * _BLOB.size))]
        if sum(sizes) > MOST_BYTES:
            raise MessageError(f"a frame of {sum(sizes)} bytes is too large")
        head = self._read(size)
        return self.codec.decode(head, [self._read(n) for n in sizes])

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view, have = memoryview(data), 0
        while have < size:
            got = self._connection.recv_into(view[have:])
            if not got:
                raise EOFError("the other side of the channel is gone")
            have += got
        return data

    def close(self) -> None:
        """Of this side."""
        self._connection.close()
