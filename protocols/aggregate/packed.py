"""Packed Shamir sharing modulo a prime p below 2^16: many secrets a polynomial.

f has degree t - 1, takes r secrets at the points -1 .. -r and t - r uniform values at the points
below, and gives f(k + 1) to holder k. Any t values of f determine the secrets; t - r of them are
uniform and independent of the secrets, because they and the r secrets together determine f. Sums of
shares are shares of sums. Source: Franklin and Yung, STOC 1992.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from protocols.errors import MessageError, ProtocolError
from protocols.privacy.laws import RandomSource, uniform_below

PRIME = 65521
"""The largest; `residues` takes smaller ones, too."""
SHARE = np.dtype("<u2")

Elements = NDArray[np.int64]


def num_blocks(secrets: int, packed: int) -> int:
    """Polynomials, and so elements of a share, for so many secrets."""
    return -(-secrets // packed)


def deal(
    secrets: Elements,
    needed: int,
    packed: int,
    holders: int,
    randomness: RandomSource,
    prime: int = PRIME,
) -> Elements:
    """Shares of every holder, shape (holders, blocks), below p.

    secrets: integers, shape (m,); needed: t; packed: r < t; prime: p.
    """
    shares: Elements = deal_rows(secrets[None], needed, packed, holders, randomness, (prime,))[0]
    return shares


def deal_rows(
    secrets: Elements,
    needed: int,
    packed: int,
    holders: int,
    randomness: RandomSource,
    primes: tuple[int, ...],
) -> Elements:
    """As `deal`, of secrets modulo several primes: shape (primes, holders, blocks).

    secrets: shape (primes, m).
    """
    blocks = num_blocks(secrets.shape[1], packed)
    modulo = np.array(primes)[:, None]
    hidden = np.zeros((len(primes), blocks * packed), np.int64)
    hidden[:, : secrets.shape[1]] = secrets % modulo
    count = (needed - packed) * blocks
    if len(primes) == 1:
        free = uniform_below(randomness, primes[0], count)
    else:
        free = uniform_below_each(randomness, np.repeat(primes, count))
    values = np.concatenate([hidden, free.reshape(len(primes), count)], axis=1)
    values = values.reshape(len(primes), needed, blocks)
    weights = _dealing(needed, holders, primes)
    return _apply(weights, values, modulo[:, :, None])


@lru_cache(maxsize=16)
def _dealing(needed: int, holders: int, primes: tuple[int, ...]) -> NDArray[np.float64]:
    """Of each prime, shape (primes, holders, needed)."""
    points = tuple(range(1, holders + 1))
    return np.stack([_weights(_hidden(needed, prime), points, prime) for prime in primes])


def open_shares(
    shares: dict[int, Elements], needed: int, packed: int, secrets: int, prime: int = PRIME
) -> Elements:
    """The secrets, each in (-p / 2, p / 2), shape (m,).

    shares: by holder, at least `needed`; all of them are looked at.

    Raises:
        ProtocolError: too few, or they are of no one polynomial.
    """
    if len(shares) < needed:
        raise ProtocolError(f"{len(shares)} shares, needed are {needed}")
    holders = sorted(shares)
    points = tuple(k + 1 for k in holders)
    values = np.stack([shares[k] for k in holders])
    first, rest = points[:needed], points[needed:]
    wanted = _apply(_weights(first, rest, prime), values[:needed], prime) if rest else values[:0]
    if (wanted != values[needed:]).any():
        raise ProtocolError(
            "the holders' shares do not fit together: one of them, or a client that dealt shares, "
            "deviates from the protocol"
        )
    weights = _weights(first, _hidden(packed, prime), prime)
    found = _apply(weights, values[:needed], prime).ravel()[:secrets]
    return np.where(found > prime // 2, found - prime, found)


def _hidden(count: int, prime: int) -> tuple[int, ...]:
    return tuple(prime - 1 - k for k in range(count))


def _apply(weights: NDArray[np.float64], values: Elements, prime: int | Elements) -> Elements:
    # Products below 2^32 and at most 2^10 of them: exact in float64.
    found: Elements = (weights @ values.astype(np.float64)).astype(np.int64) % prime
    return found


@lru_cache(maxsize=64)
def _weights(known: tuple[int, ...], wanted: tuple[int, ...], prime: int) -> NDArray[np.float64]:
    """Lagrange: row i turns values at `known` into the value at wanted[i]; no point is in both."""
    x, y = np.array(known, np.int64), np.array(wanted, np.int64)
    differences = (y[:, None] - x) % prime
    own = (x[:, None] - x) % prime
    np.fill_diagonal(own, 1)
    below = differences * _product(own, prime)[None] % prime
    weights = _product(differences, prime)[:, None] * _inverse(below, prime) % prime
    return np.asarray(weights, np.float64)


def _product(rows: Elements, prime: int) -> Elements:
    """Of each row, mod p."""
    total = np.ones(len(rows), np.int64)
    for column in rows.T:
        total = total * column % prime
    return total


def _inverse(x: Elements, prime: int) -> Elements:
    """x^(p - 2) mod p."""
    result, power = np.ones_like(x), x
    for bit in reversed(bin(prime - 2)[2:]):
        if bit == "1":
            result = result * power % prime
        power = power * power % prime
    return result


def to_bytes(share: Elements) -> bytes:
    """Two bytes an element."""
    return share.astype(SHARE).tobytes()


def of_bytes(data: bytes) -> Elements:
    """Inverse of `to_bytes`; elements below 2^16, taken mod p.

    Raises:
        MessageError: an odd number of bytes.
    """
    if len(data) % SHARE.itemsize:
        raise MessageError(f"{len(data)} bytes are no share")
    return np.frombuffer(data, SHARE).astype(np.int64) % PRIME


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
