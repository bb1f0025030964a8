"""What a party's circuit (`kernel.model.clear_rows`) takes: levels, and noise of roundings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.ckks.circuits.lffr import LFFR_LEVELS, cubic
from protocols.ckks.circuits.rows import REFRESH_LEVEL, RowUnits
from protocols.ckks.factored import Link
from protocols.ckks.lffr import lffr_slope
from protocols.numerics.approximation import Polynomial
from protocols.updates.update import Update

Array = NDArray[np.float64]


def levels(link: Polynomial, rule: Update) -> int:
    """Between two refreshes; of a gradient 2 for degree 1, of odd ones 4 for 3, 5 to 7, 6 to 15."""
    # The rule's own path ends with a product that the refresh sums up.
    own = Link.of(link.coefficients).quotient(1.0)[0]
    return max(1 + own + 1, REFRESH_LEVEL + rule.levels() + 1)


def lffr_levels(rule: Update) -> int:
    """The same of LFFR."""
    return max(LFFR_LEVELS, REFRESH_LEVEL + rule.levels() + 1)


Slope = Callable[[RowUnits, Any], Any]
"""What weighted rows are multiplied by, of z'."""


def steepest(units: RowUnits, z: Any) -> Any:
    """LFFR's slope of a row whose target is 0; that of 1 is the same at -z."""
    link = Link.of(units.link.coefficients)
    return lffr_slope(link, z, lambda t: t + 0.5 / cubic(units.link)[0])


@lru_cache(maxsize=64)
def rounding_gain(
    units: RowUnits, slope: Slope = lambda units, z: Link.of(units.link.coefficients).quotient(z)[1]
) -> float:
    """Std of the noise of q(z') / A, largest of |z| <= R, in noises of one rescaling, as z' has.

    slope: in its place.
    """
    c = units.row_scale
    t: Array = np.linspace(-c, c, 1001).astype(np.float64)
    found: _Rounded = slope(units, _Rounded(t, {object(): np.ones_like(t)}))
    return float(np.sqrt(sum(each**2 for each in found.slopes.values())).max())


@dataclass(frozen=True, slots=True)
class _Rounded:
    """Values, and how fast they move with each of the independent roundings behind them."""

    value: Array
    slopes: dict[object, Array]

    def __add__(self, other: float) -> _Rounded:
        return _Rounded(self.value + other, self.slopes)

    def __mul__(self, other: _Rounded) -> _Rounded:
        left, right = self.slopes, other.slopes
        slopes = {
            source: self.value * right.get(source, 0.0) + other.value * left.get(source, 0.0)
            for source in left.keys() | right.keys()
        }
        # The product is rescaled.
        slopes[object()] = np.ones_like(self.value)
        return _Rounded(self.value * other.value, slopes)
