"""Messages: round trips, and refusal of everything that is not exactly what was signed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import MessageError
from protocols.messages import (
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
from tests.helpers import Session, header_of, make_session, seal

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
    | st.integers()
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
    """The same envelope and key give the same bytes, and so the same digest."""
    data = encode(ENVELOPE, KEY)
    assert data == encode(ENVELOPE, KEY)
    assert len(digest(data)) == 64
    assert digest(data) != digest(encode(replace(ENVELOPE, answers="01"), KEY))
    assert digest(data) != digest(encode(replace(ENVELOPE, seen="01"), KEY))
    assert ENVELOPE.body.num_bytes == 2


def test_nan_does_not_travel() -> None:
    """It is no JSON."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(Envelope("s", "enrol", "a", "b", Body({"x": float("nan")})), KEY)


def test_to_everyone() -> None:
    """One body per party."""
    body = Body({"x": 1})
    ask = to_everyone("agree", ("a", "b"), body)
    assert (ask.step, dict(ask.bodies)) == ("agree", {"a": body, "b": body})


# -- tampering -----------------------------------------------------------------------------------


def test_a_forged_signature() -> None:
    """Another party's key, or none at all."""
    with pytest.raises(MessageError, match="not the expected sender's"):
        decode(encode(ENVELOPE, OTHER), VERIFY)
    data = encode(ENVELOPE, KEY)
    with pytest.raises(MessageError, match="not the expected sender's"):
        decode(data[:-64] + bytes(64), VERIFY)


def test_every_byte_is_signed() -> None:
    """A flip anywhere is noticed."""
    data = encode(ENVELOPE, KEY)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        with pytest.raises(MessageError):
            decode(bytes(changed), VERIFY)


def test_truncated_and_extended() -> None:
    """Every prefix, and any byte more."""
    data = encode(ENVELOPE, KEY)
    for size in range(len(data)):
        with pytest.raises(MessageError):
            decode(data[:size], VERIFY)
    with pytest.raises(MessageError):
        decode(data + b"\0", VERIFY)


def test_oversize() -> None:
    """The cap is checked before anything else, and is sharp."""
    data = encode(ENVELOPE, KEY)
    assert decode(data, VERIFY, size_cap=len(data)) == ENVELOPE
    with pytest.raises(MessageError, match=f"exceeds the cap of {len(data) - 1}"):
        decode(data, VERIFY, size_cap=len(data) - 1)
    with pytest.raises(MessageError, match="exceeds the cap"):
        decode(b"x" * len(data), VERIFY, size_cap=10)


def test_another_version() -> None:
    """The magic carries the version; a true signature does not help."""
    other = b"CPHC\x7f" + encode(ENVELOPE, KEY)[len(MAGIC) :]
    with pytest.raises(MessageError, match="of this version"):
        decode(other, VERIFY)


def test_a_signature_is_bound_to_messages() -> None:
    """A signature of the same bytes, made elsewhere, does not pass."""
    data, header = encode(ENVELOPE, KEY), header_of(encode(ENVELOPE, KEY))
    start = len(MAGIC) + 4 + len(header)
    for text in (data[:start], header, hashlib.sha256(data[:start]).digest()):
        with pytest.raises(MessageError, match="signature"):
            decode(data[:start] + KEY.sign(text) + data[start + 64 :], VERIFY)


def test_a_swapped_blob() -> None:
    """Blobs of the same sizes in another order are not what was signed."""
    envelope = replace(ENVELOPE, body=Body({}, (b"left", b"rite")))
    data = encode(envelope, KEY)
    with pytest.raises(MessageError):
        decode(data.replace(b"leftrite", b"riteleft"), VERIFY)


# -- a sender with a true key and a false header -------------------------------------------------


def test_the_false_headers_below_differ_from_a_true_one() -> None:
    """HEADER itself is accepted: what is refused is the change."""
    envelope = decode(signed(HEADER), VERIFY)
    assert envelope.body.blobs == (b"abc",)


@pytest.mark.parametrize("size", [2, 4, -1, 1 << 70, "x", None, [3], float("inf"), float("nan")])
def test_a_false_size(size: Any) -> None:
    """Sizes that do not add up, or are no sizes; Infinity and NaN are valid for json.loads."""
    blobs = json.loads(json.dumps(HEADER["blobs"]).replace("3", json.dumps(size), 1))
    assert blobs != HEADER["blobs"]
    with pytest.raises(MessageError):
        decode(signed(HEADER | {"blobs": blobs}), VERIFY)


@pytest.mark.parametrize("field", ["blobs", "meta"])
@pytest.mark.parametrize("value", [1, None, "x", [1], [[1]], [[3]], [[3, "00", 1]], True], ids=str)
def test_a_false_field(field: str, value: Any) -> None:
    """Wrong types."""
    with pytest.raises(MessageError):
        decode(signed(HEADER | {field: value}), VERIFY)


def test_negative_sizes_that_add_up() -> None:
    """-1 + 4 = 3."""
    (entry,) = HEADER["blobs"]
    text = json.dumps(entry)
    blobs = [json.loads(text.replace("3", size, 1)) for size in ("-1", "4")]
    with pytest.raises(MessageError):
        decode(signed(HEADER | {"blobs": blobs}), VERIFY)


@pytest.mark.parametrize("field", HEADER)
def test_a_missing_field(field: str) -> None:
    """Every field is needed."""
    with pytest.raises(MessageError, match="malformed header"):
        decode(signed({k: v for k, v in HEADER.items() if k != field}), VERIFY)


@pytest.mark.parametrize(
    "header",
    [b"", b"{", b"[]", b"1", b"null", b"\xff\xfe", b'"x"', b"[" * 100_000, b'{"a":' * 50_000],
    ids=lambda header: repr(header[:6]),
)
def test_a_header_that_is_no_object(header: bytes) -> None:
    """Broken, nested too deep, or not UTF-8."""
    with pytest.raises(MessageError):
        decode(signed(header), VERIFY)


@pytest.mark.parametrize("size", [0, 10**6, MAX_HEADER_BYTES + 1, (1 << 32) - 1])
def test_a_header_length_that_lies(size: int) -> None:
    """Beyond the message, or beyond the cap on headers."""
    with pytest.raises(MessageError):
        decode(signed(HEADER, size=size), VERIFY)


# -- fuzz ----------------------------------------------------------------------------------------


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """Up to 4 edits: a byte replaced, a slice cut out, doubled, or replaced by noise."""
    out = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        kind, at = rng.integers(4), int(rng.integers(0, len(out) + 1))
        span = int(rng.integers(1, 12))
        if kind == 0 and at < len(out):
            out[at] = int(rng.integers(256))
        elif kind == 1:
            del out[at : at + span]
        elif kind == 2:
            out[at:at] = out[at : at + span]
        else:
            out[at : at + span] = rng.bytes(span)
    return bytes(out)


def test_fuzzed_messages() -> None:
    """20,000 mutants, half of them signed anew: an envelope or MessageError, nothing else."""
    rng = np.random.default_rng(1)
    data = encode(ENVELOPE, KEY)
    accepted = 0
    for k in range(20_000):
        header = mutate(header_of(data), rng)
        mutant = seal(header, KEY, data[-2:]) if k % 2 else mutate(data, rng)
        try:
            envelope = decode(mutant, VERIFY)
        except MessageError:
            continue
        accepted += 1
        assert k % 2 or mutant == data
        assert isinstance(envelope, Envelope)
    # Signed mutants reach the parser: some still parse.
    assert 30 < accepted < 5_000


@pytest.fixture(scope="module")
def session() -> Session:
    """A session that was run once: its requests are the seeds of the fuzz."""
    session = make_session(rounds=2, ring_dim=512, degree=3, update="gd")
    session.run()
    return session


def test_fuzzed_requests(session: Session) -> None:
    """A party answers 2,000 mutants, signed or not, with a signed refusal or MessageError."""
    rng = np.random.default_rng(2)
    requests = [(name, data) for _, name, data, _ in session.recorded if len(data) < 5000]
    assert len(requests) >= 6
    fresh = make_session(rounds=2, ring_dim=512, degree=3, update="gd")
    for k in range(2000):
        name, data = requests[k % len(requests)]
        header = mutate(header_of(data), rng)
        mutant = seal(header, fresh.coordinator_key) if k % 2 else mutate(data, rng)
        try:
            reply = fresh.parties[name].handle(mutant)
        except MessageError:
            continue
        assert k % 2
        envelope = decode(reply, public_bytes(fresh.party_keys[name]))
        # Only `enrol` can be answered before a plan, and it carries nothing.
        assert "error" in envelope.body.meta or envelope.step == "enrol"


def test_requests_of_another_coordinator(session: Session) -> None:
    """Recorded requests are worth nothing to a new party, in whatever order."""
    fresh = make_session(rounds=2, ring_dim=512, degree=3, update="gd")
    for _, name, data, _ in session.recorded:
        with pytest.raises(MessageError, match="not the expected sender's"):
            fresh.parties[name].handle(data)
