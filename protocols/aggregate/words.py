"""Products in Z_Q[X] / (X^n + 1) with Q = 2^32, n = 2048, by floating-point transforms, exactly.

Q needs no prime: ring-LWE is pseudorandom for every modulus (Peikert, Regev and
Stephens-Davidowitz, STOC 2017), and a word of four bytes is what a float32 takes. log2(Q) = 32 at n
= 2048 is far below the 54 that HomomorphicEncryption.org allows for 128 bits.

Order. Coefficients j and j + n/2 stand side by side, at 2 j and 2 j + 1: those that are not sent
are any of an element's.

Transform. At the roots z of X^n + 1 with z^(n/2) = i a real polynomial is sum_j (x_j + i x_(j +
n/2)) z^j: one complex transform of length n/2, after a twist. These n/2 roots and their conjugates
are all. In the order above the pairs are complex numbers as they stand.

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
# Elements that each further secret should mask, and as many secrets as that is worth: a secret is
# shared among all clients, an element is drawn and transformed.
_WORTH_A_SECRET = 32
_MOST_SECRETS = 4

Words = NDArray[np.uint32]


def num_elements(length: int) -> int:
    """Ring elements that so many values take."""
    return -(-length // RING_DIM)


def num_secrets(length: int) -> int:
    """Secrets that mask so many values, see `add_products`."""
    return min(max(num_elements(length) // _WORTH_A_SECRET, 1), _MOST_SECRETS)


def add_products(key: bytes, secrets: NDArray[np.int64], total: Words) -> None:
    """Add a_0 s_j, a_1 s_j, … to the j-th part of `total`, mod 2^32.

    key: 32 public bytes; a_k is the k-th part of AES-256 in counter mode under it, uniform, and the
    same for all secrets. secrets: s_j, short, shape (secrets, n); total: shape (length,),
    contiguous, changed; its parts have equal numbers of elements, but for the last.
    """
    factors = np.empty((len(secrets), _HALF), np.complex128)
    _forward(secrets, factors)
    stream = Cipher(AES(key), CTR(bytes(16))).encryptor()
    element, product = np.empty((2, _ROWS, _HALF), np.complex128)
    zeros, random = bytes(4 * _ROWS * RING_DIM), bytearray(4 * _ROWS * RING_DIM + _AES_BLOCK)
    size = -(-num_elements(len(total)) // len(secrets)) * RING_DIM
    for start in range(0, size, _ROWS * RING_DIM):
        stop = min(start + _ROWS * RING_DIM, size)
        rows = (stop - start) // RING_DIM
        stream.update_into(zeros, random)
        drawn = np.frombuffer(random, "<i4", count=rows * RING_DIM)
        _forward(drawn.reshape(rows, RING_DIM), element[:rows])
        for j, factor in enumerate(factors):
            part = total[j * size : (j + 1) * size][start:stop]
            rows = num_elements(len(part))
            np.multiply(element[:rows], factor, out=product[:rows])
            part += _rounded(_inverse(product[:rows]))[: len(part)]


@lru_cache(maxsize=2)
def _twist(sign: int) -> NDArray[np.complex128]:
    twist: NDArray[np.complex128] = np.exp(sign * 1j * np.pi * np.arange(_HALF) / RING_DIM)
    return twist


def _forward(x: NDArray[Any], values: NDArray[np.complex128]) -> None:
    """Values at the roots with z^(n/2) = i, shape (rows, n / 2)."""
    values.view(np.float64)[:] = x
    values *= _twist(1)
    np.fft.ifft(values, norm="forward", out=values)


def _inverse(values: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Coefficients, to be rounded, shape (rows, n); in the place of `values`."""
    np.fft.fft(values, norm="forward", out=values)
    values *= _twist(-1)
    return values.view(np.float64)


def _rounded(coefficients: NDArray[np.float64]) -> Words:
    """Mod 2^32, one after the other; a view, and changes its argument.

    1.5 * 2^52 + x is a float64 whose lowest 32 bits are those of the integer next to x.
    """
    coefficients += 1.5 * 2**52
    return coefficients.view("<u4").ravel()[::2]
