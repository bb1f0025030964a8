"""Samplers of the discrete Gaussian law on the integers: exact ones, and narrow ones by thresholds.

Everything is integer arithmetic on uniform integers: no logarithm, no floating point, hence no
low-order bits that betray the value (Mironov, CCS 2012). The law is that of Canonne, Kamath
and Steinke (arXiv:2004.00010): P(k) ~ exp(-k^2 / (2 sigma^2)).

The Bernoulli(exp(-gamma)) trial is Algorithm 1 there. The integers are drawn stratum by stratum,
as Karney does (ACM TOMS 42:3, 2016, Algorithm D): the stratum number h has P(h) ~ exp(-h^2 / 2),
the position x = j / sigma within [h, h + 1) is uniform, and a Bernoulli trial accepts with
exp(-x (2h + x) / 2). Every trial then compares integers below 2^62, which makes the same law
vectorisable. (Rejection from a discrete Laplace, Algorithm 3 there, needs
integers of 170 bits at sigma = 2^40.)

Narrow ones, errors of ciphertexts, are several times faster, by a table of 127 bits of precision: a
magnitude is the number of thresholds that a uniform 127-bit integer reaches. The sign is the 128th
bit: "minus zero" is zero, whose probability is not doubled in the table. Thresholds are rounded to
2^-127 and the tail beyond the last is cut, so the total variation distance to the exact law is at
most (thresholds + 1) 2^-127 < 2^-119 for sigma <= 16.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError
from protocols.privacy.laws import RandomSource, apart, random_bits, uniform_below

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Trial = Callable[[Integers], Flags]

MAX_SCALE = 1 << 40
_ACCEPTED = 0.45  # of the draws of a batch
_MAX_STRATUM = 250  # keeps every product below 2^62; P(stratum >= 250) < 2^-360
_BITS = 127
_BLOCK = 1024  # draws compared at once: flags below 100 kB stay in cache
_LOW = np.uint64(1)


def bernoulli_exp(count: int, trial: Trial, randomness: RandomSource) -> Flags:
    """Bernoulli(exp(-gamma_i)) for `count` values of gamma_i in [0, 1].

    Algorithm 1 of arXiv:2004.00010: count how many of Bernoulli(gamma / 1), Bernoulli(gamma / 2),
    … succeed in a row; an even number means "yes". Bernoulli(gamma / k) is the conjunction of
    `trial` and an independent 1-in-k draw.

    trial: given an int64 array of indices, one fresh Bernoulli(gamma_i) draw for each.
    """
    result = np.zeros(count, dtype=np.bool_)
    alive: Integers = np.arange(count)
    k = 1
    while alive.size:
        success = trial(alive)
        if k > 1:
            where = np.flatnonzero(success)
            success[where] = uniform_below(randomness, k, where.size) == 0
        result[alive[~success]] = k % 2 == 1
        alive = alive[success]
        k += 1
    return result


def _all_of(times: Integers, one: Callable[[Integers], Flags]) -> Flags:
    """Whether `times[i]` fresh draws of `one` on index i all succeed; bool, shape of `times`."""
    result = np.ones(times.size, dtype=np.bool_)
    left = times.copy()
    alive = np.flatnonzero(left > 0)
    while alive.size:
        success = one(alive)
        result[alive[~success]] = False
        alive = alive[success]
        left[alive] -= 1
        alive = alive[left[alive] > 0]
    return result


def _strata(count: int, step: Callable[[Integers], Flags]) -> Integers:
    """How many draws of `step` succeed in a row; int64 array, shape (count,)."""
    height = np.zeros(count, dtype=np.int64)
    alive: Integers = np.arange(count)
    while alive.size:
        alive = alive[step(alive)]
        height[alive] += 1
    return height


def _signed(magnitude: Integers, randomness: RandomSource) -> Integers:
    """Give each magnitude a fair sign and drop "minus zero", so that zero counts once."""
    negative = random_bits(randomness, magnitude.size)
    keep = ~(negative & (magnitude == 0))
    signed: Integers = np.where(negative, -magnitude, magnitude)
    kept: Integers = signed[keep]
    return kept


def _positions(
    height: Integers, a: int, b: int, randomness: RandomSource
) -> tuple[Integers, Integers, Integers]:
    """A uniform integer n with height <= n b / a < height + 1, where there is one.

    (n, x, height) of the accepted candidates, with x = n b - height a, so x / a in [0, 1).
    """
    first = -((-height * a) // b)
    n = first + uniform_below(randomness, -(-a // b), height.size)
    x = n * b - height * a
    keep = x < a
    return n[keep], x[keep], height[keep]


def _gaussian_batch(count: int, a: int, b: int, randomness: RandomSource) -> Integers:
    """At most `count` draws from the discrete Gaussian of standard deviation a / b."""

    def half(index: Integers) -> Flags:
        return bernoulli_exp(
            index.size, lambda alive: random_bits(randomness, alive.size), randomness
        )

    height = _strata(count, half)
    height = height[_all_of(height * (height - 1), half)]
    height = height[height < _MAX_STRATUM]
    n, x, height = _positions(height, a, b, randomness)

    def square(alive: Integers) -> Flags:  # gamma = (x / a)^2 / 2
        success = random_bits(randomness, alive.size)
        for _ in range(2):
            where = np.flatnonzero(success)
            success[where] = uniform_below(randomness, a, where.size) < x[alive[where]]
        return success

    keep = bernoulli_exp(x.size, square, randomness)
    n, x, height = n[keep], x[keep], height[keep]

    def linear(index: Integers) -> Flags:  # gamma = x / a
        def trial(alive: Integers) -> Flags:
            return np.less(uniform_below(randomness, a, alive.size), x[index[alive]])

        return bernoulli_exp(index.size, trial, randomness)

    return _signed(n[_all_of(height, linear)], randomness)


def discrete_gaussian(sigma: int, count: int, randomness: RandomSource, over: int = 1) -> Integers:
    """Exact draws of P(k) ~ exp(-k^2 / (2 s^2)), k integer: int64, shape (count,), i.i.d.

    s = sigma / over: 0 to 2^40 [grid units]; 0 gives zeros; of any number: `rational`. The variance
    of the law never exceeds s^2 (Corollary 9 there); from s = 1 on, it is below it by less than
    10^-6 of it.

    Raises:
        ParameterError: s is outside its range.
    """
    if type(sigma) is not int or not 0 <= sigma <= over * MAX_SCALE:
        raise ParameterError(f"scale={sigma}/{over} is not 0 .. 2^40 units; use a coarser grid")
    parts: list[Integers] = [np.zeros(0 if sigma else count, np.int64)]
    while missing := count - sum(map(len, parts)):
        size = int(missing / _ACCEPTED * 1.03) + 32
        parts.append(_gaussian_batch(size, sigma, over, randomness)[:missing])
    return np.concatenate(parts)


def between(count: int, randomness: RandomSource) -> NDArray[np.float64]:
    """Uniform on [-1/2, 1/2) [units], beside noise that is added to what is on no grid.

    Without it that would show modulo the grid, whatever the noise.
    """
    words = apart(randomness, "between grid points").words(count)
    return np.asarray((words >> np.uint64(11)).astype(np.float64) * 2.0**-53 - 0.5)


# -- a narrow one, by thresholds -------------------------------------------------------------------


@lru_cache(maxsize=8)
def thresholds(sigma: float) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """P(|k| <= j) 2^127 rounded, j = 0, 1, …, below 2^127, as high 64 and low 63 bits, columns."""
    cumulative = []
    with localcontext() as context:
        context.prec = 60
        width = 2 * Decimal(sigma) ** 2
        # exp(-k^2 / (2 sigma^2)) < 2^-190 beyond 16.3 sigma.
        weights = [(-Decimal(k * k) / width).exp() for k in range(int(17 * sigma) + 2)]
        total = 2 * sum(weights) - 1
        mass = Decimal(-1)
        for weight in weights:
            mass += 2 * weight
            cumulative.append(round(mass / total * 2**_BITS))
    kept = [c for c in cumulative if c < 1 << _BITS]
    low_bits = _BITS - 64
    high = np.array([c >> low_bits for c in kept], np.uint64)[:, None]
    low = np.array([c & ((1 << low_bits) - 1) for c in kept], np.uint64)[:, None]
    return high, low


def narrow_gaussian(sigma: float, count: int, randomness: RandomSource) -> Integers:
    """Independent draws of the same law, int64 array, shape (count,).

    Every draw is compared with every threshold: no address depends on what is drawn.

    sigma: 1 .. 16 [units]; randomness: uniform words, two for each draw.
    """
    high, low = thresholds(sigma)
    out = np.empty(count, np.int64)
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        top, bottom = randomness.words(2 * size).reshape(2, size)
        reached = top > high
        tied = top == high
        if tied.any():  # once in 2^57 draws
            reached |= tied & (bottom >> _LOW >= low)
        magnitude = reached.sum(axis=0, dtype=np.uint8).astype(np.int64)
        negative = (bottom & _LOW).astype(np.int64)
        out[start : start + size] = (magnitude ^ -negative) + negative
    return out
