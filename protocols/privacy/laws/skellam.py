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
`tests/protocols/privacy/laws/test_skellam.py` holds the bound against exact divergences.
Integers have |x|_1 <= |x|_2^2, so with alpha >= 2 the bound is at most

    alpha |x|_2^2 / (2 v) (1 + 9 / (4 v)),

a concentrated-DP bound at integer orders, which `dp_accounting` composes and converts. The second
factor is below 1 + 2^-30 here. The conversion takes some 8 % more noise at epsilon = 1 than exact
accounting of Gaussian noise does.

**Grid.** Tables limit the variance, so a share has 2^16 to 2^17 units, against 2^30 for the other
noises. Rounding d values for two neighbours adds sqrt(d) units to the sensitivity: about
2^-16 sqrt(d) z of it at the noise multiplier z, 0.4 % for d = 100 and z = 26.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import dp_accounting
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from protocols.errors import ParameterError
from protocols.privacy.laws.grid import NoiseGrid
from protocols.privacy.laws.noise import Noise
from protocols.privacy.laws.randomness import RandomSource
from protocols.privacy.laws.shares import NoiseSplit, check_sizes
from protocols.privacy.laws.skellam_sampler import skellam
from protocols.privacy.loss.accounting import Event, compose
from protocols.privacy.loss.gdp import mu_for_epsilon

FINENESS = 16


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
