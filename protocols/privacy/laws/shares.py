"""One party's part of the noise: the sum without any t colluders' parts is still enough.

Each of P parties adds Gaussian noise of variance sigma^2 / (P - t). Whatever t colluders subtract,
the rest has variance sigma^2. With sigma^2 / P each, 9 colluders of 10 would see epsilon = 3.62
where 1 was claimed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError
from protocols.privacy.laws import RandomSource
from protocols.privacy.laws.grid import NoiseGrid
from protocols.privacy.laws.rational import discrete_gaussian


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseSplit:
    """How the total noise is divided.

    Attributes:
        parties: P >= 1, the owners that contribute noise; where dropouts are tolerated, the
            smallest number of survivors.
        colluders: t, 0 <= t < P: how many owners may pool what they know with the coordinator.

    Raises:
        ParameterError: a field is out of range; the message names it.
    """

    parties: int
    colluders: int

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.parties < 1:
            raise ParameterError(f"parties={self.parties} is below 1")
        if not 0 <= self.colluders < self.parties:
            raise ParameterError(
                f"colluders={self.colluders} is outside 0 .. {self.parties - 1}: "
                "at least one party must be honest"
            )

    @property
    def honest(self) -> int:
        """P - t, the number of shares that no coalition of t can subtract."""
        return self.parties - self.colluders

    def share_std(self, sigma: float) -> float:
        """Standard deviation of one party's noise, sigma / sqrt(P - t)."""
        return sigma / math.sqrt(self.honest)

    def total_std(self, sigma: float) -> float:
        """Standard deviation of all parties' noise, sqrt(P / (P - t)) sigma.

        This, never one party's, bounds iterates and intervals.
        """
        return sigma * math.sqrt(self.parties / self.honest)

    def seen_std(self, sigma: float, coalition: int) -> float:
        """Standard deviation left when `coalition` parties subtract their own noise.

        sqrt((P - k) / (P - t)) sigma for a coalition of k parties, 0 <= k < P.

        Raises:
            ParameterError: coalition is out of range.
        """
        if not 0 <= coalition < self.parties:
            raise ParameterError(f"coalition={coalition} is outside 0 .. {self.parties - 1}")
        return sigma * math.sqrt((self.parties - coalition) / self.honest)

    def grid(self, sigma: float) -> NoiseGrid:
        """The default grid: one share's standard deviation is 2^30 to 2^31 units."""
        return NoiseGrid.for_scale(self.share_std(sigma))


def gaussian_shares(
    sigma: float,
    split: NoiseSplit,
    rounds: int,
    dim: int,
    randomness: RandomSource,
    grid: NoiseGrid | None = None,
) -> NDArray[np.float64]:
    """All Gaussian noise that ONE party adds in a run.

    Args:
        sigma: standard deviation that must remain without any t colluders, >= 0.
        split: P and t.
        rounds: T, number of noisy releases.
        dim: number of coordinates, bias included.
        randomness: uniform words; private from `SystemRandomness` only.
        grid: the run's public grid; `split.grid(sigma)` by default.

    Returns:
        float64 array, shape (rounds, dim): i.i.d. discrete Gaussian of variance
        sigma^2 / (P - t) on the grid. The standard deviation is rounded up to a grid unit.
    """
    check_sizes(sigma, rounds, dim)
    grid = grid or split.grid(sigma)
    units = grid.units(split.share_std(sigma))
    values = discrete_gaussian(units, rounds * dim, randomness)
    return grid.to_float(values).reshape(rounds, dim)


def check_sizes(scale: float, rounds: int, dim: int) -> None:
    """Refuse impossible sizes."""
    if not (math.isfinite(scale) and scale >= 0):
        raise ParameterError(f"sigma={scale} is not a finite number >= 0")
    if rounds < 0 or dim < 1:
        raise ParameterError(f"rounds={rounds}, dim={dim}: need rounds >= 0 and dim >= 1")
