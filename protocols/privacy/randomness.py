"""Where uniform bits come from: the operating system, or (not private) a seed.

Every sampler of this package takes a `RandomSource` as a required argument and consumes whole
64-bit words. Nothing here depends on NumPy's generators.
"""

from __future__ import annotations

import hashlib
import os
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from protocols.errors import ParameterError

Words = NDArray[np.uint64]

_BLOCK_WORDS = 1 << 15


class RandomSource(Protocol):
    """A stream of independent uniform 64-bit words."""

    def words(self, count: int) -> Words:
        """Uniform words, uint64 array, shape (count,)."""
        ...


class SystemRandomness:
    """The operating system's CSPRNG (`os.urandom`): the only source for noise that protects."""

    def words(self, count: int) -> Words:
        """Uniform words, uint64 array, shape (count,)."""
        return np.frombuffer(os.urandom(8 * count), dtype="<u8").astype(np.uint64, copy=False)


class ExpandedRandomness:
    """AES-256 in counter mode under a key that the operating system draws for this object alone.

    As good as the operating system's generator, which is built like it, and ten times as fast.
    key: 32 secret bytes in its place, where two have a stream in common.
    """

    def __init__(self, key: bytes | None = None) -> None:
        key = os.urandom(32) if key is None else key
        self._stream = Cipher(AES(key), CTR(bytes(16))).encryptor()

    def words(self, count: int) -> Words:
        """Uniform words, uint64 array, shape (count,)."""
        data = self._stream.update(bytes(8 * count))
        return np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False)


class SeededRandomness:
    """NOT PRIVATE: a repeatable stream for tests and simulations.

    Block i of the stream is SHAKE-256 of (label, seed, i). Anybody who knows the seed can
    subtract the noise, so no privacy statement may be made about its output.

    Args:
        seed: any integer; the same seed gives the same words for ever, on every platform.
        label: separates streams of one seed, for instance one per party.
    """

    def __init__(self, seed: int, label: str = "") -> None:
        """Start the stream at its beginning."""
        self._seed, self._label = seed, label
        self._prefix = f"ciphercohort/not-private/{label}/{seed}/".encode()
        self._counter = 0
        self._rest: Words = np.zeros(0, dtype=np.uint64)

    def words(self, count: int) -> Words:
        """Uniform words, uint64 array, shape (count,)."""
        parts = [self._rest]
        have = self._rest.size
        while have < count:
            digest = hashlib.shake_256(self._prefix + str(self._counter).encode())
            self._counter += 1
            block = np.frombuffer(digest.digest(8 * _BLOCK_WORDS), dtype="<u8")
            parts.append(block.astype(np.uint64, copy=False))
            have += _BLOCK_WORDS
        joined = np.concatenate(parts)
        self._rest = joined[count:]
        return joined[:count]

    def apart(self, label: str) -> SeededRandomness:
        """Another stream of the seed, for another run."""
        return SeededRandomness(self._seed, f"{self._label}/{label}")

    def __repr__(self) -> str:
        """Name the danger in every log line."""
        return "SeededRandomness(NOT PRIVATE)"


def apart(source: RandomSource, label: str) -> RandomSource:
    """Randomness of another run of the same party: a seed's stream must not be used twice."""
    return source.apart(label) if isinstance(source, SeededRandomness) else source


def uniform_below(randomness: RandomSource, bound: int, count: int) -> NDArray[np.int64]:
    """Exactly uniform integers in [0, bound), by masking and rejection.

    Returns:
        int64 array, shape (count,).

    Raises:
        ParameterError: bound is outside 1 .. 2^62.
    """
    if not 1 <= bound <= 1 << 62:
        raise ParameterError(f"bound={bound} is outside 1 .. 2^62; use a coarser grid")
    mask = np.uint64((1 << (bound - 1).bit_length()) - 1)
    out = (randomness.words(count) & mask).astype(np.int64)
    bad = np.flatnonzero(out >= bound)
    while bad.size:
        redrawn = (randomness.words(bad.size) & mask).astype(np.int64)
        out[bad] = redrawn
        bad = bad[redrawn >= bound]
    return out


def uniform_below_each(randomness: RandomSource, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Exactly uniform integers, the i-th one in [0, bounds[i]); every bound is 1 .. 2^62.

    Returns:
        int64 array of the shape of `bounds`, which is one-dimensional.
    """
    mask = (bounds - 1).astype(np.uint64)
    for shift in (1, 2, 4, 8, 16, 32):
        mask |= mask >> np.uint64(shift)
    out = (randomness.words(bounds.size) & mask).astype(np.int64)
    bad = np.flatnonzero(out >= bounds)
    while bad.size:
        redrawn = (randomness.words(bad.size) & mask[bad]).astype(np.int64)
        out[bad] = redrawn
        bad = bad[redrawn >= bounds[bad]]
    return out


def random_bits(randomness: RandomSource, count: int) -> NDArray[np.bool_]:
    """Independent fair bits, bool array, shape (count,)."""
    packed = randomness.words((count + 63) // 64).astype("<u8").view(np.uint8)
    return np.unpackbits(packed)[:count].astype(np.bool_)
