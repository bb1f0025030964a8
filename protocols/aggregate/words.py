"""Products in Z_Q[X] / (X^n + 1) with Q = 2^32, n = 2048, by floating-point transforms, exactly.

Q needs no prime: ring-LWE is pseudorandom for every modulus (Peikert, Regev and
Stephens-Davidowitz, STOC 2017), and a word of four bytes is what a float32 takes. log2(Q) = 32 at n
= 2048 is far below the 54 that HomomorphicEncryption.org allows for 128 bits.

Transform. At the roots z of X^n + 1 with z^(n/2) = i a real polynomial is sum_j (x_j + i x_(j +
n/2)) z^j: one complex transform of length n/2, after a twist. These n/2 roots and their conjugates
are all.

Rounding. |a| <= 2^31 and s has std 6.38, so a coefficient of a s has some 40 bits, and float64 has
53: measured, a product is off by at most 2^-10 before it is rounded to the integer (a test holds it
to 2^-6). With the sum of 1024 secrets it is 2^-5. A wrong rounding would move a sum by one unit,
which its own noise does by hundreds.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

RING_DIM = 2048
WORD_BITS = 32
_HALF = RING_DIM // 2
# Polynomials transformed at once: their 1 MB stays in cache.
_ROWS = 64
_AES_BLOCK = 16

Words = NDArray[np.uint32]


def num_elements(length: int) -> int:
    """Ring elements that so many values take."""
    return -(-length // RING_DIM)


def add_products(key: bytes, secret: NDArray[np.int64], total: Words) -> None:
    """Add the first coefficients of a_0 s, a_1 s, … to `total`, mod 2^32.

    key: 32 public bytes; a_k is the k-th part of AES-256 in counter mode under it, uniform. secret:
    s, short, shape (n,); total: shape (length,), contiguous, changed.
    """
    factor = np.empty((1, _HALF), np.complex128)
    _forward(secret[None], factor)
    stream = Cipher(AES(key), CTR(bytes(16))).encryptor()
    folded = np.empty((_ROWS, _HALF), np.complex128)
    zeros, random = bytes(4 * _ROWS * RING_DIM), bytearray(4 * _ROWS * RING_DIM + _AES_BLOCK)
    for start in range(0, len(total), _ROWS * RING_DIM):
        part = total[start : start + _ROWS * RING_DIM]
        rows, whole = num_elements(len(part)), len(part) // RING_DIM
        stream.update_into(zeros, random)
        element = np.frombuffer(random, "<i4", count=rows * RING_DIM).reshape(rows, RING_DIM)
        product = folded[:rows]
        _forward(element, product)
        product *= factor
        low, high = _inverse(product)
        sums = part[: whole * RING_DIM].reshape(whole, RING_DIM)
        sums[:, :_HALF] += low[:whole]
        sums[:, _HALF:] += high[:whole]
        if rows > whole:
            rest = part[whole * RING_DIM :]
            rest += np.concatenate([low[-1], high[-1]])[: len(rest)]


@lru_cache(maxsize=2)
def _twist(sign: int) -> NDArray[np.complex128]:
    twist: NDArray[np.complex128] = np.exp(sign * 1j * np.pi * np.arange(_HALF) / RING_DIM)
    return twist


def _forward(x: NDArray[Any], values: NDArray[np.complex128]) -> None:
    """Values at the roots with z^(n/2) = i, shape (rows, n / 2)."""
    values.real, values.imag = x[:, :_HALF], x[:, _HALF:]
    values *= _twist(1)
    np.fft.ifft(values, norm="forward", out=values)


def _inverse(values: NDArray[np.complex128]) -> tuple[Words, Words]:
    """Coefficients 0 .. n/2 - 1 and n/2 .. n - 1, rounded, mod 2^32; changes `values`.

    1.5 * 2^52 + x is a float64 whose lowest 32 bits are those of the integer next to x.
    """
    np.fft.fft(values, norm="forward", out=values)
    values *= _twist(-1)
    parts = values.view(np.float64)
    parts += 1.5 * 2**52
    words = parts.view("<u4")
    return words[:, 0::4], words[:, 2::4]
