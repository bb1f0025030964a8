"""What a party's circuit (`kernel.model.clear_rows`) takes: levels, and noise of roundings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.ckks.circuits.rows import REFRESH_LEVEL, RowUnits
from protocols.ckks.factored import Link
from protocols.numerics.approximation import Polynomial
from protocols.updates.update import Update

Array = NDArray[np.float64]


def levels(link: Polynomial, rule: Update) -> int:
    """Between two refreshes; of a gradient 2 for degree 1, of odd ones 4 for 3, 5 to 7, 6 to 15."""
    # The rule's own path ends with a product that the refresh sums up.
    own = Link.of(link.coefficients).quotient(1.0)[0]
    return max(1 + own + 1, REFRESH_LEVEL + rule.levels() + 1)


Slope = Callable[[RowUnits, Any], Any]
"""What weighted rows are multiplied by, of z'."""


def quotient(units: RowUnits, z: Any) -> Any:
    """q(z') / A, the link's."""
    return Link.of(units.link.coefficients).quotient(z)[1]


@lru_cache(maxsize=64)
def rounding_gain(units: RowUnits, slope: Slope) -> float:
    """Std of the noise of a slope, largest of |z| <= R, in noises of one rescaling, as z' has."""
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
            for source in {**left, **right}  # in order: owners' figures agree bit for bit
        }
        # The product is rescaled.
        slopes[object()] = np.ones_like(self.value)
        return _Rounded(self.value * other.value, slopes)
