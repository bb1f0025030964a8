"""Polynomials on the wire: residue matrices, never serialised objects.

An OpenFHE object (key, ciphertext, share) is a frame of metadata around residue vectors, one
per prime. Only the residues travel; the receiver checks them (count, size, each below its prime)
and sets them into a frame that it made itself. So no byte from another machine reaches OpenFHE's
deserialiser, which a hostile byte can kill.

Uniformly random halves (of public keys, evaluation keys, refreshes) do not travel at all: they
are expanded from a joint seed, SHAKE-256(seed, label).

Layout of one vector inside a serialised object, all little-endian:
    length n (8 bytes) | n residues (8 bytes each) | prime (8 bytes)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocols.errors import MessageError

Residues = NDArray[np.uint64]
_WORD = 8


class Tower(NamedTuple):
    """Where one residue vector stands inside a serialised object."""

    offset: int
    prime: int


def find_towers(blob: bytes, ring_dim: int) -> list[Tower]:
    """Every residue vector of a serialised object, in order."""
    length_word = ring_dim.to_bytes(_WORD, "little")
    size = ring_dim * _WORD
    towers: list[Tower] = []
    position = 0
    while (hit := blob.find(length_word, position)) >= 0:
        start, end = hit + _WORD, hit + _WORD + size
        if end + _WORD > len(blob):
            break
        prime = int.from_bytes(blob[end : end + _WORD], "little")
        # An NTT prime is 1 mod 2n; a frame field that looks like a length fails this test.
        if prime % (2 * ring_dim) == 1 and _below(blob, start, ring_dim, prime):
            towers.append(Tower(start, prime))
            position = end
        else:
            position = hit + 1
    return towers


def read(blob: bytes, ring_dim: int) -> tuple[Residues, list[int]]:
    """Residues, shape (towers, ring_dim), and their primes."""
    towers = find_towers(blob, ring_dim)
    rows = [np.frombuffer(blob, np.uint64, ring_dim, t.offset) for t in towers]
    return np.array(rows, dtype=np.uint64).reshape(len(rows), ring_dim), [t.prime for t in towers]


def implant(frame: bytes, residues: Residues) -> bytes:
    """The frame with its residue vectors replaced.

    Raises:
        MessageError: the number of towers differs, or a residue is not below its prime.
    """
    ring_dim = residues.shape[1]
    towers = find_towers(frame, ring_dim)
    check(residues, [t.prime for t in towers], ring_dim)
    out = bytearray(frame)
    for tower, row in zip(towers, residues, strict=True):
        out[tower.offset : tower.offset + ring_dim * _WORD] = row.tobytes()
    return bytes(out)


def check(residues: Residues, primes: Sequence[int], ring_dim: int) -> None:
    """Raise MessageError unless residues has shape (len(primes), ring_dim) below its primes."""
    if residues.shape != (len(primes), ring_dim):
        raise MessageError(
            f"residues have shape {residues.shape}, expected {(len(primes), ring_dim)}"
        )
    if (residues >= np.array(primes, dtype=np.uint64)[:, None]).any():
        raise MessageError("a residue is not below its prime")


def add(left: Residues, right: Residues, primes: Sequence[int]) -> Residues:
    """(left + right) mod primes, row by row; operands below their primes (< 2^61)."""
    modulus = np.array(primes, dtype=np.uint64)[:, None]
    total = left + right
    return np.where(total >= modulus, total - modulus, total)


def uniform(seed: bytes, label: str, primes: Sequence[int], ring_dim: int) -> Residues:
    """Public uniform residues, shape (len(primes), ring_dim), from a joint seed.

    Row k is SHAKE-256(seed | label | k) read as 64-bit words; words below floor(2^64 / q) q are
    kept and reduced mod q, so that each residue is exactly uniform.
    """
    rows = np.empty((len(primes), ring_dim), dtype=np.uint64)
    for k, prime in enumerate(primes):
        limit = (1 << 64) // prime * prime
        # A word is refused with probability < q / 2^64 < 1/8.
        words_wanted = ring_dim + ring_dim // 4 + 64
        prefix = b"ciphercohort/uniform/1\0" + seed + label.encode() + b"\0" + k.to_bytes(2, "little")
        stream = hashlib.shake_256(prefix).digest(words_wanted * _WORD)
        words = np.frombuffer(stream, np.uint64)
        kept = words[words < np.uint64(limit)] if limit < 1 << 64 else words
        rows[k] = kept[:ring_dim] % np.uint64(prime)
    return rows


def pack(residues: Residues, primes: Sequence[int]) -> bytes:
    """Wire form: each residue in the fewest whole bytes that hold its prime."""
    parts = []
    for row, prime in zip(residues, primes, strict=True):
        width = _width(prime)
        parts.append(np.ascontiguousarray(row).view(np.uint8).reshape(-1, _WORD)[:, :width])
    return b"".join(part.tobytes() for part in parts)


def unpack(data: bytes, primes: Sequence[int], ring_dim: int) -> Residues:
    """Inverse of `pack`.

    Raises:
        MessageError: the length is wrong, or a residue is not below its prime.
    """
    expected = packed_size(primes, ring_dim)
    if len(data) != expected:
        raise MessageError(f"{len(data)} bytes of residues, expected {expected}")
    out = np.zeros((len(primes), ring_dim, _WORD), dtype=np.uint8)
    position = 0
    for k, prime in enumerate(primes):
        width = _width(prime)
        raw = np.frombuffer(data, np.uint8, ring_dim * width, position)
        out[k, :, :width] = raw.reshape(ring_dim, width)
        position += ring_dim * width
    residues: Residues = out.view(np.uint64)[:, :, 0]
    check(residues, primes, ring_dim)
    return residues


def packed_size(primes: Sequence[int], ring_dim: int) -> int:
    """Bytes that `pack` makes."""
    return sum(_width(prime) for prime in primes) * ring_dim


def _width(prime: int) -> int:
    return (prime.bit_length() + 7) // 8


def _below(blob: bytes, start: int, ring_dim: int, prime: int) -> bool:
    return bool(np.frombuffer(blob, np.uint64, ring_dim, start).max() < prime)
