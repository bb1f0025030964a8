"""What passes between a kernel and whoever drives it, and what does not."""

from __future__ import annotations

import socket
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from parties.kernel.channel import DTYPES, Channel, Codec, Handle
from protocols.ckks import CkksParameters
from protocols.errors import MessageError
from protocols.exchange import Body
from protocols.exchange.signed_values import SignedValue

CODEC = Codec()
NUMBERS = st.integers(-(1 << 80), 1 << 80) | st.floats(allow_nan=False)
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text() | st.binary() | ARRAYS
RECORDS = st.sampled_from(
    [
        Handle(3),
        Body({"k": [1, 2.5]}, (b"a", b"")),
        SignedValue("00" * 32, "11" * 64),
        CkksParameters(ring_dim=512, depth=3, security_bits=0),
    ]
)
VALUES = st.recursive(
    LEAVES | RECORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=12,
)


def passed(value: Any) -> Any:
    head, blobs = CODEC.encode(value)
    return CODEC.decode(head, [bytes(blob) for blob in blobs])


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        alike = left.dtype == right.dtype and left.shape == right.shape
        return alike and left.tobytes() == right.tobytes()
    if isinstance(left, (list, tuple)):
        whole = type(left) is type(right) and len(left) == len(right)
        return whole and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[k], right[k]) for k in left)
    return type(left) is type(right) and bool(left == right)


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_values_arrive_as_they_left(value: Any) -> None:
    assert same(passed(value), value)


class Stranger:
    """Of a class in no table."""


@pytest.mark.parametrize(
    "value",
    [Stranger(), print, np.array([1j]), np.array(["a"]), np.array([None])],
    ids=("stranger", "function", "complex", "text", "object"),
)
def test_what_is_in_no_table_does_not_leave(value: Any) -> None:
    with pytest.raises(MessageError, match="pass"):
        CODEC.encode([value])


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"[1]",
        b"1.5",
        b'{"r": ["Run", []]}',
        b'{"r": ["os:system", ["true"]]}',
        b'{"r": ["Handle", []]}',
        b'{"a": ["|O", [1], 0]}',
        b'{"a": ["<f8", [-1, -1], 0]}',
        b'{"a": ["<f8", [4294967296, 4294967296], 0]}',
        b'{"a": ["<f8", [1], -1]}',
        b'{"a": ["<f8", [1], true]}',
        b'{"b": 7}',
        b'{"f": "x"}',
        b'{"i": "z"}',
        b'{"x": 1}',
        b'{"l": [1], "t": [1]}',
        b'{"d": [[[1], 2]]}',
        b'{"d": [[{"l": []}, 2]]}',
        b'{"t": ' * 200 + b"1" + b"}" * 200,
        b"[" * 100_000,
        b"\xff",
    ],
    ids=lambda head: head[:20].decode(errors="replace"),
)
def test_hostile_heads_are_refused(head: bytes) -> None:
    with pytest.raises(MessageError):
        CODEC.decode(head, [bytes(8)])


def test_frames_have_a_size() -> None:
    """Refused before memory is taken."""
    for frame in ((1 << 40, 0), (2, 1 << 31)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(frame[0].to_bytes(8, "big") + frame[1].to_bytes(4, "big"))
            with pytest.raises(MessageError, match="too large"):
                Channel(ours).receive()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(
            (2).to_bytes(8, "big") + (1).to_bytes(4, "big") + (1 << 60).to_bytes(8, "big")
        )
        with pytest.raises(MessageError, match="too large"):
            Channel(ours).receive()


def test_large_values_pass_whole() -> None:
    ours, theirs = socket.socketpair()
    value = (np.arange(1 << 20, dtype=np.uint64), b"x" * (1 << 20))
    with ours, theirs:
        sender = threading.Thread(target=Channel(theirs).send, args=(value,))
        sender.start()
        assert same(Channel(ours).receive(), value)
        sender.join()
