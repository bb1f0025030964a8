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
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocols.errors import MessageError

Residues = NDArray[np.uint64]
_WORD = 8
_HALF = 1 << 30


class Tower(NamedTuple):
    """Where one residue vector stands inside a serialised object."""

    offset: int
    prime: int


def find_towers(blob: bytes, ring_dim: int, primes: Collection[int] = ()) -> list[Tower]:
    """Every residue vector of a serialised object, in order.

    primes: the only ones to accept. Without them any NTT prime passes, and of 10^6 random objects
    (10^9 at ring 2^15) one begins with metadata that looks like a length and swallows a vector.
    """
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
        known = prime in primes if primes else prime % (2 * ring_dim) == 1
        if known and _below(blob, start, ring_dim, prime):
            towers.append(Tower(start, prime))
            position = end
        else:
            position = hit + 1
    return towers


def read(blob: bytes, ring_dim: int, primes: Collection[int] = ()) -> tuple[Residues, list[int]]:
    """Residues, shape (towers, ring_dim), and their primes; see `find_towers`."""
    towers = find_towers(blob, ring_dim, primes)
    rows = [np.frombuffer(blob, np.uint64, ring_dim, t.offset) for t in towers]
    return np.array(rows, dtype=np.uint64).reshape(len(rows), ring_dim), [t.prime for t in towers]


def implant(frame: bytes, residues: Residues, primes: Collection[int] = ()) -> bytes:
    """The frame with its residue vectors replaced; primes: see `find_towers`.

    Raises:
        MessageError: the number of towers differs, or a residue is not below its prime.
    """
    ring_dim = residues.shape[1]
    towers = find_towers(frame, ring_dim, primes)
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
    np.subtract(total, modulus, out=total, where=total >= modulus)
    return total


def negate(rows: Residues, primes: Sequence[int]) -> Residues:
    """-rows mod primes, row by row; rows below their primes."""
    modulus = np.array(primes, dtype=np.uint64)[:, None]
    return np.where(rows > 0, modulus - rows, rows)


def product(left: Residues, right: Residues, primes: Sequence[int]) -> Residues:
    """(left * right) mod primes, row by row; operands of one shape below their primes (< 2^60).

    In halves of 30 bits, left * half = quotient * prime + rest: the quotient, below 2^30, is off by
    at most one as a float, and the rest is right modulo 2^64.
    """
    found = np.empty_like(left)
    for k, prime in enumerate(primes):
        low = right[k] & np.uint64(_HALF - 1)
        high = _half_product(left[k], right[k] >> np.uint64(30), prime)
        total = _half_product(high, np.uint64(_HALF), prime) + _half_product(left[k], low, prime)
        np.subtract(total, np.uint64(prime), out=total, where=total >= prime)
        found[k] = total
    return found


def _half_product(rows: Residues, half: Any, prime: int) -> Residues:
    quotient = (rows.astype(np.float64) * (half.astype(np.float64) / prime)).astype(np.uint64)
    rest: NDArray[np.int64] = (rows * half - quotient * np.uint64(prime)).view(np.int64)
    np.add(rest, prime, out=rest, where=rest < 0)
    np.subtract(rest, prime, out=rest, where=rest >= prime)
    return rest.view(np.uint64)


def scale(rows: Residues, factors: Sequence[int], primes: Sequence[int]) -> Residues:
    """(factor * row) mod prime, row by row; rows below their primes (< 2^61), factors any integers.

    Two bits of the factor at a time: 4 * total + 3 * row stays below 2^64.
    """
    modulus = np.array(primes, dtype=np.uint64)[:, None]
    reduced = [factor % prime for factor, prime in zip(factors, primes, strict=True)]
    total = np.zeros_like(rows)
    for shift in range(max(reduced).bit_length() // 2 * 2, -1, -2):
        digits = np.array([factor >> shift & 3 for factor in reduced], np.uint64)[:, None]
        total = (total * np.uint64(4) + rows * digits) % modulus
    return total


def uniform(seed: bytes, label: str, primes: Sequence[int], ring_dim: int) -> Residues:
    """Public uniform residues, shape (len(primes), ring_dim), from a joint seed; read-only.

    Row k is SHAKE-256(seed | label | k) read as 64-bit words; words below floor(2^64 / q) q are
    kept and reduced mod q, so that each residue is exactly uniform.
    """
    return _uniform(seed, label, tuple(primes), ring_dim)


# Parties of one process, and its coordinator, expand the elements of a step one after the other.
@lru_cache(maxsize=8)
def _uniform(seed: bytes, label: str, primes: tuple[int, ...], ring_dim: int) -> Residues:
    rows = np.empty((len(primes), ring_dim), dtype=np.uint64)
    for k, prime in enumerate(primes):
        limit = (1 << 64) // prime * prime
        # A word is refused with probability < q / 2^64 < 1/8.
        words_wanted = ring_dim + ring_dim // 4 + 64
        prefix = (
            b"ciphercohort/uniform/1\0" + seed + label.encode() + b"\0" + k.to_bytes(2, "little")
        )
        stream = hashlib.shake_256(prefix).digest(words_wanted * _WORD)
        words = np.frombuffer(stream, np.uint64)
        kept = words[words < np.uint64(limit)] if limit < 1 << 64 else words
        rows[k] = kept[:ring_dim] % np.uint64(prime)
    rows.setflags(write=False)
    return rows


def pack(residues: Residues, primes: Sequence[int]) -> bytes:
    """Wire form: row after row, 8 bytes little-endian each.

    Raises:
        MessageError: the number of rows differs from that of the primes.
    """
    if len(residues) != len(primes):
        raise MessageError(f"{len(residues)} rows of residues for {len(primes)} primes")
    return np.ascontiguousarray(residues, dtype="<u8").tobytes()


def unpack(data: bytes, primes: Sequence[int], ring_dim: int) -> Residues:
    """Inverse of `pack`; read-only.

    Raises:
        MessageError: the length is wrong, or a residue is not below its prime.
    """
    expected = packed_size(primes, ring_dim)
    if len(data) != expected:
        raise MessageError(f"{len(data)} bytes of residues, expected {expected}")
    residues = np.frombuffer(data, "<u8").reshape(len(primes), ring_dim)
    check(residues, primes, ring_dim)
    return residues


def packed_size(primes: Sequence[int], ring_dim: int) -> int:
    """Bytes that `pack` makes."""
    return _WORD * len(primes) * ring_dim


def _below(blob: bytes, start: int, ring_dim: int, prime: int) -> bool:
    return bool(np.frombuffer(blob, np.uint64, ring_dim, start).max() < prime)
