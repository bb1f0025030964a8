"""Exact arithmetic in Z_Q[X] / (X^n + 1), vectorised: the negacyclic number-theoretic transform.

X^(2h) - c^2 = (X^h - c)(X^h + c), from X^n + 1 down to linear factors. Coefficient j of factor i
stands at j m + i when there are m factors, so every stage combines the two halves of the array
and writes even and odd positions (Pease 1968): all inner loops are long.

Products by known factors w use the precomputed floor(2^32 w / p) (Shoup): with x < 2^32 and
p < 2^31, x w - floor(x w' / 2^32) p is in [0, 2p). min(r, r - p) on uint64 is r mod p for r < 2p,
because a negative difference wraps to a huge number.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from protocols.aggregate import AggregateParameters

Residues = NDArray[np.uint64]
_SHIFT = np.uint64(32)


class Factor:
    """Residues w, made ready to multiply others; w broadcasts against shape (primes, n)."""

    def __init__(self, w: Residues, modulus: Residues) -> None:
        self._w = w
        self._quotient = (w << _SHIFT) // modulus
        self._modulus = modulus

    def times(self, x: Residues) -> Residues:
        """w x mod p, for x < 2^32."""
        q = x * self._quotient
        q >>= _SHIFT
        q *= self._modulus
        r = x * self._w
        r -= q
        return reduce_once(r, self._modulus)

    def erase(self) -> None:
        """Overwrite w."""
        self._w.fill(0)
        self._quotient.fill(0)


class Ring:
    """Transforms of residues, shape (primes, n), rows below their primes."""

    def __init__(self, ring_dim: int, primes: tuple[int, ...]) -> None:
        self.ring_dim = ring_dim
        self.modulus: Residues = np.array(primes, np.uint64)[:, None]
        stages = zip(*(_stages(ring_dim, p) for p in primes), strict=True)
        both = [[self._factor(list(rows)) for rows in zip(*each, strict=True)] for each in stages]
        self._down, self._up = zip(*both, strict=True)
        self._scale = self._factor([np.array([pow(ring_dim, -1, p)]) for p in primes])

    def _factor(self, rows: list[NDArray[np.int64]]) -> Factor:
        return Factor(np.array(rows, np.uint64), self.modulus)

    def residues(self, integers: NDArray[np.int64]) -> Residues:
        """Signed integers, shape (m,), as residues, shape (primes, m)."""
        reduced: NDArray[np.int64] = np.mod(integers, self.modulus.astype(np.int64))
        return reduced.astype(np.uint64)

    def forward(self, x: Residues) -> Residues:
        """Values at the n roots of X^n + 1, in the order of the factors."""
        half = self.ring_dim // 2
        for w in self._down:
            low, high = x[:, :half], w.times(x[:, half:])
            x = np.empty_like(x)
            x[:, 0::2] = reduce_once(low + high, self.modulus)
            x[:, 1::2] = reduce_once(low + (self.modulus - high), self.modulus)
        return x

    def inverse(self, x: Residues) -> Residues:
        """Coefficients of the polynomial with these values: exact inverse of `forward`."""
        half = self.ring_dim // 2
        for w in reversed(self._up):
            even, odd = x[:, 0::2], x[:, 1::2]
            x = np.empty_like(x)
            x[:, :half] = reduce_once(even + odd, self.modulus)
            x[:, half:] = w.times(even + (self.modulus - odd))
        return self._scale.times(x)

    def multiplier(self, integers: NDArray[np.int64]) -> Factor:
        """A polynomial with these n coefficients as a factor of transformed polynomials."""
        return Factor(self.forward(self.residues(integers)), self.modulus)


def reduce_once(x: Residues, modulus: Residues) -> Residues:
    """x mod p for x < 2p, written over x."""
    np.minimum(x, x - modulus, out=x)
    return x


@lru_cache(maxsize=8)
def ring_of(params: AggregateParameters) -> Ring:
    """The ring of a parameter set; its tables are made once per process."""
    return Ring(params.ring_dim, params.primes)


def _stages(n: int, p: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Per stage the factors c and 1 / c at each of the n / 2 positions of a half array."""
    powers = _powers(n, p)
    # Factor i is X^(2h) - psi^exponent[i]; -1 = psi^n.
    exponent = np.array([n])
    stages = []
    while exponent.size < n:
        root = exponent // 2
        repeat = n // 2 // root.size
        stages.append((np.tile(powers[root], repeat), np.tile(powers[-root % (2 * n)], repeat)))
        exponent = np.stack([root, root + n], axis=1).ravel()
    return stages


def _powers(n: int, p: int) -> NDArray[np.int64]:
    """psi^0 .. psi^(2n - 1) mod p, with psi^n = -1."""
    candidates = (pow(x, (p - 1) // (2 * n), p) for x in range(2, p))
    psi = next(y for y in candidates if pow(y, n, p) == p - 1)
    powers = [1]
    for _ in range(2 * n - 1):
        powers.append(powers[-1] * psi % p)
    return np.array(powers, np.int64)
