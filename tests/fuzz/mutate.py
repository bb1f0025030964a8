"""Hostile messages: true ones, changed where a reader could trip, and truly signed again."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocols.exchange.messages import MAGIC, SIGNATURE_BYTES
from tests.support.helpers import header_of, seal

Rng = np.random.Generator
Header = dict[str, Any]
Blobs = list[bytes]

# What stands in the JSON for these texts: values that json.dumps would not write.
RAW = {
    "@nan": "NaN",
    "@inf": "-Infinity",
    "@huge": "1" + "0" * 4000,
    "@digits": "9" * 20_000,
    "@exponent": "1e999999",
    "@deep": "[" * 5000 + "]" * 5000,
    "@edge": "[" * 950 + "]" * 950,
    "@objects": '{"a":' * 900 + "1" + "}" * 900,
    "@twice": '1,"step":"finish"',
    "@surrogate": '"\\ud800"',
}
PLAIN: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2.5, 1 << 31, -(1 << 63), 1 << 64, 1 << 70, 1e308, 5e-324, "", "x",
    "\0", "é" * 50, "A" * 3000, "-1", "../..", [], {}, [[]], [1], {"a": 1}, [None] * 300,
)  # fmt: skip
STEPS = (
    "", "/", "enrol", "agree", "keys", "refresh", "refresh/-1", "refresh/x", "refresh/1e9",
    "refresh/" + "9" * 5000, "rotations/99", "decrypt", "decrypt/0", "finish", "nonsense",
)  # fmt: skip


def junk(rng: Rng) -> Any:
    """A value of a wrong type, size or shape."""
    values = (*PLAIN, *RAW)
    return copy.deepcopy(values[rng.integers(len(values))])


def paths(node: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a nested JSON value."""
    found = [prefix] if prefix else []
    keys = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys:
        found += paths(node[key], (*prefix, key))
    return found


def change_somewhere(node: Any, rng: Rng, value: Any = None) -> None:
    """Put junk at a random place, or remove it, or put something beside it; in place."""
    places = paths(node)
    if not places:
        return
    *above, last = places[rng.integers(len(places))]
    for key in above:
        node = node[key]
    kind = rng.integers(10)
    if kind == 0:
        del node[last]
    elif kind == 1 and isinstance(node, dict):
        node[str(junk(rng))[:40]] = junk(rng)
    elif kind == 2 and isinstance(node, list):
        node.append(copy.deepcopy(node[last]))
    elif kind == 3 and type(node[last]) in (int, float):
        node[last] = node[last] * [-1, 2, 0.5, 1 << 40][rng.integers(4)]
    else:
        node[last] = junk(rng)


def to_text(value: Any) -> bytes:
    """JSON with the texts of RAW in place."""
    text = json.dumps(value)
    for name, raw in RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text.encode()


def edit(data: bytes, rng: Rng) -> bytes:
    """Up to 4 edits: a byte replaced, a slice cut out, doubled, or replaced by noise."""
    out = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        kind, at, span = rng.integers(4), int(rng.integers(len(out) + 1)), int(rng.integers(1, 12))
        if kind == 0 and at < len(out):
            out[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del out[at : at + span]
        elif kind == 2:
            out[at:at] = out[at : at + span]
        else:
            out[at : at + span] = rng.bytes(span)
    return bytes(out)


# -- blobs: residues out of range, wrong sizes, wrong counts ---------------------------------------


def _residue(blob: bytes, rng: Rng) -> bytes:
    out = bytearray(blob)
    at = 8 * int(rng.integers(max(1, len(out) // 8)))
    values = (b"\xff" * 8, b"\0" * 8, (1 << 60).to_bytes(8, "little"), rng.bytes(8))
    out[at : at + 8] = values[rng.integers(4)]
    return bytes(out)


BLOB_CHANGES: tuple[Callable[[bytes, Rng], Blobs], ...] = (
    lambda blob, rng: [_residue(blob, rng)],
    lambda blob, rng: [b"\xff" * len(blob)],
    lambda blob, rng: [blob[: rng.integers(len(blob) + 1)]],
    lambda blob, rng: [blob + rng.bytes(8)],
    lambda blob, rng: [blob, blob],
    lambda blob, rng: [b""] * int(rng.integers(200)),
    lambda blob, rng: [rng.bytes(int(rng.integers(4096)))],
    lambda blob, rng: [],
)


def change_blobs(blobs: Blobs, rng: Rng) -> Blobs:
    """One blob changed, removed, doubled or added."""
    at = int(rng.integers(len(blobs))) if blobs else 0
    old = blobs[at] if blobs else b"12345678"
    return [*blobs[:at], *BLOB_CHANGES[rng.integers(len(BLOB_CHANGES))](old, rng), *blobs[at + 1 :]]


# -- whole messages --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Template:
    """A true message, taken apart."""

    data: bytes
    header: Header
    blobs: Blobs
    key: Ed25519PrivateKey

    @classmethod
    def of(cls, data: bytes, key: Ed25519PrivateKey) -> Template:
        """From its bytes and its sender's key."""
        text = header_of(data)
        header = json.loads(text)
        at, blobs = len(MAGIC) + 4 + len(text) + SIGNATURE_BYTES, []
        for size, _ in header["blobs"]:
            blobs.append(data[at : at + size])
            at += size
        return cls(data, header, blobs, key)

    def mutant(self, rng: Rng) -> bytes:
        """One hostile message; about nine in ten are truly signed."""
        kind = rng.integers(20)
        if kind == 0:
            return edit(self.data, rng)
        if kind == 1:
            return self.data[: rng.integers(len(self.data) + 1)]
        header, blobs = copy.deepcopy(self.header), self.blobs
        if kind == 2:
            return seal(edit(to_text(header), rng), self.key, b"".join(blobs))
        if kind == 3:
            size = int(rng.choice([0, 1, 1 << 20, (1 << 32) - 1]))
            return seal(to_text(header), self.key, b"".join(blobs), size)
        if kind == 4:
            header["step"] = STEPS[rng.integers(len(STEPS))]
        elif kind < 9:
            blobs = change_blobs(blobs, rng)
            hashes = [hashlib.sha256(blob).hexdigest() for blob in blobs]
            header["blobs"] = [list(pair) for pair in zip(map(len, blobs), hashes, strict=True)]
        elif kind < 15 and header["meta"]:
            change_somewhere(header["meta"], rng)
        if kind >= 15 or rng.integers(8) == 0:
            change_somewhere(header, rng)
        return seal(to_text(header), self.key, b"".join(blobs))
