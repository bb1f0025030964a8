"""Products in Z_Q[X] / (X^n + 1), Q = 2^32 or 2^48, by floating-point transforms, exactly.

Q needs no prime: ring-LWE is pseudorandom for every modulus (Peikert, Regev and
Stephens-Davidowitz, STOC 2017), and a word of four bytes is what a float32 takes. Wide words, of 48
bits in a uint64, are for what needs more room. log2(Q) = 48 at n = 2048 is below the 54 that
HomomorphicEncryption.org allows for 128 bits.

Order. Coefficients j and j + n/2 stand side by side, at 2 j and 2 j + 1: those that are not sent
are any of an element's.

Transform. At the roots z of X^n + 1 with z^(n/2) = i a real polynomial is sum_j (x_j + i x_(j +
n/2)) z^j: one complex transform of length n/2, after a twist. These n/2 roots and their conjugates
are all. In the order above the pairs are complex numbers as they stand. A wide element is
a_low + 2^32 a_high: two products, of which the second one counts mod 2^16.

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
WORD_BITS, WIDE_BITS = 32, 48
_HALF = RING_DIM // 2
# Polynomials transformed at once: their 1 MB stays in cache.
_ROWS = 64
_AES_BLOCK = 16
# Elements that each further secret should mask, and as many secrets as that is worth: a secret is
# shared among all clients, an element is drawn and transformed.
_WORTH_A_SECRET = 32
_MOST_SECRETS = 4

Words = NDArray[Any]
"""uint32, or uint64 for wide words."""


def modulus_bits(words: Words) -> int:
    """log2(Q)."""
    return WIDE_BITS if words.itemsize == 8 else WORD_BITS


def signed(words: Words) -> NDArray[np.signedinteger[Any]]:
    """Representatives in [-Q/2, Q/2), int32 or int64."""
    if words.itemsize == 4:
        return words.view(np.int32)
    above = 64 - WIDE_BITS
    return (words << np.uint64(above)).view(np.int64) >> np.int64(above)


def to_bytes(words: Words) -> bytes:
    """Four bytes a word, or six."""
    if words.itemsize == 4:
        return words.astype("<u4", copy=False).tobytes()
    return words.astype("<u8", copy=False).view("<u2").reshape(-1, 4)[:, :3].tobytes()


def of_bytes(data: bytes, *, wide: bool) -> Words:
    """Inverse of `to_bytes`. Raises ValueError: no whole number of words."""
    if not wide:
        return np.frombuffer(data, "<u4").astype(np.uint32, copy=False)
    found = np.zeros((len(data) // (WIDE_BITS // 8), 4), "<u2")
    found[:, :3] = np.frombuffer(data, "<u2").reshape(-1, 3)
    return found.view("<u8").ravel().astype(np.uint64, copy=False)


def num_elements(length: int) -> int:
    """Ring elements that so many values take."""
    return -(-length // RING_DIM)


def num_secrets(length: int) -> int:
    """Secrets that mask so many values, see `add_products`."""
    return min(max(num_elements(length) // _WORTH_A_SECRET, 1), _MOST_SECRETS)


def add_products(key: bytes, secrets: NDArray[np.int64], total: Words) -> None:
    """Add a_0 s_j, a_1 s_j, … to the j-th part of `total`, mod Q; bits above Q are to be dropped.

    key: 32 public bytes; a_k is the k-th part of AES-256 in counter mode under it, uniform, and the
    same for all secrets; of wide words a_high is of another counter. secrets: s_j, short, shape
    (secrets, n); total: shape (length,), contiguous, changed; its parts have equal numbers of
    elements, but for the last.
    """
    factors = np.empty((len(secrets), _HALF), np.complex128)
    _forward(secrets, factors)
    for shift in range(0, 8 * total.itemsize, WORD_BITS):
        _add_shifted(key, factors, total, shift)


def _add_shifted(key: bytes, factors: NDArray[Any], total: Words, shift: int) -> None:
    product = np.empty((_ROWS, _HALF), np.complex128)
    elements = -(-num_elements(len(total)) // len(factors))
    size = elements * RING_DIM
    for first in range(0, elements, _ROWS):
        element = _element(key, shift, first, min(_ROWS, elements - first))
        start, stop = first * RING_DIM, min((first + _ROWS) * RING_DIM, size)
        for j, factor in enumerate(factors):
            part = total[j * size : (j + 1) * size][start:stop]
            rows = num_elements(len(part))
            np.multiply(element[:rows], factor, out=product[:rows])
            found = _rounded(_inverse(product[:rows]), total.dtype)[: len(part)]
            part += found << total.dtype.type(shift) if shift else found


# Clients of one process, and its server, mask by the same elements one after the other: 1 MB each.
@lru_cache(maxsize=16)
def _element(key: bytes, shift: int, first: int, rows: int) -> NDArray[np.complex128]:
    """a_first, a_(first + 1), … in transformed form, shape (rows, n / 2), read-only: public."""
    start = first * RING_DIM * 4 // _AES_BLOCK
    stream = Cipher(AES(key), CTR(bytes([shift]) + start.to_bytes(15, "big"))).encryptor()
    drawn = np.frombuffer(stream.update(bytes(4 * rows * RING_DIM)), "<i4")
    element = np.empty((rows, _HALF), np.complex128)
    _forward(drawn.reshape(rows, RING_DIM), element)
    element.setflags(write=False)
    return element


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


def _rounded(coefficients: NDArray[np.float64], kind: np.dtype[Any]) -> Words:
    """Mod Q, one after the other; a view, and changes its argument.

    1.5 * 2^52 + x is a float64 whose lowest 48 bits are those of the integer next to x.
    """
    coefficients += 1.5 * 2**52
    return coefficients.view(kind).ravel()[:: 8 // kind.itemsize]
