"""Randomness of a seed, which is not private."""

from __future__ import annotations

import hashlib

import numpy as np

from protocols.privacy.laws import Words

_BLOCK_WORDS = 1 << 15


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
