"""A row of a table of coefficients, as papers have it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import t

from protocols.words import NONE

LEVEL = 0.95
MOST_DIGITS = 6
MOST_RATIO = 1e100
"""Ratios beyond it, and below its inverse, are told as that: noise may leave any coefficient."""


def coefficient(
    name: str, coef: float, se: float, freedom: float = math.inf, ratio: str = ""
) -> dict[str, Any]:
    """name, coef, se, z, p, low, high; and exp(coef) with its ends under a name for it.

    freedom: of the t distribution, inf for the normal one.
    """
    z = coef / se if se > 0 else math.nan
    reach = float(t.ppf((1 + LEVEL) / 2, freedom)) * se
    row: dict[str, Any] = {
        "name": name,
        "coef": coef,
        "se": se,
        "z": z,
        "p": float(2 * t.sf(abs(z), freedom)),
        "low": coef - reach,
        "high": coef + reach,
    }
    if ratio:
        ends = (("", "coef"), ("_low", "low"), ("_high", "high"))
        row |= {f"{ratio}{end}": ratio_at(row[key]) for end, key in ends}
    return row


def ratio_texts(row: Mapping[str, Any], ratio: str) -> tuple[str, str, str]:
    """A ratio and the ends of its interval, of every table of ratios.

    Two digits, or as many more as tell them from each other, and from 1 where the interval does not
    hold it, six at most; an exponent where these would be zeros. Empty: there is no ratio, as of a
    category that others are compared with.
    """
    values = [row[f"{ratio}{end}"] for end in ("", "_low", "_high")]
    if values[0] != values[0]:
        return "", "", ""
    is_other = not values[1] <= 1 <= values[2]
    told, apart = list[str](), {*values, 1.0} if is_other else {*values}
    for digits in range(2, MOST_DIGITS + 1):
        told = [_told(value, digits) for value in values]
        if len({*told} | ({_told(1.0, digits)} if is_other else set())) == len(apart):
            break
    ratio_, low, high = told
    return ratio_, low, high


def with_ends(row: Mapping[str, Any], ratio: str) -> str:
    """As papers print it: "1.25 [1.10, 1.41]"; see `ratio_texts`."""
    found, low, high = ratio_texts(row, ratio)
    return found and f"{found} [{low}, {high}]"


def beyond(ratio: float) -> str:
    """Words of one that `MOST_RATIO` ends; empty of any other."""
    words = f"> {MOST_RATIO:g}" if ratio >= MOST_RATIO else ""
    return f"< {1 / MOST_RATIO:g}" if ratio <= 1 / MOST_RATIO else words


def _told(value: float, digits: int) -> str:
    if value != value:
        return NONE
    if words := beyond(value):
        return words
    fixed = value == 0 or 10.0**-MOST_DIGITS <= value < 1e6
    return f"{value:.{digits}f}" if fixed else f"{value:.3e}"


def left_out(names: Sequence[str]) -> list[str]:
    """A note, if there are any: columns without a coefficient."""
    words = f"left out, for the other columns determine them: {', '.join(names)}"
    return [words] if names else []


def ratio_at(coef: float) -> float:
    """exp(coef), within MOST_RATIO and its inverse; NaN of none."""
    if math.isnan(coef):
        return coef
    return min(max(math.exp(min(max(coef, -700.0), 700.0)), 1 / MOST_RATIO), MOST_RATIO)
