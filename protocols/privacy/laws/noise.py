"""What a noise of encrypted sums is: its law in shares, its norm, and what its releases cost.

Gaussian noise hides a move of a given L2 norm. The norm belongs to the noise: nobody else names
one, so that a bound in the wrong norm cannot be stated.

With p the norm, C_k the sensitivity and s_k the scale of release k, the cost is
sum_k (C_k / s_k)^p: mu^2 of Gaussian releases (arXiv:1905.02383, Corollary 3.3).

Another noise is one file that gives a `Noise`, and one line of `catalogue.NOISES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from protocols.privacy.laws.grid import NoiseGrid, discretisation_delta
from protocols.privacy.laws.shares import NoiseSplit, gaussian_shares
from protocols.privacy.loss import mu_for_epsilon
from protocols.privacy.loss.accounting import Event, GaussianEvent, compose

NOISE_TAIL = 40.0
"""An owner's noise of so many scales has room beside its contribution."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """One kind of noise.

    norm: p of the norm of sensitivities, 2 or 1; event: what a release costs, for an accountant;
    shares: draws one party's part, arguments as in `gaussian_shares`; scale_of_share: what of a
    scale s the grid is chosen by, from (s, split); tail: chance, at most, that one value of one
    share is not its exact law's, or is beyond NOISE_TAIL scales, where it is cut off.

    left: factor of the scale that a coalition leaves, from (split, its size); budget: what the cost
    of all releases may be, over p, from (epsilon, delta); epsilon: of events, at delta; grid_delta:
    what the grid adds to delta, from (units of a share, values, epsilon).
    """

    norm: int
    event: type[Event]
    shares: Callable[..., Any]
    scale_of_share: Callable[[float, NoiseSplit], float]
    tail: float
    left: Callable[[NoiseSplit, int], float] = lambda split, k: split.seen_std(1.0, k)
    budget: Callable[[float, float], float]
    epsilon: Callable[[Sequence[Event], float], float]
    grid_delta: Callable[[float, int, float], float] = lambda units, values, epsilon: 0.0

    def grid(self, scale: float, split: NoiseSplit) -> NoiseGrid:
        """The public grid of a release's noise and contributions."""
        return NoiseGrid.for_scale(self.scale_of_share(scale, split))

    def diameter(self, length: int) -> float:
        """Of a cube of side 1 in so many dimensions: what rounding two neighbours adds [units]."""
        return math.sqrt(length) if self.norm == 2 else float(length)

    def cost(self, ratios: Iterable[float]) -> float:
        """Of all releases; ratios: C_k / s_k."""
        return math.fsum(ratio**self.norm for ratio in ratios)

    @property
    def division(self) -> str:
        """Which of `schedule.MECHANISMS` divides it best."""
        return "gaussian"


GAUSSIAN = Noise(
    norm=2,
    event=GaussianEvent,
    shares=gaussian_shares,
    scale_of_share=lambda scale, split: split.share_std(scale),
    # 2 exp(-40^2 / 2) < 2^-1153; the sampler ends at 250 standard deviations.
    tail=2.0**-1000,
    # rho = mu^2 / 2
    budget=lambda epsilon, delta: mu_for_epsilon(epsilon=epsilon, delta=delta) ** 2 / 2,
    epsilon=lambda events, delta: compose(events, delta=delta),
    grid_delta=lambda units, values, epsilon: discretisation_delta(
        units=units, shares=1, values=values, epsilon=epsilon
    ),
)
