"""The discrete Gaussian of any standard deviation; units of a grid are integers (`discrete`)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError
from protocols.privacy.laws import RandomSource, discrete
from protocols.privacy.laws.discrete import MAX_SCALE

_FINEST = 1 << 52


def discrete_gaussian(
    sigma: Fraction | float | int, count: int, randomness: RandomSource
) -> NDArray[np.int64]:
    """See `discrete`; sigma: 0 to 2^40 [grid units], a float as the rational number that it is.

    Raises:
        ParameterError: sigma is outside its range.
    """
    a, b = as_ratio(sigma)
    return discrete.discrete_gaussian(a, count, randomness, b)


def as_ratio(scale: Fraction | float | int) -> tuple[int, int]:
    """A scale as a ratio (a, b) of integers that the samplers can handle.

    Every float64 from 1 to 2^40 is represented exactly; anything finer than a multiple of
    2^-52 is rounded **up**, which only adds noise.

    Raises:
        ParameterError: the scale is negative, not finite, or above 2^40 grid units.
    """
    try:
        exact = Fraction(scale)
    except (ValueError, OverflowError) as error:
        raise ParameterError(f"scale={scale} is not a finite number") from error
    if not 0 <= exact <= MAX_SCALE:
        raise ParameterError(f"scale={scale} is outside 0 .. 2^40 grid units; use a coarser grid")
    if exact.denominator > _FINEST or exact.numerator >= 1 << 54:
        denominator = 1 << (53 - max(1, int(exact).bit_length()))
        exact = Fraction(-((-exact * denominator) // 1), denominator)
    return exact.numerator, exact.denominator
