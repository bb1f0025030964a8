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
import math
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from protocols.errors import MessageError

Residues = NDArray[np.uint64]
T = TypeVar("T")
_WORD = 8
REMEMBERED = 256
"""Rows that `uniform` remembers."""
_HALF = 30


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
        if known and np.frombuffer(blob, np.uint64, ring_dim, start).max() < prime:
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
    towers = _places(frame, ring_dim, tuple(primes))
    check(residues, [t.prime for t in towers], ring_dim)
    rows, pieces, position = np.ascontiguousarray(residues), [], 0
    for tower, row in zip(towers, rows, strict=True):
        pieces += [memoryview(frame)[position : tower.offset], row.data]
        position = tower.offset + ring_dim * _WORD
    return b"".join([*pieces, memoryview(frame)[position:]])


# A frame is used many times, and its hash is computed once.
@lru_cache(maxsize=16)
def _places(frame: bytes, ring_dim: int, primes: tuple[int, ...]) -> list[Tower]:
    return find_towers(frame, ring_dim, primes)


def check(residues: Residues, primes: Sequence[int], ring_dim: int) -> None:
    """Raise MessageError unless residues has shape (len(primes), ring_dim) below its primes."""
    if residues.shape != (len(primes), ring_dim) or residues.dtype != np.uint64:
        raise MessageError(
            f"residues have shape {residues.shape}, expected {(len(primes), ring_dim)}, uint64"
        )
    if (residues >= np.array(primes, dtype=np.uint64)[:, None]).any():
        raise MessageError("a residue is not below its prime")


def add(left: Residues, right: Residues, primes: Sequence[int]) -> Residues:
    """(left + right) mod primes, row by row; operands below their primes (< 2^61)."""
    total = left + right
    # What is below zero wraps around to the top of the 64-bit range.
    np.minimum(total, total - _column(primes), out=total)
    return total


def subtract(left: Residues, right: Residues, primes: Sequence[int]) -> Residues:
    """(left - right) mod primes, row by row; operands below their primes (< 2^61)."""
    total = left - right
    np.minimum(total, total + _column(primes), out=total)
    return total


def product(left: Residues, right: Residues, primes: Sequence[int]) -> Residues:
    """(left * right) mod primes, row by row; operands of one shape below their primes (< 2^60)."""
    found = np.empty_like(left)
    for k, prime in enumerate(primes):
        found[k] = row_product(left[k], right[k], prime)
    return found


def row_product(left: Residues, right: Residues, prime: int | NDArray[np.int64]) -> Residues:
    """(left * right) mod prime; operands below it (< 2^60). Of several rows, a column of primes.

    With right = 2^30 high + low, left * high - q prime, then 2^30 times that + left * low - q'
    prime. The quotients, below 2^31, are off by 1/2 + 2^-20 at most as nearest integers to
    floats: each rest is within 2^60 of zero, and so right although products wrap modulo 2^64.
    """
    row, other = left.view(np.int64), right.view(np.int64)
    quotient, high, low = row * (1 / prime), other >> _HALF, other & ((1 << _HALF) - 1)
    rest = row * high - _nearest(quotient * high) * prime
    multiple = _nearest(rest * (2**_HALF / prime) + quotient * low)
    total: Residues = ((rest << _HALF) + row * low - multiple * prime).view(np.uint64)
    np.minimum(total, total + np.uint64(prime), out=total)
    return total


def _nearest(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(numbers).astype(np.int64)


def _column(primes: Sequence[int]) -> Residues:
    return np.array(primes, np.uint64)[:, None]


def scale(rows: Residues, factors: Sequence[int], primes: Sequence[int]) -> Residues:
    """(factor * row) mod prime, row by row; rows below their primes (< 2^60), any factors."""
    reduced = [factor % prime for factor, prime in zip(factors, primes, strict=True)]
    return product(rows, np.broadcast_to(_column(reduced), rows.shape), primes)


def uniform(seed: bytes, label: str, primes: Sequence[int], ring_dim: int) -> Residues:
    """Public uniform residues, shape (len(primes), ring_dim), from a joint seed; read-only.

    Row k is SHAKE-256(seed | label | k) read as 64-bit words; words below floor(2^64 / q) q are
    kept and reduced mod q, so that each residue is exactly uniform.
    """
    rows = np.stack([_uniform(seed, label, k, prime, ring_dim) for k, prime in enumerate(primes)])
    rows.setflags(write=False)
    return rows


# Parties of one process, and its coordinator, expand the elements of a step one after the other:
# 32 refreshes or 8 evaluation keys.
@lru_cache(maxsize=REMEMBERED)
def _uniform(seed: bytes, label: str, k: int, prime: int, ring_dim: int) -> Residues:
    limit = (1 << 64) // prime * prime
    # A word is refused with probability r < q / 2^64 < 1/8: as many as are needed, and 12
    # standard deviations.
    refused = 1 - limit / (1 << 64)
    spread = 12 * math.sqrt(ring_dim * refused) + 64
    words_wanted = math.ceil((ring_dim + spread) / (1 - refused))
    prefix = b"ciphercohort/uniform/1\0" + seed + label.encode() + b"\0" + k.to_bytes(2, "little")
    words = np.frombuffer(hashlib.shake_256(prefix).digest(words_wanted * _WORD), np.uint64)
    kept = words[words < np.uint64(limit)] if limit < 1 << 64 else words
    return kept[:ring_dim] % np.uint64(prime)


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


@lru_cache(maxsize=8)
def zeros(towers: int, ring_dim: int) -> Residues:
    """The polynomial 0, shape (towers, ring_dim); read-only."""
    found: Residues = np.zeros((towers, ring_dim), np.uint64)
    found.setflags(write=False)
    return found


def packed_size(primes: Sequence[int], ring_dim: int) -> int:
    """Bytes that `pack` makes."""
    return _WORD * len(primes) * ring_dim


def each(work: Callable[..., T], *arguments: Iterable[Any]) -> list[T]:
    """`map`, in as many threads as OpenFHE takes: $OMP_NUM_THREADS, or one per core.

    NumPy lets go of Python's lock, OpenFHE does not.
    """
    count = int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
    if count == 1:
        return list(map(work, *arguments))
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, *arguments))
