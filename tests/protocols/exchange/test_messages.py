"""Messages: round trips, and refusal of everything that is not exactly what was signed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import MessageError
from protocols.exchange.messages import (
    MAGIC,
    MAX_HEADER_BYTES,
    Body,
    Envelope,
    decode,
    digest,
    encode,
    new_signing_key,
    public_bytes,
    to_everyone,
)
from tests.support.helpers import header_of, seal
from tests.support.sessions import small

KEY, OTHER = new_signing_key(), new_signing_key()
VERIFY = public_bytes(KEY)
ENVELOPE = Envelope(
    "s", "refresh/3", "coordinator", "hospital-1", Body({"a": [1]}, (b"xy", b"")), "00"
)
# What encode writes for an empty request with the blob b"abc".
HEADER = json.loads(
    header_of(encode(Envelope("s", "enrol", "coordinator", "p", Body({}, (b"abc",))), KEY))
)


def signed(header: Any, blobs: bytes = b"abc", size: int = -1) -> bytes:
    """A message with a header of an attacker's choice and a true signature."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return seal(text, KEY, blobs, size)


# -- round trips ---------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - 10**19, 10**20 - 1)  # of at most 20 characters
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.tuples(*[st.text(max_size=20)] * 6),
    st.dictionaries(st.text(), JSON, max_size=3),
    st.lists(st.binary(max_size=50), max_size=4),
)
def test_decode_inverts_encode(
    names: tuple[str, ...], meta: dict[str, Any], blobs: list[bytes]
) -> None:
    """Any names, any JSON, any blobs."""
    *address, answers, seen = names
    envelope = Envelope(*address, Body(meta, tuple(blobs)), answers, seen)
    assert decode(encode(envelope, KEY), VERIFY) == envelope


def test_encoding_is_deterministic() -> None:
    """The same envelope and key give the same bytes, and so the same digest; NaN is no JSON."""
    data = encode(ENVELOPE, KEY)
    assert data == encode(ENVELOPE, KEY)
    others = (replace(ENVELOPE, answers="01"), replace(ENVELOPE, seen="01"))
    assert len({len(digest(data)), 64}) == 1
    assert len({digest(encode(each, KEY)) for each in (ENVELOPE, *others)}) == 3
    assert sum(map(len, ENVELOPE.body.blobs)) == 2
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(Envelope("s", "enrol", "a", "b", Body({"x": float("nan")})), KEY)


def test_to_everyone() -> None:
    """One body per party."""
    body = Body({"x": 1})
    ask = to_everyone("agree", ("a", "b"), body)
    assert (ask.step, dict(ask.bodies)) == ("agree", {"a": body, "b": body})


# -- tampering -----------------------------------------------------------------------------------

DATA = encode(ENVELOPE, KEY)
SIGNED = DATA[: len(MAGIC) + 4 + len(header_of(DATA))]
NOT_HIS = "not the expected sender's"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (encode(ENVELOPE, OTHER), NOT_HIS),
        (DATA[:-64] + bytes(64), NOT_HIS),
        (DATA + b"\0", None),
        # The magic carries the version; a true signature does not help.
        (b"CPHC\x7f" + DATA[len(MAGIC) :], "of this version"),
        # Signatures of the same bytes, made elsewhere.
        *(
            (SIGNED + KEY.sign(text) + DATA[len(SIGNED) + 64 :], "signature")
            for text in (SIGNED, header_of(DATA), hashlib.sha256(SIGNED).digest())
        ),
    ],
)
def test_a_forged_message(data: bytes, words: str | None) -> None:
    with pytest.raises(MessageError, match=words):
        decode(data, VERIFY)


def test_every_byte_is_signed() -> None:
    """A flip anywhere, every prefix; blobs of the same sizes in another order."""
    changed = [DATA[:k] for k in range(len(DATA))]
    changed += [DATA[:k] + bytes([DATA[k] ^ 1]) + DATA[k + 1 :] for k in range(len(DATA))]
    pair = encode(replace(ENVELOPE, body=Body({}, (b"left", b"rite"))), KEY)
    for data in (*changed, pair.replace(b"leftrite", b"riteleft")):
        with pytest.raises(MessageError):
            decode(data, VERIFY)


def test_oversize() -> None:
    """The cap is checked before anything else, and is sharp."""
    assert decode(DATA, VERIFY, size_cap=len(DATA)) == ENVELOPE
    for data, cap in ((DATA, len(DATA) - 1), (b"x" * len(DATA), 10)):
        with pytest.raises(MessageError, match=f"exceeds the cap of {cap}"):
            decode(data, VERIFY, size_cap=cap)


# -- a sender with a true key and a false header -------------------------------------------------

SIZES = (2, 4, -1, 1 << 70, "x", None, [3], float("inf"), float("nan"))
VALUES = (1, None, "x", [1], [[1]], [[3]], [[3, "00", 1]], True)


def nested(depth: int) -> dict[str, Any]:
    """Objects in objects."""
    return {} if depth == 0 else {"a": nested(depth - 1)}


def sized(*sizes: Any) -> dict[str, Any]:
    """A header whose blob has these sizes."""
    text = json.dumps(HEADER["blobs"][0])
    return HEADER | {"blobs": [json.loads(text.replace("3", json.dumps(s), 1)) for s in sizes]}


@pytest.mark.parametrize(
    "header",
    [
        # Sizes that do not add up, or are none; Infinity and NaN are valid for json.loads.
        *(sized(size) for size in SIZES),
        sized(-1, 4),
        *(HEADER | {field: value} for field in ("blobs", "meta") for value in VALUES),
        # Text that cannot be encoded, as value and as key; nested just too deep.
        *(HEADER | {"meta": meta} for meta in ({"a": "\ud800"}, {"\ud800": 1}, nested(32))),
        HEADER | {"session": "\ud800"},
        # Broken, nested much too deep, or not UTF-8.
        *(b"", b"{", b"[]", b"1", b"null", b"\xff\xfe", b'"x"', b"[" * 100_000, b'{"a":' * 50_000),
    ],
    ids=lambda header: repr(header)[-24:],
)
def test_a_false_header(header: Any) -> None:
    """HEADER itself is accepted: what is refused is the change."""
    for honest in (HEADER, HEADER | {"meta": nested(30)}):
        assert decode(signed(honest), VERIFY).body.blobs == (b"abc",)
    with pytest.raises(MessageError):
        decode(signed(header), VERIFY)


@pytest.mark.parametrize("field", HEADER)
def test_a_missing_field(field: str) -> None:
    """Every field is needed."""
    with pytest.raises(MessageError, match="malformed header"):
        decode(signed({k: v for k, v in HEADER.items() if k != field}), VERIFY)


@pytest.mark.parametrize("size", [0, 10**6, MAX_HEADER_BYTES + 1, (1 << 32) - 1])
def test_a_header_length_that_lies(size: int) -> None:
    """Beyond the message, or beyond the cap on headers."""
    with pytest.raises(MessageError):
        decode(signed(HEADER, size=size), VERIFY)


@pytest.mark.parametrize("change", [lambda data: data, lambda data: data[:-1], lambda data: b""])
def test_requests_of_another_coordinator(change: Callable[[bytes], bytes]) -> None:
    """Recorded requests are worth nothing to a new party; it does not even refuse them."""
    session, fresh = small(rounds=1), small(rounds=1)
    session.run()
    for _, name, data, _ in session.recorded:
        with pytest.raises(MessageError):
            fresh.parties[name].handle(change(data))


def test_digests_are_those_of_the_blobs() -> None:
    """Whatever was hashed before: equal ones, and others of their length."""
    blobs = [bytes([k % 3]) * (1 + k % 5) for k in range(30)]
    for blob in (*blobs, *blobs):
        assert Body(blobs=(blob,)).digests == (hashlib.sha256(blob).hexdigest(),)
