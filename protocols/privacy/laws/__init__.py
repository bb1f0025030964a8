"""Laws of noise, and how they are drawn. Here: where uniform bits come from.

The operating system; not private: a seed (`seeded`). Every sampler takes a `RandomSource`, as a
required argument, and consumes whole 64-bit words. Nothing depends on NumPy's generators.
"""

from __future__ import annotations

import os
from typing import Protocol, cast

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from protocols.errors import ParameterError

Words = NDArray[np.uint64]


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


def apart(source: RandomSource, label: str) -> RandomSource:
    """Randomness of another run of the same party: a seed's stream must not be used twice."""
    found = getattr(source, "apart", None)  # of `seeded.SeededRandomness`
    return source if found is None else cast(RandomSource, found(label))


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


def random_bits(randomness: RandomSource, count: int) -> NDArray[np.bool_]:
    """Independent fair bits, bool array, shape (count,)."""
    packed = randomness.words((count + 63) // 64).astype("<u8").view(np.uint8)
    return np.unpackbits(packed)[:count].astype(np.bool_)
