"""Skellam noise: integers whose shares add up to exactly the stated law.

Sk(v), the difference of two Poisson variables of mean v / 2 each, has variance v [grid units^2] and
P(k) = exp(-v) I_|k|(v). Poisson variables add up, so n shares Sk(v) make exactly Sk(n v): the grid
costs no delta, however many parties there are.

**Cost.** If replacing a row moves a query, which is on the grid, by the integers x, then for every
integer order alpha > 1 the Renyi divergence of the release is at most

    alpha |x|_2^2 / (2 v) + min(((2 alpha - 1) |x|_2^2 + 6 |x|_1) / (4 v^2), 3 |x|_1 / (2 v))

(Agarwal, Kairouz, Liu, NeurIPS 2021, arXiv:2110.04995, Theorem 3.5). The idea: coordinates are
independent, so divergences add up. One step of a shift has the log-likelihood ratio
ln I_|k-1|(v) - ln I_|k|(v), which is arsinh((k - 1/2) / v) to within 1 / (2 v) by the bounds of
Amos (1974) and Segura (2011) on ratios of Bessel functions; hence a shift by x has about
x (k - x / 2) / v, as under a Gaussian law, and E exp(s k) = exp(v (cosh s - 1)) gives its moments.
`tests/protocols/privacy/test_skellam.py` holds the bound against exact divergences.
Integers have |x|_1 <= |x|_2^2, so with alpha >= 2 the bound is at most

    alpha |x|_2^2 / (2 v) (1 + 9 / (4 v)),

a concentrated-DP bound at integer orders, which `dp_accounting` composes and converts. The second
factor is below 1 + 2^-30 here. The conversion takes some 8 % more noise at epsilon = 1 than exact
accounting of Gaussian noise does.

**Grid.** Tables limit the variance, so a share has 2^16 to 2^17 units, against 2^30 for the other
noises. Rounding d values for two neighbours adds sqrt(d) units to the sensitivity: about
2^-16 sqrt(d) z of it at the noise multiplier z, 0.4 % for d = 100 and z = 26.

**Sampler.** Inversion from integers alone. P(k) / P(end) for k = end .. 0 comes from
I_{k-1} = I_{k+1} + (2 k / v) I_k, all terms positive, started as 0, 2^192 beyond 16 standard
deviations (Miller), normalised by its own sum. Distance from the exact law in total variation:
what lies beyond has probability below 2^-147 (P(X >= k) <= exp(v (cosh s - 1) - s k) at
sinh s = k / v), and the start adds as much to each term; a division rounds by 2^-192 of a term, a
sum by 2^-128. At most 2^18 terms make that less than 2^-109 a draw, and less than 2^-100 for the
4^4 draws of a value: a variance above 2^26 is split into equal parts, which add up to exactly the
law.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import ClassVar

import dp_accounting
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from protocols.errors import ParameterError
from protocols.privacy.accounting import Event, compose
from protocols.privacy.discrete import Integers
from protocols.privacy.gdp import mu_for_epsilon
from protocols.privacy.grid import NoiseGrid
from protocols.privacy.noise import Noise
from protocols.privacy.randomness import RandomSource, random_bits
from protocols.privacy.shares import NoiseSplit, check_sizes

FINENESS = 16
_TABLE_VARIANCE = 1 << 26
_END = 16  # of a table [standard deviations]


@dataclass(frozen=True, kw_only=True, slots=True)
class SkellamEvent(Event):
    """sqrt(variance) / L2 sensitivity, of at least 2^16 units."""

    kind: ClassVar[str] = "skellam"
    convolvable: ClassVar[bool] = False

    @property
    def single(self) -> dp_accounting.DpEvent:
        """At integer orders alone."""
        excess = 9 / 4 / 4.0**FINENESS
        return dp_accounting.ZCDpEvent((1 + excess) / (2 * self.noise_multiplier**2))


@lru_cache(maxsize=4)
def _table(variance: int) -> tuple[list[int], NDArray[np.uint64]]:
    """floor(2^128 P(|X| <= k)) for k = 0 .. end, and the upper 64 bits of each."""
    end = _END * (math.isqrt(variance) + 2)
    terms = [0, 1 << 192]
    for k in range(end, 0, -1):
        terms.append(terms[-2] + 2 * k * terms[-1] // variance)
    both_signs = [terms[-1], *(2 * term for term in terms[-2:0:-1])]
    total = sum(both_signs)
    cumulative = [(part << 128) // total for part in accumulate(both_signs)]
    upper = np.array([min(c >> 64, 2**64 - 1) for c in cumulative], dtype=np.uint64)
    return cumulative, upper


def _draw(variance: int, count: int, randomness: RandomSource) -> Integers:
    """From a table: the first k whose cumulative exceeds 128 uniform bits, with a fair sign."""
    cumulative, upper = _table(variance)
    words = randomness.words(count)
    found = np.searchsorted(upper, words).astype(np.int64)
    # The lower 64 bits are drawn where the upper ones do not decide.
    for i in np.flatnonzero(upper[found] == words):
        low = int(randomness.words(1)[0])
        found[i] = bisect_right(cumulative, int(words[i]) << 64 | low)
    signed: Integers = np.where(random_bits(randomness, count), -found, found)
    return signed


def skellam(variance: int, count: int, randomness: RandomSource) -> Integers:
    """Draws of Sk(variance), an integer >= 0; int64 array, shape (count,), i.i.d.

    Above 2^26 the variance is rounded up to a multiple of the number of parts, a power of 4.
    """
    if variance == 0:
        return np.zeros(count, dtype=np.int64)
    parts = 1
    while variance > parts * _TABLE_VARIANCE:
        parts *= 4
    total = np.zeros(count, dtype=np.int64)
    for _ in range(parts):
        total += _draw(-(-variance // parts), count, randomness)
    return total


def skellam_shares(
    sigma: float,
    split: NoiseSplit,
    rounds: int,
    dim: int,
    randomness: RandomSource,
    grid: NoiseGrid | None = None,
) -> NDArray[np.float64]:
    """All Skellam noise that ONE party adds in a run, arguments as in `gaussian_shares`.

    Returns:
        float64 array, shape (rounds, dim), i.i.d. of variance sigma^2 / (P - t). The standard
        deviation is rounded up to a grid unit; of shares, 2^16 to 2^17 units by default.
    """
    check_sizes(sigma, rounds, dim)
    share = split.share_std(sigma)
    grid = grid or NoiseGrid.for_scale(share, FINENESS)
    values = skellam(grid.units(share) ** 2, rounds * dim, randomness)
    return grid.to_float(values).reshape(rounds, dim)


def _budget(epsilon: float, delta: float) -> float:
    """The sum of (C_k / s_k)^2 / 2 that composes to epsilon at delta.

    Raises:
        ParameterError: epsilon is below what the orders can tell.
    """

    def excess(rho: float) -> float:
        return compose([SkellamEvent(noise_multiplier=(2 * rho) ** -0.5)], delta=delta) - epsilon

    # Exact accounting of Gaussian noise allows at least as much.
    most = mu_for_epsilon(epsilon=epsilon, delta=delta) ** 2 / 2
    if excess(most / 4) > 0:
        raise ParameterError(
            f"epsilon={epsilon} is too small for Skellam noise at delta={delta:.3g}: take "
            "mechanism gaussian"
        )
    return float(brentq(excess, most / 4, most, xtol=1e-14 * most, rtol=1e-14))


SKELLAM = Noise(
    norm=2,
    event=SkellamEvent,
    shares=skellam_shares,
    scale_of_share=lambda scale, split: split.share_std(scale),
    tail=2.0**-100,
    budget=_budget,
    epsilon=lambda events, delta: compose(events, delta=delta),
    fineness_bits=FINENESS,
)
