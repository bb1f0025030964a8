"""The two noises of encrypted sums, and the norm in which each needs its sensitivity.

Gaussian noise hides a move of a given L2 norm, Laplace noise one of a given L1 norm. The norm
belongs to the noise: nobody else names one, so that a bound in the wrong norm cannot be stated.

With p the norm, C_k the sensitivity and s_k the scale of release k, the cost is sum_k (C_k / s_k)^p
for both: mu^2 of Gaussian releases (arXiv:1905.02383, Corollary 3.3), epsilon of Laplace ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from protocols.errors import ParameterError
from protocols.privacy.accounting import GaussianEvent, LaplaceEvent
from protocols.privacy.grid import NoiseGrid
from protocols.privacy.polya import TRUNCATION
from protocols.privacy.shares import NoiseSplit, gaussian_shares, laplace_shares

NOISE_TAIL = 40.0
"""An owner's noise of so many scales has room beside its contribution."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """One kind of noise.

    norm: p of the norm of sensitivities, 2 or 1; event: what a release costs, for an accountant;
    shares: draws one party's part, arguments as in `gaussian_shares`; scale_of_share: what of a
    scale s the grid is chosen by, from (s, split); tail: chance, at most, that one value of one
    share is not its exact law's, or is beyond NOISE_TAIL scales, where it is cut off.
    """

    norm: int
    event: type[GaussianEvent] | type[LaplaceEvent]
    shares: Callable[..., Any]
    scale_of_share: Callable[[float, NoiseSplit], float]
    tail: float

    def grid(self, scale: float, split: NoiseSplit) -> NoiseGrid:
        """The public grid of a release's noise and contributions."""
        return NoiseGrid.for_scale(self.scale_of_share(scale, split))

    def diameter(self, length: int) -> float:
        """Of a cube of side 1 in so many dimensions: what rounding two neighbours adds [units]."""
        return math.sqrt(length) if self.norm == 2 else float(length)

    def cost(self, ratios: Iterable[float]) -> float:
        """Of all releases; ratios: C_k / s_k."""
        return math.fsum(ratio**self.norm for ratio in ratios)


NOISES: Mapping[str, Noise] = {
    "gaussian": Noise(
        norm=2,
        event=GaussianEvent,
        shares=gaussian_shares,
        scale_of_share=lambda scale, split: split.share_std(scale),
        # 2 exp(-40^2 / 2) < 2^-1153; the sampler ends at 250 standard deviations.
        tail=2.0**-1000,
    ),
    "laplace": Noise(
        norm=1,
        event=LaplaceEvent,
        shares=laplace_shares,
        scale_of_share=lambda scale, split: scale,
        # A share is X - Y. n of X add up to a geometric variable, so that n P(X > k) is about
        # P(some X > k) <= exp(-k / s) at most; for n = 1 the two-sided tail is exp(-k / s) itself.
        tail=2.0**-57 + 2 * TRUNCATION,
    ),
}


def noise_of(name: str) -> Noise:
    """The noise of that name.

    Raises:
        ParameterError: there is none.
    """
    if name not in NOISES:
        raise ParameterError(f"mechanism={name!r} is not {' or '.join(NOISES)}")
    return NOISES[name]
