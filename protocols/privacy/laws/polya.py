"""Exact shares of a discrete Laplace variable: differences of Polya variables.

The discrete Laplace law P(k) ~ exp(-|k| / s) is the difference of two geometric variables, and a
geometric variable is the sum of n independent Polya (negative binomial) variables of shape 1 / n:
P(k) = C(k + 1/n - 1, k) (1 - q)^(1/n) q^k with q = exp(-1 / s). This is the discrete analogue of
splitting Laplace noise into differences of Gamma(1/n) variables, and it is exact.

A Polya variable is a compound Poisson variable: the sum of the points of a Poisson process on
1, 2, 3, … with rate (1/n) q^k / k at k (expand -ln(1 - q z)). The process is drawn block by block,
k in [2^i, 2^(i+1)): Poisson(1/n) candidates, each uniform in its block, kept with probability
(2^i / k) exp(-k / s). All trials are integer trials. Blocks end at the first 2^i >= 64 s; a
point beyond has probability below exp(-64) / 64 < 2^-98, the only inexactness.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError
from protocols.privacy.laws.discrete import Flags, Integers, bernoulli_exp
from protocols.privacy.laws.randomness import RandomSource, uniform_below

TRUNCATION = 2.0**-98
"""Total variation distance of one Polya draw from the exact law."""

_MAX_SCALE = 1 << 40


def poisson_of_inverse(n: int, count: int, randomness: RandomSource) -> Integers:
    """Exact draws from the Poisson law of mean 1 / n, n >= 1; int64 array, shape (count,).

    Zero has probability exp(-1/n), one Bernoulli trial. Otherwise j = 1, 2, … is proposed with
    probability 2^-j and accepted with prod_{i=2..j} 2 / (n i) ~ 2^j n^-j / j!.
    """
    zero = bernoulli_exp(
        count, lambda alive: uniform_below(randomness, n, alive.size) == 0, randomness
    )
    result = np.zeros(count, dtype=np.int64)
    pending = np.flatnonzero(~zero)
    while pending.size:
        size = np.ones(pending.size, dtype=np.int64)
        accepted = np.ones(pending.size, dtype=np.bool_)
        growing = np.arange(pending.size)
        j = 2
        while growing.size:
            growing = growing[uniform_below(randomness, 2, growing.size) == 0]
            size[growing] = j
            fails = uniform_below(randomness, n * j, growing.size) >= 2
            accepted[growing[fails]] = False
            growing = growing[~fails]
            j += 1
        result[pending[accepted]] = size[accepted]
        pending = pending[~accepted]
    return result


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


def _kept(k: Integers, low: int, scale: int, randomness: RandomSource) -> Flags:
    """Bernoulli((low / k) exp(-k / scale)) for each candidate k; bool, shape of k."""
    keep = uniform_below_each(randomness, k) < low
    whole, part = np.divmod(k, scale)
    alive = np.flatnonzero(keep)
    rest = part[alive]
    keep[alive] = bernoulli_exp(
        alive.size,
        lambda index: np.less(uniform_below(randomness, scale, index.size), rest[index]),
        randomness,
    )
    alive = np.flatnonzero(keep & (whole > 0))
    while alive.size:
        success = bernoulli_exp(
            alive.size, lambda index: np.ones(index.size, dtype=np.bool_), randomness
        )
        keep[alive[~success]] = False
        alive = alive[success]
        whole[alive] -= 1
        alive = alive[whole[alive] > 0]
    return keep


def polya(scale: int, n: int, count: int, randomness: RandomSource) -> Integers:
    """Draws from the Polya law of shape 1 / n and ratio exp(-1 / scale).

    The sum of n of them is geometric; see the module's docstring for the inexactness, which is
    `TRUNCATION` in total variation per draw.

    Args:
        scale: scale of the resulting discrete Laplace law, 1 .. 2^40 [grid units], an integer.
        n: number of draws that make up one geometric variable, 1 .. 2^20.
        count: number of draws.
        randomness: uniform words.

    Returns:
        int64 array, shape (count,), non-negative, i.i.d., mean 1 / (n (exp(1/scale) - 1)).

    Raises:
        ParameterError: scale or n is outside its range.
    """
    if not 1 <= scale <= _MAX_SCALE:
        raise ParameterError(f"scale={scale} is outside 1 .. 2^40 grid units")
    if not 1 <= n <= 1 << 20:
        raise ParameterError(f"n={n} is outside 1 .. 2^20")
    total = np.zeros(count, dtype=np.int64)
    for block in range(math.ceil(math.log2(64 * scale))):
        low = 1 << block
        candidates = poisson_of_inverse(n, count, randomness)
        owner = np.repeat(np.arange(count), candidates)
        k = low + uniform_below(randomness, low, owner.size)
        keep = _kept(k, low, scale, randomness)
        np.add.at(total, owner[keep], k[keep])
    return total


def laplace_share(scale: int, n: int, count: int, randomness: RandomSource) -> Integers:
    """One party's share: a difference of two Polya variables; int64 array, shape (count,).

    The sum of n such shares has the discrete Laplace law of the given scale.
    """
    return polya(scale, n, count, randomness) - polya(scale, n, count, randomness)
